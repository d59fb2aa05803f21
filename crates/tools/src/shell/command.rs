//! The shell's own commands: which there are, and reading them.

use cql::split::{Piece, WordKind};
use wire::Consistency;

use super::complete::unquoted;
use super::copy::Copy;

/// Words with which the commands begin.
pub(super) const NAMES: [&str; 20] = [
    "CAPTURE",
    "CLEAR",
    "CLS",
    "CONSISTENCY",
    "COPY",
    "DESC",
    "DESCRIBE",
    "EXIT",
    "EXPAND",
    "HELP",
    "HISTORY",
    "LOGIN",
    "PAGING",
    "QUIT",
    "SERIAL",
    "SHOW",
    "SOURCE",
    "TIMING",
    "TRACING",
    "USE",
];

/// A command.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Command {
    Capture(Option<Capture>),
    Clear,
    /// The level, or a question for it.
    Consistency(Option<Consistency>),
    Copy(Box<Copy>),
    /// The server's statement; the word behind DESCRIBE.
    Describe(String),
    Exit,
    Expand(Option<bool>),
    /// About these topics, or about all.
    Help(Vec<String>),
    /// This many statements.
    History(Option<usize>),
    Login,
    Paging(Option<Paging>),
    SerialConsistency(Option<Consistency>),
    ShowHost,
    /// A trace, by the id of its session.
    ShowSession(String),
    ShowVersion,
    Source(String),
    Timing(Option<bool>),
    Tracing(Option<bool>),
    /// The keyspace; the server's statement too.
    Use(String),
}

/// CAPTURE with a word behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Capture {
    To(String),
    Off,
}

/// PAGING with a word behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Paging {
    On,
    Off,
    Rows(i32),
}

/// A word of a command.
#[derive(Debug, Clone)]
pub(super) struct Token {
    pub(super) kind: WordKind,
    /// As it is written.
    pub(super) source: String,
    /// In upper case.
    pub(super) upper: String,
}

impl Token {
    /// The value of a string.
    pub(super) fn string(&self) -> Option<String> {
        let inner = self.source.strip_prefix('\'')?.strip_suffix('\'')?;
        (self.kind == WordKind::String).then(|| inner.replace("''", "'"))
    }

    /// The name, as the server has it.
    pub(super) fn name(&self) -> Option<String> {
        let is_name = matches!(self.kind, WordKind::Word | WordKind::QuotedName);
        is_name.then(|| unquoted(&self.source).into_owned())
    }
}

/// Whether a statement that begins with this word ends with its line.
pub(super) fn ends_with_line(word: &str) -> bool {
    let upper = word.to_ascii_uppercase();
    NAMES.contains(&upper.as_str()) && !matches!(upper.as_str(), "COPY" | "USE")
}

/// The words of a piece of `text`.
pub(super) fn tokens(text: &str, piece: &Piece) -> Vec<Token> {
    let token = |word: &cql::split::Word| {
        let source = text[word.start..word.end].to_owned();
        Token { kind: word.kind, upper: source.to_ascii_uppercase(), source }
    };
    piece.words.iter().map(token).collect()
}

/// Reads a command; `None` if the words are a statement of the server's.
///
/// # Errors
/// A command that makes no sense, in words for its user.
pub(super) fn read(tokens: &[Token]) -> Option<Result<Command, String>> {
    let first = tokens.first()?;
    let upper: Vec<&str> = tokens.iter().skip(1).map(|token| token.upper.as_str()).collect();
    let improper = || Err(format!("Improper {} command.", first.source));
    let switch = |make: fn(Option<bool>) -> Command| match upper[..] {
        [] => Ok(make(None)),
        ["ON"] => Ok(make(Some(true))),
        ["OFF"] => Ok(make(Some(false))),
        _ => improper(),
    };
    let level =
        |words: &[&str], make: fn(Option<Consistency>) -> Command, allowed: &[Consistency]| match words {
            [] => Ok(make(None)),
            [name] => match allowed.iter().find(|level| level.name() == *name) {
                Some(level) => Ok(make(Some(*level))),
                None => improper(),
            },
            _ => improper(),
        };
    Some(match (first.upper.as_str(), &upper[..]) {
        ("CAPTURE", []) => Ok(Command::Capture(None)),
        ("CAPTURE", ["OFF"]) => Ok(Command::Capture(Some(Capture::Off))),
        ("CAPTURE", [_]) => file(&tokens[1]).map(|name| Command::Capture(Some(Capture::To(name)))),
        ("CLEAR" | "CLS", []) => Ok(Command::Clear),
        ("CONSISTENCY", rest) => level(rest, Command::Consistency, &Consistency::ALL),
        ("COPY", _) => super::copy::read(&tokens[1..]).map(|copy| Command::Copy(Box::new(copy))),
        ("DESCRIBE" | "DESC", rest) => {
            Ok(Command::Describe(rest.first().copied().unwrap_or_default().to_owned()))
        }
        ("EXIT" | "QUIT", []) => Ok(Command::Exit),
        ("EXPAND", _) => switch(Command::Expand),
        ("HELP" | "?", rest) => Ok(Command::Help(rest.iter().map(|word| (*word).to_owned()).collect())),
        ("HISTORY", []) => Ok(Command::History(None)),
        ("HISTORY", [count]) => {
            count.parse().map(|count| Command::History(Some(count))).or_else(|_| improper())
        }
        ("LOGIN", [_] | [_, _]) => Ok(Command::Login),
        ("PAGING", []) => Ok(Command::Paging(None)),
        ("PAGING", ["ON"]) => Ok(Command::Paging(Some(Paging::On))),
        ("PAGING", ["OFF"]) => Ok(Command::Paging(Some(Paging::Off))),
        ("PAGING", [rows]) => match rows.parse() {
            Ok(rows) if rows > 0 => Ok(Command::Paging(Some(Paging::Rows(rows)))),
            _ => improper(),
        },
        ("SERIAL", ["CONSISTENCY", rest @ ..]) => {
            level(rest, Command::SerialConsistency, &[Consistency::Serial, Consistency::LocalSerial])
        }
        ("SHOW", ["HOST"]) => Ok(Command::ShowHost),
        ("SHOW", ["VERSION"]) => Ok(Command::ShowVersion),
        ("SHOW", ["SESSION", id]) if uuid::Uuid::parse_str(id).is_ok() => {
            Ok(Command::ShowSession(id.to_ascii_lowercase()))
        }
        ("SOURCE", [_]) => file(&tokens[1]).map(Command::Source),
        ("TIMING", _) => switch(Command::Timing),
        ("TRACING", _) => switch(Command::Tracing),
        ("USE", [_]) => match tokens[1].name() {
            Some(name) => Ok(Command::Use(name)),
            None => return None,
        },
        ("USE", _) => return None,
        (name, _) if NAMES.contains(&name) => improper(),
        _ => return None,
    })
}

/// The file that a string names; `~/` is the home directory.
pub(super) fn file(token: &Token) -> Result<String, String> {
    let Some(name) = token.string() else {
        return Err(format!("{} is no file: a file is named in single quotes, as in 'file'", token.source));
    };
    let home = std::env::var("HOME").unwrap_or_default();
    Ok(match name.strip_prefix("~/") {
        Some(rest) if !home.is_empty() => format!("{home}/{rest}"),
        _ => name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<Result<Command, String>> {
        let cut = cql::split::split(text, ends_with_line);
        read(&tokens(text, &cut.pieces[0]))
    }

    #[test]
    fn commands_are_read() {
        let check = |text: &str, expected: Command| assert_eq!(parse(text), Some(Ok(expected)), "{text}");
        check("capture 'it''s.txt'", Command::Capture(Some(Capture::To("it's.txt".to_owned()))));
        check("CONSISTENCY local_quorum;", Command::Consistency(Some(Consistency::LocalQuorum)));
        check("serial consistency", Command::SerialConsistency(None));
        check("PAGING 20", Command::Paging(Some(Paging::Rows(20))));
        check("DESC KEYSPACES;", Command::Describe("KEYSPACES".to_owned()));
        check("use \"My\";", Command::Use("My".to_owned()));
        check("HELP copy", Command::Help(vec!["COPY".to_owned()]));
        check("exit", Command::Exit);
        assert_eq!(parse("SELECT 1;"), None);
        for wrong in
            ["PAGING 0", "CONSISTENCY MANY", "EXPAND MAYBE", "SERIAL CONSISTENCY ONE", "SHOW", "EXIT NOW"]
        {
            let word = wrong.split(' ').next().unwrap();
            assert_eq!(parse(wrong), Some(Err(format!("Improper {word} command."))), "{wrong}");
        }
        assert!(parse("SOURCE x").unwrap().unwrap_err().contains("in single quotes"));
    }

    #[test]
    fn commands_end_with_their_line() {
        for (word, expected) in
            [("paging", true), ("Desc", true), ("COPY", false), ("use", false), ("SELECT", false)]
        {
            assert_eq!(ends_with_line(word), expected, "{word}");
        }
    }
}
