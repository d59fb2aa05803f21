//! Cuts a text into statements at their `;`, for a shell.
//!
//! Nothing is parsed: a statement that is wrong is cut out too, so that the server can say what is wrong with
//! it. Strings, names, bodies between `$$`, comments and whole batches stay together. Commands of the shell
//! end with their line. Used by `ceto shell`.

use crate::lexer::{self, TokenKind};

/// Kinds of words and signs, as far as a shell tells them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WordKind {
    /// A keyword or a name.
    Word,
    /// A name in double quotes.
    QuotedName,
    /// A string in single quotes.
    String,
    /// Digits with an optional minus.
    Integer,
    /// Any other constant, or a sign.
    Other,
}

/// A word or sign, by its byte offsets in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    /// Its kind.
    pub kind: WordKind,
    /// Offset of its beginning.
    pub start: usize,
    /// Offset of the text behind it.
    pub end: usize,
}

/// A statement of the text, from its first word to its last or its `;`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Its words and signs, without the `;` at the end. Never empty.
    pub words: Vec<Word>,
    /// Offset of its beginning.
    pub start: usize,
    /// Offset of the text behind it.
    pub end: usize,
    /// Whether it is whole; only the last piece may not be.
    pub is_ended: bool,
}

/// The statements of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pieces {
    /// In the text's order.
    pub pieces: Vec<Piece>,
    /// Offset of the string, name or comment in which the text ends, if it ends in one.
    pub open: Option<usize>,
}

/// Cuts `text`. A statement whose first word `ends_with_line` accepts ends with its line at the latest.
pub fn split(text: &str, ends_with_line: impl Fn(&str) -> bool) -> Pieces {
    let mut pieces = Vec::new();
    let mut words: Vec<Word> = Vec::new();
    let open = lexer::scan_loosely(text, |token| {
        let source = &text[token.start..token.end];
        match token.kind {
            TokenKind::Hidden => {
                if source.contains('\n') && words.first().is_some_and(|word| ends_with_line(of(text, word))) {
                    finish(&mut words, None, &mut pieces);
                }
            }
            TokenKind::Sign(";") => {
                let is_inside = is_batch(text, &words) && !is_applied(text, &words);
                if is_inside {
                    words.push(Word { kind: WordKind::Other, start: token.start, end: token.end });
                } else {
                    finish(&mut words, Some(token.end), &mut pieces);
                }
            }
            kind => words.push(Word { kind: word_kind(kind), start: token.start, end: token.end }),
        }
    });
    let start = words.first().map_or(open, |word| Some(word.start));
    if let (Some(start), Some(last)) = (start, words.last()) {
        let end = if open.is_some() { text.len() } else { last.end };
        pieces.push(Piece { words, start, end, is_ended: false });
    }
    Pieces { pieces, open }
}

/// Ends a piece, with its last word or at the given place. One without words is nothing.
fn finish(words: &mut Vec<Word>, end: Option<usize>, pieces: &mut Vec<Piece>) {
    let words = std::mem::take(words);
    if let (Some(first), Some(last)) = (words.first(), words.last()) {
        let (start, end) = (first.start, end.unwrap_or(last.end));
        pieces.push(Piece { words, start, end, is_ended: true });
    }
}

fn of<'t>(text: &'t str, word: &Word) -> &'t str {
    &text[word.start..word.end]
}

fn is_word(text: &str, word: Option<&Word>, expected: &str) -> bool {
    word.is_some_and(|word| of(text, word).eq_ignore_ascii_case(expected))
}

fn is_batch(text: &str, words: &[Word]) -> bool {
    is_word(text, words.first(), "BEGIN")
        && words.iter().take(3).skip(1).any(|word| is_word(text, Some(word), "BATCH"))
}

fn is_applied(text: &str, words: &[Word]) -> bool {
    let [.., apply, batch] = words else { return false };
    is_word(text, Some(apply), "APPLY") && is_word(text, Some(batch), "BATCH")
}

fn word_kind(kind: TokenKind) -> WordKind {
    match kind {
        TokenKind::Keyword(_) | TokenKind::Word | TokenKind::Boolean | TokenKind::ExpressionOpen => {
            WordKind::Word
        }
        TokenKind::QuotedName | TokenKind::EmptyQuotedName => WordKind::QuotedName,
        TokenKind::String => WordKind::String,
        TokenKind::Integer => WordKind::Integer,
        _ => WordKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces of a text, each with `…` behind it if it is not whole.
    fn check(text: &str, expected: &[&str], is_open: bool) {
        let split = split(text, |word| word.eq_ignore_ascii_case("paging"));
        let found: Vec<String> = split
            .pieces
            .iter()
            .map(|piece| {
                format!("{}{}", &text[piece.start..piece.end], if piece.is_ended { "" } else { "…" })
            })
            .collect();
        assert_eq!(
            (found.iter().map(String::as_str).collect::<Vec<_>>(), split.open.is_some()),
            (expected.to_vec(), is_open)
        );
    }

    #[test]
    fn statements_end_at_their_semicolon() {
        check("SELECT 1; select 2 ;", &["SELECT 1;", "select 2 ;"], false);
        check("SELECT *\n FROM t", &["SELECT *\n FROM t…"], false);
        check(" ;; \n", &[], false);
        check("PAGING 50\nSELECT 1;", &["PAGING 50", "SELECT 1;"], false);
        check("PAGING 50; SELECT\n1;", &["PAGING 50;", "SELECT\n1;"], false);
    }

    #[test]
    fn a_semicolon_inside_something_ends_nothing() {
        check("INSERT 'a;''b';SELECT \"x;y\";", &["INSERT 'a;''b';", "SELECT \"x;y\";"], false);
        check("-- a;b\nSELECT /* ; */ 1; // ;\n", &["SELECT /* ; */ 1;"], false);
        check("CREATE FUNCTION f AS $$ a; b; $$;", &["CREATE FUNCTION f AS $$ a; b; $$;"], false);
        let batch = "BEGIN UNLOGGED BATCH INSERT 1; DELETE 2; APPLY BATCH;";
        check(&format!("{batch}SELECT 1;"), &[batch, "SELECT 1;"], false);
        check("BEGIN BATCH INSERT 1;\n", &["BEGIN BATCH INSERT 1;…"], false);
    }

    #[test]
    fn an_open_string_name_or_comment_is_told() {
        check("SELECT 'a;\n", &["SELECT 'a;\n…"], true);
        check("SELECT 'it''s", &["SELECT 'it''s…"], true);
        check("SELECT \"a", &["SELECT \"a…"], true);
        check("x $$ ; ", &["x $$ ; …"], true);
        check("SELECT 1; /* ;", &["SELECT 1;"], true);
        check("SELECT @ \\ 'é';", &["SELECT @ \\ 'é';"], false);
    }
}
