//! Parser of JSON text into a tree.
//!
//! RFC 8259, with numbers as in Java's parsers: integers are exact, whatever their length, all others are
//! doubles.
//! Invariant: no tree is deeper than [`DEPTH_MAX`], so it can be walked recursively.

use std::borrow::Cow;

use num_bigint::BigInt;

use crate::functions::{effort, number_text};

/// Most arrays and objects nested in each other.
pub const DEPTH_MAX: usize = 256;

/// A JSON value.
#[derive(Debug, Clone, PartialEq)]
pub enum Json<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Boolean(bool),
    /// A number without point and exponent that fits 64 bits.
    Integer(i64),
    /// A number without point and exponent that does not fit 64 bits.
    Big(BigInt),
    /// Any other number.
    Double(f64),
    /// A string, unescaped.
    String(Cow<'a, str>),
    /// An array.
    List(Vec<Json<'a>>),
    /// An object; keys in the order of the text, possibly repeated.
    Map(Vec<(Cow<'a, str>, Json<'a>)>),
}

/// Why the text is not JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem} at byte {at}")]
pub struct ParseError {
    /// The problem.
    pub problem: &'static str,
    /// The position in bytes.
    pub at: usize,
}

impl Json<'_> {
    /// Cassandra's name for the kind of value in messages.
    pub fn class(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean(_) => "Boolean",
            Self::Integer(value) if i32::try_from(*value).is_ok() => "Integer",
            Self::Integer(_) => "Long",
            Self::Big(_) => "BigInteger",
            Self::Double(_) => "Double",
            Self::String(_) => "String",
            Self::List(_) => "ArrayList",
            Self::Map(_) => "LinkedHashMap",
        }
    }
}

impl std::fmt::Display for Json<'_> {
    /// Writes the value as in Cassandra's messages, which is not JSON: `[1, a]`, `{k=v}`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Boolean(value) => write!(f, "{value}"),
            Self::Integer(value) => write!(f, "{value}"),
            Self::Big(value) => write!(f, "{value}"),
            Self::Double(value) => f.write_str(&number_text::double(*value)),
            Self::String(value) => f.write_str(value),
            Self::List(elements) => {
                f.write_str("[")?;
                for (at, element) in elements.iter().enumerate() {
                    write!(f, "{}{element}", if at == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
            Self::Map(entries) => {
                f.write_str("{")?;
                for (at, (key, value)) in entries.iter().enumerate() {
                    write!(f, "{}{key}={value}", if at == 0 { "" } else { ", " })?;
                }
                f.write_str("}")
            }
        }
    }
}

/// Parses the first JSON value; as in Cassandra, the text after it is ignored.
///
/// # Errors
/// [`ParseError`].
pub fn parse(text: &str) -> Result<Json<'_>, ParseError> {
    Parser { text, at: 0 }.value(0)
}

/// Length of an unescaped text at whose multiples it is looked whether others wait.
const ESCAPES_AT_ONCE: usize = 256;

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn error(&self, problem: &'static str) -> ParseError {
        ParseError { problem, at: self.at }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn value(&mut self, depth: usize) -> Result<Json<'a>, ParseError> {
        if depth == DEPTH_MAX {
            return Err(self.error("arrays and objects nested too deep"));
        }
        self.blanks();
        reactor::give_way();
        match self.peek() {
            None => Err(self.error("a value is missing")),
            Some(b'"') => self.string().map(Json::String),
            Some(b'[') => self.list(depth),
            Some(b'{') => self.map(depth),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(_) => {
                for (word, value) in
                    [("null", Json::Null), ("true", Json::Boolean(true)), ("false", Json::Boolean(false))]
                {
                    if self.text[self.at..].starts_with(word) {
                        self.at += word.len();
                        return Ok(value);
                    }
                }
                Err(self.error("unrecognized token"))
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<Json<'a>, ParseError> {
        self.at += 1;
        let mut elements = Vec::new();
        self.blanks();
        if self.take(b']') {
            return Ok(Json::List(elements));
        }
        loop {
            elements.push(self.value(depth + 1)?);
            self.blanks();
            if self.take(b']') {
                return Ok(Json::List(elements));
            }
            if !self.take(b',') {
                return Err(self.error("expected a comma or the end of the array"));
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Json<'a>, ParseError> {
        self.at += 1;
        let mut entries = Vec::new();
        self.blanks();
        if self.take(b'}') {
            return Ok(Json::Map(entries));
        }
        loop {
            self.blanks();
            if self.peek() != Some(b'"') {
                return Err(self.error("expected a name in double quotes"));
            }
            let key = self.string()?;
            self.blanks();
            if !self.take(b':') {
                return Err(self.error("expected a colon after a name"));
            }
            entries.push((key, self.value(depth + 1)?));
            self.blanks();
            if self.take(b'}') {
                return Ok(Json::Map(entries));
            }
            if !self.take(b',') {
                return Err(self.error("expected a comma or the end of the object"));
            }
        }
    }

    fn number(&mut self) -> Result<Json<'a>, ParseError> {
        let start = self.at;
        self.take(b'-');
        let whole = self.digits();
        let leading_zero = whole > 1 && self.text.as_bytes()[self.at - whole] == b'0';
        if whole == 0 || leading_zero {
            return Err(self.error("invalid number"));
        }
        let mut integer = true;
        if self.take(b'.') {
            integer = false;
            if self.digits() == 0 {
                return Err(self.error("invalid number"));
            }
        }
        if self.take(b'e') || self.take(b'E') {
            integer = false;
            let _sign = self.take(b'+') || self.take(b'-');
            if self.digits() == 0 {
                return Err(self.error("invalid number"));
            }
        }
        let text = &self.text[start..self.at];
        let wrong = |_| ParseError { problem: "invalid number", at: start };
        if !integer {
            return text.parse().map(Json::Double).map_err(|_| wrong(()));
        }
        match text.parse::<i64>() {
            Ok(value) => Ok(Json::Integer(value)),
            Err(_) if whole > effort::DIGITS_MAX => {
                Err(ParseError { problem: "a number has too many digits", at: start })
            }
            Err(_) => text.parse().map(Json::Big).map_err(|_| wrong(())),
        }
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.at - start
    }

    fn string(&mut self) -> Result<Cow<'a, str>, ParseError> {
        self.at += 1;
        let mut unescaped = String::new();
        let mut plain = self.at;
        loop {
            match self.peek() {
                None => return Err(self.error("a string is not closed")),
                Some(b'"') => {
                    let rest = &self.text[plain..self.at];
                    self.at += 1;
                    return Ok(if unescaped.is_empty() {
                        Cow::Borrowed(rest)
                    } else {
                        unescaped.push_str(rest);
                        Cow::Owned(unescaped)
                    });
                }
                Some(b'\\') => {
                    unescaped.push_str(&self.text[plain..self.at]);
                    self.at += 1;
                    unescaped.push(self.escape()?);
                    plain = self.at;
                    if unescaped.len().is_multiple_of(ESCAPES_AT_ONCE) {
                        reactor::give_way();
                    }
                }
                Some(0..0x20) => return Err(self.error("a control character inside a string")),
                Some(_) => self.at += 1,
            }
        }
    }

    fn escape(&mut self) -> Result<char, ParseError> {
        let escaped = self.peek().ok_or_else(|| self.error("a string is not closed"))?;
        self.at += 1;
        Ok(match escaped {
            b'"' | b'\\' | b'/' => char::from(escaped),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let unit = self.unit()?;
                match unit {
                    0xd800..0xdc00 if self.text[self.at..].starts_with("\\u") => {
                        self.at += 2;
                        let low = self.unit()?;
                        char::decode_utf16([unit, low])
                            .next()
                            .and_then(Result::ok)
                            .ok_or_else(|| self.error("a surrogate without its other half"))?
                    }
                    _ => char::from_u32(u32::from(unit))
                        .ok_or_else(|| self.error("a surrogate without its other half"))?,
                }
            }
            _ => return Err(self.error("unrecognized character escape")),
        })
    }

    fn unit(&mut self) -> Result<u16, ParseError> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4);
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let unit = digits
            .and_then(|digits| str::from_utf8(digits).ok())
            .and_then(|digits| u16::from_str_radix(digits, 16).ok())
            .ok_or_else(|| self.error("expected four hexadecimal digits"))?;
        self.at += 4;
        Ok(unit)
    }
}
