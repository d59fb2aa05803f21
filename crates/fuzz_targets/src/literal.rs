//! Literals of CQL and JSON: the first byte chooses the column of an INSERT, the rest is the literal.

use statement::fuzzing::Statements;

thread_local! {
    static STATEMENTS: Statements = Statements::default();
}

pub(crate) fn run(data: &[u8]) {
    let Some((column, text)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    STATEMENTS.with(|statements| {
        statements.literal(*column, text);
        statements.values(text);
    });
}
