//! Functions for fuzzers: one for each interface, each checking the properties that must hold for every
//! input.
//!
//! Not part of the interface; the property tests use the same functions. Checked: no panic, and parsed text
//! prints to text that parses to the same tree.

use crate::parser::{parse_statement, parse_term, parse_type};

/// Parses arbitrary bytes as a statement, a type and a term, and prints the parsed trees.
///
/// # Panics
/// If a printed tree does not parse to the same tree: that is the bug the fuzzer looks for.
pub fn fuzz_parse(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match parse_statement(text) {
        Ok(parsed) => {
            let printed = parsed.statement.to_string();
            assert_eq!(parse_statement(&printed), Ok(parsed), "{text:?} printed as {printed:?}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Ok(type_name) = parse_type(text) {
        assert_eq!(parse_type(&type_name.to_string()), Ok(type_name));
    }
    if let Ok(term) = parse_term(text) {
        assert_eq!(parse_term(&term.to_string()), Ok(term));
    }
}
