//! `COPY t FROM 'file'` and `COPY t TO 'file'`: rows as lines of CSV, in and out.
//!
//! The command, its options and its files are those of cqlsh. `csv` has the lines, `parse` and the printer of
//! `value` have the values, `lane` has the connection with many requests in flight; `import` and `export` are
//! the two directions. Reference: docs/shell.md.

pub(super) mod csv;
pub(super) mod export;
pub(super) mod import;
mod lane;
mod parse;
mod progress;

use super::command::{Token, file};
use csv::Dialect;

/// Names of the options.
pub(super) const OPTION_NAMES: [&str; 24] = [
    "BEGINTOKEN",
    "BOOLSTYLE",
    "CHUNKSIZE",
    "DELIMITER",
    "ENCODING",
    "ENDTOKEN",
    "ERRFILE",
    "ESCAPE",
    "HEADER",
    "INGESTRATE",
    "MAXATTEMPTS",
    "MAXBATCHSIZE",
    "MAXERRORS",
    "MAXINSERTERRORS",
    "MAXPARSEERRORS",
    "MAXREQUESTS",
    "MAXROWS",
    "MINBATCHSIZE",
    "NULL",
    "PAGESIZE",
    "QUOTE",
    "SKIPCOLS",
    "SKIPROWS",
    "TTL",
];

/// A COPY command.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Copy {
    pub(super) keyspace: Option<String>,
    pub(super) table: String,
    /// The columns in the order of the file; `None` for all.
    pub(super) columns: Option<Vec<String>>,
    pub(super) direction: Direction,
    /// `None` for STDIN and STDOUT.
    pub(super) file: Option<String>,
    pub(super) options: Options,
}

/// The way of the rows: from a file, or to one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    From,
    To,
}

/// The options, with their defaults filled in.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Options {
    pub(super) dialect: Dialect,
    pub(super) header: bool,
    pub(super) null: String,
    pub(super) booleans: [String; 2],
    /// Rows that are read ahead of the last answer.
    pub(super) chunk_rows: usize,
    /// Rows a second; `None` for as many as possible.
    pub(super) rows_per_second: Option<u64>,
    pub(super) batch_rows_min: usize,
    pub(super) batch_rows_max: usize,
    pub(super) attempts_max: u32,
    pub(super) errors_max: Option<u64>,
    pub(super) parse_errors_max: Option<u64>,
    pub(super) insert_errors_max: Option<u64>,
    pub(super) rows_max: Option<u64>,
    pub(super) rows_skipped: u64,
    pub(super) columns_skipped: Vec<String>,
    pub(super) error_file: Option<String>,
    pub(super) ttl_seconds: Option<u32>,
    pub(super) page_rows: i32,
    pub(super) requests_max: usize,
    pub(super) begin_token: Option<i64>,
    pub(super) end_token: Option<i64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            dialect: Dialect { delimiter: b',', quote: b'"', escape: b'\\' },
            header: false,
            null: String::new(),
            booleans: ["True".to_owned(), "False".to_owned()],
            chunk_rows: 5000,
            rows_per_second: None,
            batch_rows_min: 2,
            batch_rows_max: 20,
            attempts_max: 5,
            errors_max: None,
            parse_errors_max: None,
            insert_errors_max: Some(1000),
            rows_max: None,
            rows_skipped: 0,
            columns_skipped: Vec::new(),
            error_file: None,
            ttl_seconds: None,
            page_rows: 1000,
            requests_max: 6,
            begin_token: None,
            end_token: None,
        }
    }
}

/// Options of cqlsh that would have no effect here, each with the reason.
const WITHOUT_EFFECT: [(&str, &str); 11] = [
    ("NUMPROCESSES", "there is one process, which keeps many requests in flight"),
    ("CONFIGFILE", "there are no configuration files"),
    (
        "DATETIMEFORMAT",
        "times are written as 2026-01-31 12:00:00.000+0000, and read in every form that CQL has",
    ),
    ("DECIMALSEP", "numbers are written as CQL writes them"),
    ("THOUSANDSSEP", "numbers are written as CQL writes them"),
    ("FLOATPRECISION", "numbers are written in full, so that they read back equal"),
    ("DOUBLEPRECISION", "numbers are written in full, so that they read back equal"),
    ("REPORTFREQUENCY", "progress is told once a second"),
    ("RATEFILE", "progress is told on standard error"),
    ("PREPAREDSTATEMENTS", "rows are always sent with prepared statements"),
    ("MAXOUTPUTSIZE", "all rows go to one file"),
];

/// Reads what stands behind COPY.
///
/// # Errors
/// In words for the user.
pub(super) fn read(tokens: &[Token]) -> Result<Copy, String> {
    let improper = || {
        "Improper COPY command: COPY table [(columns)] FROM|TO 'file' [WITH option = value AND ...]"
            .to_owned()
    };
    let upper = |at: usize| tokens.get(at).map_or("", |token| token.upper.as_str());
    let name = |at: usize| tokens.get(at).and_then(Token::name).ok_or_else(improper);
    let (keyspace, table, mut at) =
        if upper(1) == "." { (Some(name(0)?), name(2)?, 3) } else { (None, name(0)?, 1) };
    let mut columns = None;
    if upper(at) == "(" {
        let mut named = Vec::new();
        loop {
            named.push(name(at + 1)?);
            at += 2;
            match upper(at) {
                "," => {}
                ")" => break,
                _ => return Err(improper()),
            }
        }
        at += 1;
        columns = Some(named);
    }
    let direction = match upper(at) {
        "FROM" => Direction::From,
        "TO" => Direction::To,
        _ => return Err(improper()),
    };
    let file = match (upper(at + 1), direction) {
        ("STDIN", Direction::From) | ("STDOUT", Direction::To) => None,
        _ => Some(file(tokens.get(at + 1).ok_or_else(improper)?)?),
    };
    at += 2;
    let mut options = Options::default();
    while at < tokens.len() {
        let joined = upper(at);
        if joined != "WITH" && joined != "AND" || upper(at + 2) != "=" {
            return Err(improper());
        }
        let value = tokens.get(at + 3).ok_or_else(improper)?;
        options.set(upper(at + 1), &value.string().unwrap_or_else(|| value.source.clone()), direction)?;
        at += 4;
    }
    Ok(Copy { keyspace, table, columns, direction, file, options })
}

impl Options {
    fn set(&mut self, name: &str, value: &str, direction: Direction) -> Result<(), String> {
        if let Some((_, reason)) = WITHOUT_EFFECT.iter().find(|(known, _)| *known == name) {
            return Err(format!("COPY: {name} has no effect here: {reason}. Leave it out"));
        }
        match name {
            "HEADER" => self.header = boolean(name, value)?,
            "NULL" => value.clone_into(&mut self.null),
            "DELIMITER" => self.dialect.delimiter = character(name, value)?,
            "QUOTE" => self.dialect.quote = character(name, value)?,
            "ESCAPE" => self.dialect.escape = character(name, value)?,
            "MAXATTEMPTS" => self.attempts_max = number(name, value, 1..=1000)?,
            "ENCODING" if ["utf8", "utf-8"].contains(&value.to_ascii_lowercase().as_str()) => {}
            "ENCODING" => {
                return Err(format!("COPY: ENCODING '{value}' is not supported: files are in UTF-8"));
            }
            "BOOLSTYLE" => match value.split(',').map(str::trim).collect::<Vec<_>>()[..] {
                [yes, no] if !yes.is_empty() && !no.is_empty() && !yes.eq_ignore_ascii_case(no) => {
                    self.booleans = [yes.to_owned(), no.to_owned()];
                }
                _ => {
                    return Err(format!(
                        "COPY: BOOLSTYLE has to be two words, as in 'yes,no'; found '{value}'"
                    ));
                }
            },
            _ if direction == Direction::From => self.set_from(name, value)?,
            _ => self.set_to(name, value)?,
        }
        self.dialect.check()
    }

    fn set_from(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "CHUNKSIZE" => self.chunk_rows = number(name, value, 1..=1_000_000)?,
            "INGESTRATE" => self.rows_per_second = Some(number(name, value, 1..=u64::MAX)?),
            "MINBATCHSIZE" => self.batch_rows_min = number(name, value, 1..=65_535)?,
            "MAXBATCHSIZE" => self.batch_rows_max = number(name, value, 1..=65_535)?,
            "MAXERRORS" => self.errors_max = limit(name, value)?,
            "MAXPARSEERRORS" => self.parse_errors_max = limit(name, value)?,
            "MAXINSERTERRORS" => self.insert_errors_max = limit(name, value)?,
            "MAXROWS" => self.rows_max = limit(name, value)?,
            "SKIPROWS" => self.rows_skipped = number(name, value, 0..=u64::MAX)?,
            "SKIPCOLS" => {
                self.columns_skipped = value.split(',').map(|name| name.trim().to_owned()).collect()
            }
            "ERRFILE" => self.error_file = Some(value.to_owned()),
            "TTL" => self.ttl_seconds = Some(number(name, value, 0..=630_720_000)?),
            _ => return Err(format!("Unrecognized COPY FROM options: {}", name.to_lowercase())),
        }
        Ok(())
    }

    fn set_to(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "PAGESIZE" => self.page_rows = number(name, value, 1..=i32::MAX)?,
            "MAXREQUESTS" => self.requests_max = number(name, value, 1..=1024)?,
            "BEGINTOKEN" => self.begin_token = Some(number(name, value, i64::MIN..=i64::MAX)?),
            "ENDTOKEN" => self.end_token = Some(number(name, value, i64::MIN..=i64::MAX)?),
            _ => return Err(format!("Unrecognized COPY TO options: {}", name.to_lowercase())),
        }
        Ok(())
    }
}

fn number<T: std::str::FromStr + PartialOrd + std::fmt::Display>(
    name: &str,
    value: &str,
    range: std::ops::RangeInclusive<T>,
) -> Result<T, String> {
    let (least, greatest) = (range.start(), range.end());
    let wrong = || format!("COPY: {name} has to be a number from {least} to {greatest}; found '{value}'");
    value.parse().ok().filter(|number| range.contains(number)).ok_or_else(wrong)
}

/// A number, or none for -1.
fn limit(name: &str, value: &str) -> Result<Option<u64>, String> {
    if value == "-1" { Ok(None) } else { number(name, value, 0..=u64::MAX).map(Some) }
}

fn boolean(name: &str, value: &str) -> Result<bool, String> {
    match value.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("COPY: {name} has to be true or false; found '{value}'")),
    }
}

fn character(name: &str, value: &str) -> Result<u8, String> {
    match value.as_bytes() {
        b"\\t" => Ok(b'\t'),
        [byte] if byte.is_ascii() && !b"\r\n".contains(byte) => Ok(*byte),
        _ => Err(format!("COPY: {name} has to be one ASCII character; found '{value}'")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::command::{Command, read as read_command, tokens};
    use super::*;

    fn parse(text: &str) -> Result<Copy, String> {
        let cut = cql::split::split(text, |_| false);
        match read_command(&tokens(text, &cut.pieces[0])) {
            Some(Ok(Command::Copy(copy))) => Ok(*copy),
            Some(Err(error)) => Err(error),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn commands_and_options_are_read() {
        let copy = parse(
            "COPY ks.\"T\" (a, \"B\") FROM 'it''s.csv' WITH HEADER = true AND DELIMITER='|' AND MAXROWS=-1;",
        );
        let copy = copy.unwrap();
        assert_eq!((copy.keyspace.as_deref(), copy.table.as_str()), (Some("ks"), "T"));
        assert_eq!(copy.columns, Some(vec!["a".to_owned(), "B".to_owned()]));
        assert_eq!((copy.direction, copy.file.as_deref()), (Direction::From, Some("it's.csv")));
        assert!(
            copy.options.header && copy.options.dialect.delimiter == b'|' && copy.options.rows_max.is_none()
        );
        let copy =
            parse("copy t to stdout with pagesize = 10 and delimiter = '\\t' and begintoken = -5").unwrap();
        assert_eq!((copy.file, copy.options.page_rows, copy.options.begin_token), (None, 10, Some(-5)));
        assert_eq!(copy.options.dialect.delimiter, b'\t');
    }

    #[test]
    fn an_option_without_effect_is_an_error() {
        let check = |with: &str, expected: &str| {
            let error = parse(&format!("COPY t {with}")).unwrap_err();
            assert!(error.contains(expected), "{with}: {error}");
        };
        check("FROM 'x' WITH NUMPROCESSES = 4", "NUMPROCESSES has no effect here");
        check("FROM 'x' WITH PAGESIZE = 4", "Unrecognized COPY FROM options: pagesize");
        check("TO 'x' WITH TTL = 4", "Unrecognized COPY TO options: ttl");
        check("FROM 'x' WITH CHUNKSIZE = 0", "from 1 to 1000000");
        check("FROM 'x' WITH HEADER = maybe", "true or false");
        check("FROM 'x' WITH QUOTE = 'ab'", "one ASCII character");
        check("FROM 'x' WITH QUOTE = ','", "different");
        check("FROM x", "in single quotes");
        check("FROM 'x' HEADER = true", "Improper COPY command");
        check("FROM STDOUT", "in single quotes");
        check("(a b) FROM 'x'", "Improper COPY command");
    }

    #[test]
    fn completion_knows_options_that_exist() {
        for name in OPTION_NAMES {
            let value = match name {
                "HEADER" => "true",
                "BOOLSTYLE" => "'a,b'",
                "ENCODING" => "utf8",
                "DELIMITER" | "QUOTE" | "ESCAPE" => "'|'",
                _ => "1",
            };
            let both = ["FROM", "TO"].map(|way| parse(&format!("COPY t {way} 'x' WITH {name} = {value}")));
            assert!(both.iter().any(Result::is_ok), "{name}: {both:?}");
        }
    }
}
