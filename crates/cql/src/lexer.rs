//! Splits CQL text into tokens.
//!
//! Tokens are kinds with byte ranges into the text; nothing is copied or unescaped here, and lines and
//! columns are computed only for errors. Lexing stops at the first text that is not a token. The text before
//! it may have an earlier error, so the fault is kept beside the tokens and the parser decides which comes
//! first. Rules and messages are those of Cassandra 5.0's `Lexer.g`, even that a `--` comment needs its line
//! end. Invariant: the last token is always `End`, once. Used by `parser`.

use logos::Logos;

use crate::keyword::Keyword;

/// Called now and then in the middle of long work.
#[derive(Clone, Copy, Debug)]
struct GiveWay(fn());

/// The raw rules; `Word`s become keywords, and numbers are cut again around `..`, in [`tokenize`].
#[derive(Logos, Clone, Copy, Debug, PartialEq, Eq)]
#[logos(extras = GiveWay)]
enum Rule {
    #[regex(r"[ \t\r\n]+")]
    Space,
    #[token("--", line_comment)]
    #[token("//", line_comment)]
    LineComment,
    #[token("/*", block_comment)]
    BlockComment,
    #[regex(r"[A-Za-z][A-Za-z0-9_]*", priority = 5)]
    Word,
    #[regex(r#""([^"]|"")+""#)]
    QuotedName,
    #[token("\"\"")]
    EmptyQuotedName,
    #[token("'", string)]
    String,
    #[token("$$", dollar_string)]
    DollarString,
    #[regex(r"-?[0-9]+", priority = 6)]
    Integer,
    #[regex(r"-?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)", priority = 7)]
    #[regex(r"-?[0-9]+\.[0-9]*", priority = 7)]
    Float,
    #[regex(r"(?i)true|false", priority = 20)]
    Boolean,
    #[regex(r"-?([0-9]+([mM][oOsS]|[uUnN][sS]|\u{b5}[sS]|[yYwWdDhHmMsS]))+", priority = 8)]
    #[regex(r"-?P[0-9]+W", priority = 21)]
    #[regex(r"-?P[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}", priority = 21)]
    #[regex(
        r"-?P([0-9]+Y([0-9]+M)?([0-9]+D)?|[0-9]+M([0-9]+D)?|[0-9]+D)(T([0-9]+H([0-9]+M)?([0-9]+S)?|[0-9]+M([0-9]+S)?|[0-9]+S))?",
        priority = 21
    )]
    #[regex(r"-?PT([0-9]+H([0-9]+M)?([0-9]+S)?|[0-9]+M([0-9]+S)?|[0-9]+S)", priority = 21)]
    Duration,
    #[regex(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}", priority = 30)]
    Uuid,
    #[regex(r"0[xX][0-9a-fA-F]*", priority = 9)]
    Hex,
    #[regex(r"-[nN][aA][nN]", priority = 9)]
    NegativeNan,
    #[regex(r"-(?i)infinity", priority = 9)]
    NegativeInfinity,
    #[token("expr(")]
    ExpressionOpen,
    #[token("?")]
    QuestionMark,
    #[token("..")]
    Range,
    #[token("!=")]
    NotEqual,
    #[token("<=")]
    LessOrEqual,
    #[token(">=")]
    GreaterOrEqual,
    #[token("+=")]
    PlusEqual,
    #[token("-=")]
    MinusEqual,
    #[token("<")]
    Less,
    #[token("=")]
    Equal,
    #[token(">")]
    Greater,
    #[token("+")]
    Plus,
    #[token("-")]
    Minus,
    #[token("*")]
    Star,
    #[token("/")]
    Slash,
    #[token("%")]
    Percent,
    #[token("(")]
    Open,
    #[token(")")]
    Close,
    #[token("[")]
    OpenBracket,
    #[token("]")]
    CloseBracket,
    #[token("{")]
    OpenBrace,
    #[token("}")]
    CloseBrace,
    #[token(",")]
    Comma,
    #[token(".")]
    Dot,
    #[token(":")]
    Colon,
    #[token(";")]
    Semicolon,
}

/// Takes the rest of the line and its end; a comment that reaches the end of the text is not a token.
fn line_comment(lexer: &mut logos::Lexer<'_, Rule>) -> bool {
    take_through(lexer, |rest| rest.find(['\n', '\r']).map(|at| at + 1))
}

/// Takes everything up to `*/`.
fn block_comment(lexer: &mut logos::Lexer<'_, Rule>) -> bool {
    take_through(lexer, |rest| rest.find("*/").map(|at| at + 2))
}

/// Takes everything up to a quote that is not doubled. Without one, the text up to the last doubled quote is
/// a string, as it is for the regular expression `'([^']|'')*'`.
fn string(lexer: &mut logos::Lexer<'_, Rule>) -> bool {
    const AT_ONCE_BYTES: usize = 16 << 10;
    let rest = lexer.remainder().as_bytes();
    let (mut at, mut doubled, mut look_at) = (0, None, AT_ONCE_BYTES);
    let end = loop {
        if at >= look_at {
            look_at += AT_ONCE_BYTES;
            (lexer.extras.0)();
        }
        match rest.get(at..) {
            Some([b'\'', b'\'', ..]) => {
                doubled = Some(at);
                at += 2;
            }
            Some([b'\'', ..]) => break Some(at),
            Some([_, ..]) => at += 1,
            _ => break doubled,
        }
    };
    end.inspect(|end| lexer.bump(end + 1)).is_some()
}

/// Takes everything up to the next `$$`.
fn dollar_string(lexer: &mut logos::Lexer<'_, Rule>) -> bool {
    take_through(lexer, |rest| rest.find("$$").map(|at| at + 2))
}

fn take_through(lexer: &mut logos::Lexer<'_, Rule>, end: impl Fn(&str) -> Option<usize>) -> bool {
    match end(lexer.remainder()) {
        Some(length) => {
            lexer.bump(length);
            true
        }
        None => false,
    }
}

/// Kinds of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// White space or a comment; only [`tokenize_all`] returns these.
    Hidden,
    /// A word that is a keyword of the grammar.
    Keyword(Keyword),
    /// Any other word.
    Word,
    /// `"…"`
    QuotedName,
    /// `""`
    EmptyQuotedName,
    /// `'…'`
    String,
    /// `$$…$$`
    DollarString,
    /// Digits with an optional minus.
    Integer,
    /// Digits with a point or exponent.
    Float,
    /// `true`, `false`
    Boolean,
    /// A duration in any notation.
    Duration,
    /// A UUID.
    Uuid,
    /// `0x…`
    Hex,
    /// `-NaN`
    NegativeNan,
    /// `-Infinity`
    NegativeInfinity,
    /// `expr(`
    ExpressionOpen,
    /// `?`
    QuestionMark,
    /// A sign; the text is the sign.
    Sign(&'static str),
    /// The end of the text.
    End,
}

/// One token: its kind and its byte offsets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// The first place at which the text is not a token, with Cassandra's message.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// Byte offset the message points at.
    pub(crate) offset: usize,
    /// The message without its position.
    pub(crate) message: String,
}

/// The tokens of a text, up to its end or the first fault.
#[derive(Debug)]
pub(crate) struct Tokens {
    pub(crate) tokens: Vec<Token>,
    pub(crate) fault: Option<Fault>,
}

/// Most words and signs of a statement. A tree takes some 250 bytes for each of them, so that this number,
/// and not the length of a frame, bounds the memory of a parse.
pub const TOKENS_MAX: usize = 1 << 18;
/// Length of a text whose tokens take long to copy to a greater room.
const LONG_TEXT_BYTES: usize = 64 << 10;

/// Tokens that are read, or parsed, between two looks whether others wait: some microseconds of work.
pub(crate) const TOKENS_AT_ONCE: usize = 64;

/// Tokens without white space and comments, as the parser reads them.
/// `give_way` is called after every few of them.
pub(crate) fn tokenize(text: &str, give_way: fn()) -> Tokens {
    scan(text, false, give_way)
}

/// Tokens with white space and comments, which error messages count when they quote the text around a fault.
pub(crate) fn tokenize_all(text: &str) -> Tokens {
    scan(text, true, || ())
}

fn scan(text: &str, hidden: bool, give_way: fn()) -> Tokens {
    // White space and comments are between tokens; few texts have more than one of them there.
    let tokens_max = if hidden { 4 * TOKENS_MAX } else { TOKENS_MAX };
    // Of a long text room for the most tokens, so that they are not copied: memory is taken as it is filled.
    let likely = if text.len() > LONG_TEXT_BYTES { text.len() } else { text.len() / 4 };
    let mut tokens = Vec::with_capacity(likely.min(tokens_max) + 2);
    let mut fault = None;
    let mut lexer = Rule::lexer_with_extras(text, GiveWay(give_way));
    while let Some(rule) = lexer.next() {
        if tokens.len().is_multiple_of(TOKENS_AT_ONCE) {
            give_way();
        }
        let span = lexer.span();
        if tokens.len() >= tokens_max {
            fault = Some(Fault {
                offset: span.start,
                message: format!("Statement is too long: at most {TOKENS_MAX} words and signs are supported"),
            });
            break;
        }
        let Ok(rule) = rule else {
            fault = Some(fault_at(text, span.start));
            break;
        };
        let mut token = Token { kind: TokenKind::Hidden, start: span.start, end: span.end };
        let before_range = rule == Rule::Float && lexer.slice().ends_with('.') && {
            let rest = lexer.remainder().as_bytes();
            rest.first() == Some(&b'.') && rest.get(1) != Some(&b'.')
        };
        if before_range {
            // `1..2` is a range between integers, although `1.` alone is a float.
            lexer.bump(1);
            tokens.push(Token { kind: TokenKind::Integer, start: span.start, end: span.end - 1 });
            tokens.push(Token { kind: TokenKind::Sign(".."), start: span.end - 1, end: span.end + 1 });
            continue;
        }
        let broken = broken_uuid(text, rule, span.start, span.end)
            .or_else(|| broken_duration(text, rule, span.start, span.end));
        if broken.is_some() {
            fault = broken;
            break;
        }
        token.kind = kind_of(rule, lexer.slice());
        if hidden || token.kind != TokenKind::Hidden {
            tokens.push(token);
        }
    }
    tokens.push(Token { kind: TokenKind::End, start: text.len(), end: text.len() });
    Tokens { tokens, fault }
}

/// Calls `take` with every token, hidden ones included, whatever stands between tokens. Returns the offset of
/// the string, name or comment in which the text ends, if it ends in one.
pub(crate) fn scan_loosely(text: &str, mut take: impl FnMut(Token)) -> Option<usize> {
    let mut lexer = Rule::lexer_with_extras(text, GiveWay(|| ()));
    while let Some(rule) = lexer.next() {
        let span = lexer.span();
        match rule {
            Ok(rule) => take(Token { kind: kind_of(rule, lexer.slice()), start: span.start, end: span.end }),
            Err(()) => {
                let rest = text.get(span.start..).unwrap_or_default();
                if ["'", "\"", "$$", "/*", "--", "//"].iter().any(|opening| rest.starts_with(opening)) {
                    return Some(span.start);
                }
            }
        }
    }
    None
}

fn kind_of(rule: Rule, slice: &str) -> TokenKind {
    match rule {
        Rule::Space | Rule::LineComment | Rule::BlockComment => TokenKind::Hidden,
        Rule::Word => Keyword::of(slice).map_or(TokenKind::Word, TokenKind::Keyword),
        Rule::QuotedName => TokenKind::QuotedName,
        Rule::EmptyQuotedName => TokenKind::EmptyQuotedName,
        Rule::String => TokenKind::String,
        Rule::DollarString => TokenKind::DollarString,
        Rule::Integer => TokenKind::Integer,
        Rule::Float => TokenKind::Float,
        Rule::Boolean => TokenKind::Boolean,
        Rule::Duration => TokenKind::Duration,
        Rule::Uuid => TokenKind::Uuid,
        Rule::Hex => TokenKind::Hex,
        Rule::NegativeNan => TokenKind::NegativeNan,
        Rule::NegativeInfinity => TokenKind::NegativeInfinity,
        Rule::ExpressionOpen => TokenKind::ExpressionOpen,
        Rule::QuestionMark => TokenKind::QuestionMark,
        Rule::Range => TokenKind::Sign(".."),
        Rule::NotEqual => TokenKind::Sign("!="),
        Rule::LessOrEqual => TokenKind::Sign("<="),
        Rule::GreaterOrEqual => TokenKind::Sign(">="),
        Rule::PlusEqual => TokenKind::Sign("+="),
        Rule::MinusEqual => TokenKind::Sign("-="),
        Rule::Less => TokenKind::Sign("<"),
        Rule::Equal => TokenKind::Sign("="),
        Rule::Greater => TokenKind::Sign(">"),
        Rule::Plus => TokenKind::Sign("+"),
        Rule::Minus => TokenKind::Sign("-"),
        Rule::Star => TokenKind::Sign("*"),
        Rule::Slash => TokenKind::Sign("/"),
        Rule::Percent => TokenKind::Sign("%"),
        Rule::Open => TokenKind::Sign("("),
        Rule::Close => TokenKind::Sign(")"),
        Rule::OpenBracket => TokenKind::Sign("["),
        Rule::CloseBracket => TokenKind::Sign("]"),
        Rule::OpenBrace => TokenKind::Sign("{"),
        Rule::CloseBrace => TokenKind::Sign("}"),
        Rule::Comma => TokenKind::Sign(","),
        Rule::Dot => TokenKind::Sign("."),
        Rule::Colon => TokenKind::Sign(":"),
        Rule::Semicolon => TokenKind::Sign(";"),
    }
}

/// The fault at `start`, at which no rule matched.
///
/// An opened string, name or comment is reported at the end of the text, where its closing sign is missing; a
/// lone `!` or `$` at the character that should have followed it; anything else at its own place.
fn fault_at(text: &str, start: usize) -> Fault {
    let rest = text.get(start..).unwrap_or_default();
    let expecting = |offset: usize, expected: &str| Fault {
        offset,
        message: format!("mismatched character {} expecting {expected}", character_at(text, offset)),
    };
    if rest.starts_with('\'') {
        expecting(text.len(), "'''")
    } else if rest.starts_with('"') {
        expecting(text.len(), "'\"'")
    } else if rest.starts_with("--") || rest.starts_with("//") {
        expecting(text.len(), "set null")
    } else if rest.starts_with("/*") {
        expecting(text.len(), "'*'")
    } else if rest.starts_with("$$") {
        // The grammar fails one character before the end, where it requires the closing `$$`.
        let last = rest.char_indices().next_back().map_or(start, |(at, _)| start + at);
        expecting(if last < start + 2 { text.len() } else { last }, "'$'")
    } else if rest.starts_with('$') {
        expecting(start + 1, "'$'")
    } else if rest.starts_with('!') {
        expecting(start + 1, "'='")
    } else {
        Fault {
            offset: start,
            message: format!("no viable alternative at character {}", character_at(text, start)),
        }
    }
}

/// The fault in a text that the grammar takes for a UUID although it is not one: digits followed by a
/// hexadecimal letter, or eight hexadecimal digits before a minus.
fn broken_uuid(text: &str, rule: Rule, start: usize, end: usize) -> Option<Fault> {
    if !matches!(rule, Rule::Integer | Rule::Word | Rule::Duration | Rule::Float) {
        return None;
    }
    let bytes = text.as_bytes();
    let hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    let runs_on = rule == Rule::Integer && hex(end) && hex(start);
    let eight = (start..start + 8).all(hex) && bytes.get(start + 8) == Some(&b'-') && end <= start + 8;
    if !runs_on && !eight {
        return None;
    }
    if runs_on && matches!(bytes.get(end), Some(b'e' | b'E')) && !hex(end + 1) {
        let message = format!("no viable alternative at character {}", character_at(text, end + 1));
        return Some(Fault { offset: end + 1, message });
    }
    let mut at = start;
    for (group, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if group > 0 {
            if bytes.get(at) != Some(&b'-') {
                let message = format!("mismatched character {} expecting '-'", character_at(text, at));
                return Some(Fault { offset: at, message });
            }
            at += 1;
        }
        for _ in 0..length {
            if !hex(at) {
                let message = format!("mismatched character {} expecting set null", character_at(text, at));
                return Some(Fault { offset: at, message });
            }
            at += 1;
        }
    }
    None
}

/// The fault in a text that the grammar takes for a duration although it is not one: digits before half of a
/// two-letter unit, or a `P` and four digits before a minus.
fn broken_duration(text: &str, rule: Rule, start: usize, end: usize) -> Option<Fault> {
    let bytes = text.as_bytes();
    let unit = matches!(bytes.get(end), Some(b'n' | b'N' | b'u' | b'U'));
    if rule == Rule::Integer && unit {
        let message = format!("mismatched character {} expecting set null", character_at(text, end + 1));
        return Some(Fault { offset: end + 1, message });
    }
    let years = bytes.get(start..end)?;
    let long =
        rule == Rule::Word && years.len() == 5 && years.starts_with(b"P") && bytes.get(end) == Some(&b'-');
    if !long || !years[1..].iter().all(u8::is_ascii_digit) {
        return None;
    }
    for (offset, wanted) in "-00-00T00:00:00".bytes().enumerate() {
        let at = end + offset;
        let found = bytes.get(at);
        if wanted == b'0' && !found.is_some_and(u8::is_ascii_digit) {
            let message = format!("mismatched character {} expecting set null", character_at(text, at));
            return Some(Fault { offset: at, message });
        }
        if wanted != b'0' && found != Some(&wanted) {
            let message =
                format!("mismatched character {} expecting '{}'", character_at(text, at), char::from(wanted));
            return Some(Fault { offset: at, message });
        }
    }
    None
}

/// A character as messages show it: quoted, line ends and tabs escaped, `'<EOF>'` behind the text.
fn character_at(text: &str, offset: usize) -> String {
    match text.get(offset..).and_then(|rest| rest.chars().next()) {
        None => "'<EOF>'".to_owned(),
        Some('\n') => "'\\n'".to_owned(),
        Some('\r') => "'\\r'".to_owned(),
        Some('\t') => "'\\t'".to_owned(),
        Some(character) => format!("'{character}'"),
    }
}
