//! The shell itself: lines become statements, and each statement a command of the shell's or one of the
//! server's.
//!
//! A statement that fails is told and the next one runs, at a terminal as in a file. Invariant: the settings
//! (levels, pages, keyspace) are those of `session`; `SOURCE` changes them for what follows it too.

#![allow(clippy::disallowed_types)] // nothing else runs on the shell's thread

use std::cell::RefCell;
use std::io::BufReader;
use std::pin::Pin;
use std::rc::Rc;

use cql::split::{Piece, split};
use model::type_parser::quote_identifier;
use reactor::Instant;

use super::command::{self, Capture, Command, Paging, Token};
use super::copy::export::export;
use super::copy::import::{Files, Input as CopyInput, import};
use super::copy::{Copy, Direction};
use super::error::ShellError;
use super::help;
use super::input::{Input, Line, TextInput};
use super::output::Out;
use super::schema::{self, Schema};
use super::session::{PAGE_ROWS_DEFAULT, Session, interruptible};
use super::style::BLUE;

/// Files that SOURCE may be inside of.
const SOURCE_DEPTH_MAX: usize = 16;
/// Statements that HISTORY shows.
const HISTORY_SHOWN: usize = 50;

/// A shell.
pub(super) struct Shell {
    pub(super) session: Session,
    pub(super) out: Out,
    pub(super) schema: Rc<RefCell<Schema>>,
    pub(super) is_expanded: bool,
    is_timed: bool,
    /// Whether output goes to a terminal.
    pub(super) is_read_along: bool,
    /// Whether a statement failed.
    pub(super) has_failed: bool,
    is_ending: bool,
    source_depth: usize,
}

impl Shell {
    /// A shell of this session.
    pub(super) fn new(session: Session, out: Out, is_read_along: bool) -> Self {
        Self {
            session,
            out,
            schema: Rc::default(),
            is_expanded: false,
            is_timed: false,
            is_read_along,
            has_failed: false,
            is_ending: false,
            source_depth: 0,
        }
    }

    /// Tells where the shell is connected, to somebody who begins.
    pub(super) fn greet(&mut self) {
        self.show_host();
        self.show_version();
        self.out.tell("Use HELP for help.");
    }

    fn show_host(&mut self) {
        let cluster = self.out.colored(BLUE, &self.session.server.cluster);
        self.out.tell(&format!("Connected to {cluster} at {}:{}", self.session.host, self.session.port));
    }

    fn show_version(&mut self) {
        let server = &self.session.server;
        let text = format!(
            "[ceto shell {} | Cassandra {} | CQL spec {} | Native protocol v{}]",
            env!("CARGO_PKG_VERSION"),
            server.release,
            server.cql,
            server.protocol
        );
        self.out.tell(&text);
    }

    fn prompt(&self, is_first: bool) -> String {
        match (&self.session.keyspace, is_first) {
            (None, true) => "ceto> ".to_owned(),
            (None, false) => "   ... ".to_owned(),
            (Some(keyspace), true) => format!("ceto:{keyspace}> "),
            (Some(keyspace), false) => format!("{}   ... ", " ".repeat(super::style::width(keyspace))),
        }
    }

    /// Runs all statements of an input. Boxed, since `SOURCE` comes back here.
    pub(super) fn feed<'s>(&'s mut self, input: &'s mut dyn Input) -> Pin<Box<dyn Future<Output = ()> + 's>> {
        Box::pin(async move {
            // Lines that are not run yet, and the number of the first of them.
            let (mut pending, mut first_line) = (String::new(), 1);
            while !self.is_ending && self.out.failure().is_none() {
                self.out.flush();
                if input.is_terminal() {
                    self.refresh_schema().await;
                }
                let prompt = self.prompt(pending.trim().is_empty());
                match input.line(&prompt, &pending, self.session.keyspace.as_deref()) {
                    Line::Text(text) => {
                        pending.push_str(&text);
                        pending.push('\n');
                        if !may_end(&pending, &text) {
                            continue;
                        }
                    }
                    Line::Interrupted => {
                        pending.clear();
                        continue;
                    }
                    Line::End(reason) => {
                        self.end(input, &pending, first_line, reason).await;
                        break;
                    }
                }
                let kept = self.run_whole(input, &pending, first_line).await;
                first_line += pending[..kept].matches('\n').count();
                pending.drain(..kept);
            }
            self.out.flush();
        })
    }

    /// Runs what is left at the end of an input.
    async fn end(&mut self, input: &mut dyn Input, pending: &str, first_line: usize, reason: Option<String>) {
        if input.is_terminal() {
            self.out.tell("");
        }
        let cut = split(pending, command::ends_with_line);
        let rest = cut.pieces.last().filter(|piece| !piece.is_ended);
        let line = first_line + rest.map_or(0, |piece| pending[..piece.start].matches('\n').count());
        if let Some(reason) = reason {
            self.tell_error(input, first_line + pending.matches('\n').count(), &ShellError::command(reason));
        } else if let Some(piece) = rest {
            if input.ends_statements() && cut.open.is_none() {
                self.run_piece(input, pending, piece, line).await;
            } else if !input.is_terminal() {
                self.tell_error(input, line, &ShellError::command("Incomplete statement at end of file"));
            }
        }
    }

    /// Runs the whole statements of a text; returns where the rest of it begins.
    async fn run_whole(&mut self, input: &mut dyn Input, text: &str, first_line: usize) -> usize {
        let cut = split(text, command::ends_with_line);
        for piece in cut.pieces.iter().filter(|piece| piece.is_ended) {
            let line = first_line + text[..piece.start].matches('\n').count();
            input.remember(&text[piece.start..piece.end]);
            self.run_piece(input, text, piece, line).await;
            if self.is_ending || self.out.failure().is_some() {
                break;
            }
        }
        let rest = cut.pieces.last().filter(|piece| !piece.is_ended).map(|piece| piece.start);
        rest.or(cut.open).unwrap_or(text.len())
    }

    async fn run_piece(&mut self, input: &mut dyn Input, text: &str, piece: &Piece, line: usize) {
        let tokens = command::tokens(text, piece);
        let source = &text[piece.start..piece.end];
        let began = reactor::now();
        let outcome = match command::read(&tokens) {
            None => {
                let outcome = self.run_statement(source, input).await;
                self.tell_time(began);
                outcome
            }
            Some(Err(error)) => Err(ShellError::command(error)),
            Some(Ok(command)) => Box::pin(self.run_command(command, source, &tokens, input)).await,
        };
        if let Err(error) = outcome {
            self.tell_error(input, line, &error);
        }
        self.out.flush();
    }

    fn tell_time(&mut self, began: Instant) {
        if self.is_timed {
            self.out.tell(&format!("Time: {:.3} ms", began.elapsed().as_secs_f64() * 1000.0));
        }
    }

    fn tell_error(&mut self, input: &dyn Input, line: usize, error: &ShellError) {
        self.has_failed = true;
        match input.name() {
            Some(name) => self.out.error(&format!("{name}:{line}:{error}")),
            None => self.out.error(&error.to_string()),
        }
    }

    pub(super) async fn refresh_schema(&mut self) {
        // Nothing else borrows it while the server is asked.
        let mut schema = std::mem::take(&mut *self.schema.borrow_mut());
        schema.refresh(&mut self.session).await;
        *self.schema.borrow_mut() = schema;
    }

    async fn run_command(
        &mut self,
        command: Command,
        source: &str,
        tokens: &[Token],
        input: &mut dyn Input,
    ) -> Result<(), ShellError> {
        match command {
            Command::Capture(capture) => self.capture(capture)?,
            Command::Clear => self.out.tell("\x1b[H\x1b[2J\x1b[3J"),
            Command::Copy(copy) => return self.copy(*copy, input).await,
            Command::Describe(what) => {
                let began = reactor::now();
                let outcome = self.describe(source, &what).await;
                self.tell_time(began);
                return outcome;
            }
            Command::Exit => self.is_ending = true,
            Command::Help(topics) => {
                for text in help::texts(&topics) {
                    self.out.tell(&text);
                }
            }
            Command::History(count) => {
                for statement in input.history(count.unwrap_or(HISTORY_SHOWN)) {
                    self.out.tell(&super::style::harmless(&statement));
                }
            }
            Command::Login => self.login(tokens).await?,
            Command::ShowHost => self.show_host(),
            Command::ShowVersion => self.show_version(),
            Command::ShowSession(id) => {
                let id =
                    uuid::Uuid::parse_str(&id).map_err(|error| ShellError::command(error.to_string()))?;
                return self.show_trace(id.into_bytes(), input.is_terminal()).await;
            }
            Command::Source(name) => return self.source(&name).await,
            Command::Use(keyspace) => {
                let used = self.session.query(source, None).await?;
                if let wire::client::ResponseBody::SetKeyspace(name) = used.read()?.body {
                    self.session.keyspace = Some(name.to_owned());
                } else {
                    self.session.keyspace = Some(keyspace);
                }
            }
            setting => self.set(setting),
        }
        Ok(())
    }

    /// Carries out a command that asks for a setting or changes it.
    fn set(&mut self, command: Command) {
        let session = &mut self.session;
        let text = match command {
            Command::Consistency(None) => {
                format!("Current consistency level is {}.", session.consistency.name())
            }
            Command::Consistency(Some(level)) => {
                session.consistency = level;
                format!("Consistency level set to {}.", level.name())
            }
            Command::SerialConsistency(None) => {
                format!("Current serial consistency level is {}.", session.serial_consistency.name())
            }
            Command::SerialConsistency(Some(level)) => {
                session.serial_consistency = level;
                format!("Serial consistency level set to {}.", level.name())
            }
            Command::Expand(wanted) => switch("EXPAND", &mut self.is_expanded, wanted),
            Command::Timing(wanted) => switch("TIMING", &mut self.is_timed, wanted),
            Command::Tracing(wanted) => switch("TRACING", &mut session.is_traced, wanted),
            Command::Paging(wanted) => paging(&mut session.page_rows, wanted),
            _ => return,
        };
        self.out.tell(&text);
    }

    fn capture(&mut self, capture: Option<Capture>) -> Result<(), ShellError> {
        let captured = self.out.captured().map(str::to_owned);
        match (capture, captured) {
            (None, Some(name)) => self.out.tell(&format!("Currently capturing query output to '{name}'.")),
            (None, None) => self.out.tell("Currently not capturing query output."),
            (Some(Capture::Off), Some(_)) => self.out.release(),
            (Some(Capture::Off), None) => return Err(ShellError::command("Not currently capturing output.")),
            (Some(Capture::To(_)), Some(name)) => {
                let text = format!("Already capturing output to {name}. Use CAPTURE OFF to disable.");
                return Err(ShellError::command(text));
            }
            (Some(Capture::To(name)), None) => {
                let opened = self.out.capture(&name);
                opened.map_err(|error| {
                    ShellError::command(format!("Could not open '{name}' for append: {error}"))
                })?;
                self.out.tell(&format!("Now capturing query output to '{name}'."));
            }
        }
        Ok(())
    }

    /// LOGIN: another user, where the server has users.
    async fn login(&mut self, tokens: &[Token]) -> Result<(), ShellError> {
        if !self.session.server.has_users {
            let text = "LOGIN has no effect: this server asks nobody for a user, so there are no roles to log in as.";
            self.out.tell(text);
            return Ok(());
        }
        let name = tokens.get(1).and_then(|token| token.string().or_else(|| Some(token.source.clone())));
        let Some(password) = tokens.get(2).and_then(Token::string) else {
            return Err(ShellError::command("LOGIN needs the password too: LOGIN user 'password'"));
        };
        self.session.login(name, Some(password)).await
    }

    async fn source(&mut self, name: &str) -> Result<(), ShellError> {
        if self.source_depth >= SOURCE_DEPTH_MAX {
            return Err(ShellError::command(format!(
                "SOURCE is nested in more than {SOURCE_DEPTH_MAX} files"
            )));
        }
        let file = std::fs::File::open(name);
        let file = file.map_err(|error| ShellError::command(format!("Could not open '{name}': {error}")))?;
        self.source_depth += 1;
        let mut input = TextInput::new(BufReader::new(file), Some(name.to_owned()));
        self.feed(&mut input).await;
        self.source_depth -= 1;
        // EXIT ends the file, not the shell.
        self.is_ending = false;
        Ok(())
    }

    async fn copy(&mut self, copy: Copy, input: &mut dyn Input) -> Result<(), ShellError> {
        let keyspace = copy.keyspace.clone().or_else(|| self.session.keyspace.clone());
        let keyspace = keyspace.ok_or_else(|| ShellError::command("Not in any keyspace."))?;
        let table = schema::columns_of(&mut self.session, &keyspace, &copy.table).await?;
        if table.is_empty() {
            let name = format!("{}.{}", quote_identifier(&keyspace), quote_identifier(&copy.table));
            return Err(ShellError::command(format!("Table {name} not found")));
        }
        let began = reactor::now();
        let (session, out) = (&self.session, &mut self.out);
        let outcome = match (copy.direction, &copy.file) {
            (Direction::To, _) => interruptible(export(session, out, (copy, &keyspace), &table)).await,
            (Direction::From, Some(name)) => {
                let files = Files::open(name).map_err(ShellError::command)?;
                let all = import(session, out, (copy, &keyspace), &table, CopyInput::Files(files));
                interruptible(all).await.map(|done| done.map(|is_all| self.has_failed |= !is_all))
            }
            (Direction::From, None) => {
                out.tell("[Use \\. on a line by itself to end input]");
                out.flush();
                let lines = CopyInput::Standard(Box::new(|piece: &mut Vec<u8>| next_line(input, piece)));
                let all = import(session, out, (copy, &keyspace), &table, lines);
                interruptible(all).await.map(|done| done.map(|is_all| self.has_failed |= !is_all))
            }
        };
        self.tell_time(began);
        outcome.unwrap_or(Err(ShellError::Interrupted))
    }
}

/// Whether a statement of the text may end in its last line. A long statement is not cut again for each of
/// its lines.
fn may_end(text: &str, last_line: &str) -> bool {
    let begin = text.trim_start();
    let is_comment = ["--", "//", "/*"].iter().any(|opening| begin.starts_with(opening));
    let ends_with_line = || begin.split_whitespace().next().is_none_or(command::ends_with_line);
    last_line.contains(';') || is_comment || ends_with_line()
}

/// Appends the next line of COPY's input; false at its end.
fn next_line(input: &mut dyn Input, piece: &mut Vec<u8>) -> std::io::Result<bool> {
    match input.line("[copy] ", "", None) {
        Line::Text(text) if text.trim_end_matches('\r') == "\\." => Ok(false),
        Line::Text(text) => {
            piece.extend_from_slice(text.as_bytes());
            piece.push(b'\n');
            Ok(true)
        }
        Line::End(None) => Ok(false),
        Line::End(Some(reason)) => Err(std::io::Error::other(reason)),
        Line::Interrupted => Err(std::io::Error::other("interrupted")),
    }
}

/// Changes a switch, or asks for it; returns what is told of it.
fn switch(name: &str, current: &mut bool, wanted: Option<bool>) -> String {
    let word = |is_on: bool| if is_on { "ON" } else { "OFF" };
    match wanted {
        None => format!("{name} is {}", word(*current)),
        Some(wanted) if wanted == *current => format!("{name} is already {}", word(wanted)),
        Some(wanted) => {
            *current = wanted;
            format!("{name} set to {}", word(wanted))
        }
    }
}

fn paging(page_rows: &mut Option<i32>, wanted: Option<Paging>) -> String {
    let size = |rows: i32| format!("Page size: {rows}");
    match (wanted, *page_rows) {
        (None, Some(rows)) => format!("PAGING is ON\n{}", size(rows)),
        (None, None) => "PAGING is OFF".to_owned(),
        (Some(Paging::On), Some(rows)) => format!("PAGING is already ON\n{}", size(rows)),
        (Some(Paging::On), None) => {
            *page_rows = Some(PAGE_ROWS_DEFAULT);
            format!("PAGING set to ON\n{}", size(PAGE_ROWS_DEFAULT))
        }
        (Some(Paging::Off), None) => "PAGING is already OFF".to_owned(),
        (Some(Paging::Off), Some(_)) => {
            *page_rows = None;
            "PAGING set to OFF".to_owned()
        }
        (Some(Paging::Rows(rows)), _) => {
            *page_rows = Some(rows);
            size(rows)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_tell_what_they_are() {
        let mut is_on = false;
        assert_eq!(switch("EXPAND", &mut is_on, None), "EXPAND is OFF");
        assert_eq!(switch("EXPAND", &mut is_on, Some(true)), "EXPAND set to ON");
        assert_eq!(switch("EXPAND", &mut is_on, Some(true)), "EXPAND is already ON");
        assert!(is_on);
        let mut rows = Some(100);
        assert_eq!(paging(&mut rows, None), "PAGING is ON\nPage size: 100");
        assert_eq!(paging(&mut rows, Some(Paging::Rows(7))), "Page size: 7");
        assert_eq!(paging(&mut rows, Some(Paging::Off)), "PAGING set to OFF");
        assert_eq!(rows, None);
        assert_eq!(paging(&mut rows, Some(Paging::On)), "PAGING set to ON\nPage size: 100");
    }

    #[test]
    fn lines_of_copy_end_with_their_mark() {
        let mut input = TextInput::new(&b"1,a\n\\.\n2,b\n"[..], None);
        let mut piece = Vec::new();
        assert!(next_line(&mut input, &mut piece).unwrap());
        assert!(!next_line(&mut input, &mut piece).unwrap());
        assert_eq!(piece, b"1,a\n");
    }
}
