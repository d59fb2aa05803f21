//! Syntax errors, in Cassandra's words.
//!
//! Tools and people match on these messages, so position, wording and the quoted piece of text follow
//! Cassandra 5.0's `ErrorCollector` and ANTLR 3's standard messages. Invariant: columns count UTF-16 units
//! from 0, lines from 1; the end of the text has the position `0:-1`. Used by `parser` and by the code that
//! answers a client.

use std::fmt;

use crate::lexer::{self, Token, TokenKind};

/// A place in a text, in the form of error messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The line, from 1; 0 for the end of the text.
    pub line: u32,
    /// The UTF-16 unit in the line, from 0; -1 for the end of the text.
    pub column: i32,
}

impl Position {
    /// The end of the text.
    pub const END: Position = Position { line: 0, column: -1 };

    /// The position of byte `offset`.
    fn of(text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let lines = before.bytes().filter(|byte| *byte == b'\n').count();
        let column = utf16_len(&before[line_start..]);
        Self {
            line: u32::try_from(lines).unwrap_or(u32::MAX).saturating_add(1),
            column: i32::try_from(column).unwrap_or(i32::MAX),
        }
    }
}

/// A text that is not CQL.
///
/// `Display` gives Cassandra's client-visible text: `line 1:7 no viable alternative at input …`, or the bare
/// message if Cassandra gives no position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct SyntaxError {
    /// The place, for errors that have one.
    pub position: Option<Position>,
    /// The message, without the position.
    pub message: String,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(position) = self.position {
            write!(formatter, "line {}:{} ", position.line, position.column)?;
        }
        formatter.write_str(&self.message)
    }
}

/// A fault as the parser sees it: token numbers instead of places, cheap to make and to throw away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    /// The token that cannot be there.
    pub(crate) token: usize,
    /// The parser's token when it decided; the message puts it in brackets.
    pub(crate) decision: usize,
}

/// The wording of a [`Failure`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// Several things could follow, and the text has none of them.
    NoViableAlternative,
    /// One thing is required; its grammar name.
    Expected(&'static str),
    /// One of a set of tokens is required.
    ExpectedSet,
    /// A message of the grammar's own, without position.
    Message(String),
}

/// Turns a failure at token numbers into the message for `text`.
///
/// `looked` is the furthest examined token: the message quotes nothing behind it.
pub(crate) fn describe(text: &str, tokens: &[Token], failure: Failure, looked: usize) -> SyntaxError {
    if let FailureKind::Message(message) = failure.kind {
        return SyntaxError { position: None, message };
    }
    let end = Token { kind: TokenKind::End, start: text.len(), end: text.len() };
    let token = tokens.get(failure.token).copied().unwrap_or(end);
    let shown = shown_token(text, token);
    let mut message = match failure.kind {
        FailureKind::NoViableAlternative => format!("no viable alternative at input {shown}"),
        FailureKind::Expected(expected) => format!("mismatched input {shown} expecting {expected}"),
        FailureKind::ExpectedSet => format!("mismatched input {shown} expecting set null"),
        FailureKind::Message(_) => unreachable!("answered above"),
    };
    let position = if token.kind == TokenKind::End { Position::END } else { Position::of(text, token.start) };
    let looked = looked.max(failure.token);
    if let Some(snippet) = snippet(text, tokens, failure.decision, looked) {
        message.push_str(&snippet);
    }
    SyntaxError { position: Some(position), message }
}

/// The message for the first place at which the text is not a token.
pub(crate) fn describe_fault(text: &str, fault: &lexer::Fault) -> SyntaxError {
    SyntaxError { position: Some(Position::of(text, fault.offset)), message: fault.message.clone() }
}

/// A token's text as messages show it, in quotes, line ends escaped.
fn shown_token(text: &str, token: Token) -> String {
    if token.kind == TokenKind::End {
        return "'<EOF>'".to_owned();
    }
    let shown = token_text(text, token).replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t");
    format!("'{shown}'")
}

/// The grammar's text of a token: strings and quoted names without quotes and escapes, the rest as written.
fn token_text(text: &str, token: Token) -> String {
    let slice = text.get(token.start..token.end).unwrap_or_default();
    match token.kind {
        TokenKind::String => unquote(slice, '\''),
        TokenKind::QuotedName => unquote(slice, '"'),
        TokenKind::DollarString => slice.get(2..slice.len().saturating_sub(2)).unwrap_or_default().to_owned(),
        _ => slice.to_owned(),
    }
}

/// The content of `slice`, which starts and ends with `quote` and doubles it inside.
pub(crate) fn unquote(slice: &str, quote: char) -> String {
    unquote_in_parts(slice, quote, || ())
}

/// As [`unquote`]; calls `give_way` after every few thousand characters.
pub(crate) fn unquote_in_parts(slice: &str, quote: char, give_way: fn()) -> String {
    const AT_ONCE: usize = 4096;
    let inner = slice.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)).unwrap_or(slice);
    let mut content = String::with_capacity(inner.len());
    let mut after_quote = false;
    for (at, character) in inner.chars().enumerate() {
        if at % AT_ONCE == AT_ONCE - 1 {
            give_way();
        }
        if character == quote && !after_quote {
            after_quote = true;
        } else {
            after_quote = false;
            content.push(character);
        }
    }
    content
}

/// How many tokens, white space included, are quoted before the decision.
const SNIPPET_TOKENS_BEFORE: usize = 10;
/// How many tokens, white space included, are quoted after the decision.
const SNIPPET_TOKENS_AFTER: usize = 2;

/// ` (…the text [around] the decision…)`, or nothing if the end of the text would be part of it.
///
/// Lengths are those of the grammar's token text, so a string literal's bracket closes as many columns early
/// as it has quotes: Cassandra does the same.
fn snippet(text: &str, tokens: &[Token], decision: usize, looked: usize) -> Option<String> {
    let all = lexer::tokenize_all(text).tokens;
    let index_of = |number: usize| -> Option<usize> {
        let start = tokens.get(number)?.start;
        let at = all.partition_point(|token| token.start < start);
        (at..all.len()).find(|index| all[*index].kind != TokenKind::Hidden)
    };
    let decision = index_of(decision)?;
    let last_seen = index_of(looked.min(tokens.len().checked_sub(1)?))?;
    let from = all.get(decision.saturating_sub(SNIPPET_TOKENS_BEFORE)).copied()?;
    let to = all.get((decision + SNIPPET_TOKENS_AFTER).min(last_seen)).copied()?;
    let offending = all.get(decision).copied()?;
    if [from, to, offending].iter().any(|token| token.kind == TokenKind::End) {
        return None;
    }
    let mut lines: Vec<Vec<u16>> = text.split('\n').map(|line| line.encode_utf16().collect()).collect();
    while lines.len() > 1 && lines.last().is_some_and(Vec::is_empty) {
        lines.pop();
    }
    let place = |token: Token| {
        let position = Position::of(text, token.start);
        let line = usize::try_from(position.line).unwrap_or(1).saturating_sub(1);
        let column = usize::try_from(position.column).unwrap_or(0);
        (line, column, column + utf16_len(&token_text(text, token)))
    };
    let (from_line, from_column, _) = place(from);
    let (to_line, _, to_end) = place(to);
    let (offending_line, offending_column, offending_end) = place(offending);
    let whole_start = from_line == 0 && from_column == 0;
    let whole_end = to_line + 1 == lines.len() && to_end == lines.last()?.len();

    lines.get_mut(to_line)?.truncate(to_end);
    let marked = lines.get_mut(offending_line)?;
    marked.insert(offending_end.min(marked.len()), u16::from(b']'));
    marked.insert(offending_column.min(marked.len()), u16::from(b'['));
    let first = lines.get_mut(from_line)?;
    first.drain(..from_column.min(first.len()));

    let quoted: Vec<u16> = lines.get(from_line..=to_line)?.concat();
    let before = if whole_start { "" } else { "..." };
    let after = if whole_end { "" } else { "..." };
    Some(format!(" ({before}{}{after})", String::from_utf16_lossy(&quoted)))
}

fn utf16_len(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}
