//! Lines of values with a delimiter between them, as cqlsh writes and reads them.
//!
//! A field with a delimiter, a quote or a line end in it stands between quotes; a quote inside is escaped.
//! When read, a doubled quote counts as an escaped one, as in other programs' files. Whether a field had
//! quotes is kept: it tells an empty text from null. Invariant: what [`append`] wrote, [`Reader`] reads back
//! equal.

use std::io;

/// Longest line that is read; a quote that is not closed would otherwise take the whole file.
const RECORD_BYTES_MAX: usize = 64 << 20;

/// The special characters, all ASCII.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::shell) struct Dialect {
    pub(in crate::shell) delimiter: u8,
    pub(in crate::shell) quote: u8,
    /// Equal to the quote where quotes are escaped by doubling them.
    pub(in crate::shell) escape: u8,
}

impl Dialect {
    /// # Errors
    /// In words for the user, if the characters cannot be told apart.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.delimiter == self.quote || self.delimiter == self.escape {
            return Err("COPY: DELIMITER has to be different from QUOTE and ESCAPE".to_owned());
        }
        Ok(())
    }
}

/// A field as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Field {
    pub(super) bytes: Vec<u8>,
    /// Whether any of it stood between quotes.
    pub(super) is_quoted: bool,
}

/// A line of fields, which may be several lines of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    /// The line of the file where it begins, from 1.
    pub(super) line: u64,
    pub(super) fields: Vec<Field>,
    /// The bytes of the file, with the line end.
    pub(super) source: Vec<u8>,
}

/// Appends a line. `None` is null, written as `null` is; a text that looks like null gets quotes.
pub(super) fn append(out: &mut Vec<u8>, dialect: &Dialect, null: &str, fields: &[Option<&str>]) {
    for (at, field) in fields.iter().enumerate() {
        if at > 0 {
            out.push(dialect.delimiter);
        }
        let text = field.unwrap_or(null);
        let is_special =
            |byte: u8| byte == dialect.delimiter || byte == dialect.quote || b"\r\n".contains(&byte);
        let is_quoted = text.bytes().any(is_special) || field.is_some() && (text == null || text.is_empty());
        if is_quoted {
            out.push(dialect.quote);
        }
        for byte in text.bytes() {
            if byte == dialect.quote || byte == dialect.escape {
                out.push(dialect.escape);
            }
            out.push(byte);
        }
        if is_quoted {
            out.push(dialect.quote);
        }
    }
    out.push(b'\n');
}

/// Reads records from bytes that come in pieces.
pub(super) struct Reader<M> {
    dialect: Dialect,
    /// Appends more bytes; false at the end.
    more: M,
    buffer: Vec<u8>,
    /// Bytes of the buffer that were read.
    at: usize,
    is_at_end: bool,
    line: u64,
}

/// The reader's place in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Plain,
    Quoted,
    /// Behind a quote inside of quotes: it was the last one, or half of a doubled one.
    QuoteInQuoted,
    /// Behind the escape character.
    Escaped {
        in_quotes: bool,
    },
}

impl<M: FnMut(&mut Vec<u8>) -> io::Result<bool>> Reader<M> {
    pub(super) fn new(dialect: Dialect, more: M) -> Self {
        Self { dialect, more, buffer: Vec::new(), at: 0, is_at_end: false, line: 1 }
    }

    /// The byte at an offset behind those that were read; `None` at the end.
    fn byte(&mut self, offset: usize) -> io::Result<Option<u8>> {
        while self.at + offset >= self.buffer.len() {
            if self.is_at_end {
                return Ok(None);
            }
            self.buffer.drain(..self.at);
            self.at = 0;
            self.is_at_end = !(self.more)(&mut self.buffer)?;
        }
        Ok(Some(self.buffer[self.at + offset]))
    }

    /// The next record that has any byte; `None` at the end.
    ///
    /// # Errors
    /// As the file, and `InvalidData` for a quote that is not closed within [`RECORD_BYTES_MAX`] or at all.
    pub(super) fn next(&mut self) -> io::Result<Option<Record>> {
        loop {
            let line = self.line;
            let Some((fields, length)) = self.fields()? else { return Ok(None) };
            let source = self.buffer[self.at..self.at + length].to_vec();
            self.at += length;
            self.line += source.iter().filter(|byte| **byte == b'\n').count() as u64;
            if fields.len() > 1 || !fields[0].bytes.is_empty() || fields[0].is_quoted {
                return Ok(Some(Record { line, fields, source }));
            }
        }
    }

    /// The fields of the record that begins here, and its length in bytes with the line end.
    fn fields(&mut self) -> io::Result<Option<(Vec<Field>, usize)>> {
        let Dialect { delimiter, quote, escape } = self.dialect;
        let (mut fields, mut field, mut state) = (Vec::new(), Field::default(), State::Plain);
        let mut offset = 0;
        loop {
            let Some(byte) = self.byte(offset)? else {
                if offset == 0 {
                    return Ok(None);
                }
                if state == State::Quoted {
                    return Err(self.unclosed());
                }
                fields.push(field);
                return Ok(Some((fields, offset)));
            };
            if offset >= RECORD_BYTES_MAX {
                return Err(self.unclosed());
            }
            offset += 1;
            state = match state {
                State::Escaped { in_quotes } => {
                    field.bytes.push(byte);
                    if in_quotes { State::Quoted } else { State::Plain }
                }
                State::QuoteInQuoted if byte == quote => {
                    field.bytes.push(byte);
                    State::Quoted
                }
                State::Quoted if byte == quote => State::QuoteInQuoted,
                State::Quoted if byte == escape => State::Escaped { in_quotes: true },
                State::Quoted => {
                    field.bytes.push(byte);
                    State::Quoted
                }
                State::Plain | State::QuoteInQuoted => match byte {
                    _ if byte == delimiter => {
                        fields.push(std::mem::take(&mut field));
                        State::Plain
                    }
                    b'\n' | b'\r' => {
                        if byte == b'\r' && self.byte(offset)? == Some(b'\n') {
                            offset += 1;
                        }
                        fields.push(field);
                        return Ok(Some((fields, offset)));
                    }
                    _ if byte == quote && field.bytes.is_empty() && !field.is_quoted => {
                        field.is_quoted = true;
                        State::Quoted
                    }
                    _ if byte == escape && escape != quote => State::Escaped { in_quotes: false },
                    _ => {
                        field.bytes.push(byte);
                        State::Plain
                    }
                },
            };
        }
    }

    fn unclosed(&self) -> io::Error {
        let message = format!("the quote that opens in line {} is not closed", self.line);
        io::Error::new(io::ErrorKind::InvalidData, message)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const USUAL: Dialect = Dialect { delimiter: b',', quote: b'"', escape: b'\\' };

    /// The records of a text that comes in pieces of some bytes.
    fn records(dialect: Dialect, text: &[u8], piece: usize) -> io::Result<Vec<Record>> {
        let mut pieces = text.chunks(piece);
        let mut reader = Reader::new(dialect, |out: &mut Vec<u8>| {
            let piece = pieces.next();
            out.extend_from_slice(piece.unwrap_or_default());
            Ok(piece.is_some())
        });
        let mut all = Vec::new();
        while let Some(record) = reader.next()? {
            all.push(record);
        }
        Ok(all)
    }

    /// Each field, in `<>` if it was quoted, with its record's line.
    fn check(text: &str, expected: &[(u64, &[&str])]) {
        for piece in [1, 3, 4096] {
            let found: Vec<(u64, Vec<String>)> = records(USUAL, text.as_bytes(), piece)
                .unwrap()
                .into_iter()
                .map(|record| {
                    let fields = record.fields.into_iter().map(|field| {
                        let text = String::from_utf8(field.bytes).unwrap();
                        if field.is_quoted { format!("<{text}>") } else { text }
                    });
                    (record.line, fields.collect())
                })
                .collect();
            let expected: Vec<(u64, Vec<String>)> = expected
                .iter()
                .map(|(line, fields)| (*line, fields.iter().map(|field| (*field).to_owned()).collect()))
                .collect();
            assert_eq!(found, expected, "{text:?} in pieces of {piece}");
        }
    }

    #[test]
    fn lines_are_cut_into_fields() {
        check("a,b\nc,\n", &[(1, &["a", "b"]), (2, &["c", ""])]);
        check("a\r\n\r\nb", &[(1, &["a"]), (3, &["b"])]);
        check("\"x,\n\\\"y\"\"\",\"\"\nz\n", &[(1, &["<x,\n\"y\">", "<>"]), (3, &["z"])]);
        check("a\\,b,c\\\\d\n", &[(1, &["a,b", "c\\d"])]);
        check("a\"b\",c\n", &[(1, &["a\"b\"", "c"])]);
        check("", &[]);
    }

    #[test]
    fn a_quote_that_is_not_closed_is_an_error_with_its_line() {
        let error = records(USUAL, b"a\n\"b\nc", 2).unwrap_err();
        assert_eq!(error.to_string(), "the quote that opens in line 2 is not closed");
    }

    #[test]
    fn null_and_empty_are_told_apart() {
        let mut out = Vec::new();
        append(&mut out, &USUAL, "", &[Some(""), None, Some("x")]);
        append(&mut out, &USUAL, "none", &[Some("none"), None, Some("")]);
        assert_eq!(String::from_utf8(out).unwrap(), "\"\",,x\n\"none\",none,\"\"\n");
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(
            fields in prop::collection::vec("[a,\"'\\\\\n\r|é]{0,6}", 1..4),
            doubled in any::<bool>(),
            piece in 1usize..5,
        ) {
            let dialect = if doubled { Dialect { escape: b'"', ..USUAL } } else { USUAL };
            let mut out = Vec::new();
            let texts: Vec<Option<&str>> = fields.iter().map(|field| Some(field.as_str())).collect();
            append(&mut out, &dialect, "", &texts);
            append(&mut out, &dialect, "", &texts);
            let read = records(dialect, &out, piece).unwrap();
            prop_assert_eq!(read.len(), 2);
            for record in read {
                let found: Vec<Vec<u8>> = record.fields.into_iter().map(|field| field.bytes).collect();
                let expected: Vec<Vec<u8>> = fields.iter().map(|field| field.clone().into_bytes()).collect();
                prop_assert_eq!(found, expected);
            }
        }
    }
}
