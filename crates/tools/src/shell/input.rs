//! The shell's inputs: a terminal with editing, history and completion, or a text.

use std::cell::RefCell;
use std::io::BufRead;
use std::path::PathBuf;
use std::rc::Rc;

use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::config::{CompletionType, Config};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::{FileHistory, History, SearchDirection};
use rustyline::validate::Validator;
use rustyline::{Context, Editor, Helper};

use super::complete;
use super::schema::Schema;

/// Statements that the history keeps.
const HISTORY_MAX: usize = 1000;

/// The next line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Text(String),
    /// Ctrl-C.
    Interrupted,
    /// No more lines, for a reason if that is one to tell.
    End(Option<String>),
}

/// A source of lines.
pub(super) trait Input {
    /// The next line; a terminal shows the prompt. `before` has the earlier lines of the statement.
    fn line(&mut self, prompt: &str, before: &str, keyspace: Option<&str>) -> Line;

    /// Its name in errors, if errors have a name and a line.
    fn name(&self) -> Option<&str> {
        None
    }

    /// Whether a statement without `;` at the end of the text is whole.
    fn ends_statements(&self) -> bool {
        false
    }

    /// Whether somebody sits there.
    fn is_terminal(&self) -> bool {
        false
    }

    /// Keeps a statement in the history.
    fn remember(&mut self, _statement: &str) {}

    /// The last statements of the history, oldest first.
    fn history(&self, _count: usize) -> Vec<String> {
        Vec::new()
    }
}

/// A text.
pub(super) struct TextInput<R> {
    reader: R,
    name: Option<String>,
    is_at_start: bool,
    number: usize,
}

impl<R: BufRead> TextInput<R> {
    /// A text with the name of its source in errors, or without.
    pub(super) fn new(reader: R, name: Option<String>) -> Self {
        Self { reader, name, is_at_start: true, number: 0 }
    }
}

impl<R: BufRead> Input for TextInput<R> {
    fn line(&mut self, _prompt: &str, _before: &str, _keyspace: Option<&str>) -> Line {
        let mut bytes = Vec::new();
        self.number += 1;
        match self.reader.read_until(b'\n', &mut bytes) {
            Ok(0) => return Line::End(None),
            Ok(_) => {}
            Err(error) => return Line::End(Some(format!("cannot read: {error}"))),
        }
        if bytes.ends_with(b"\n") {
            bytes.pop();
        }
        match String::from_utf8(bytes) {
            Ok(text) => {
                // The mark with which some editors begin a file.
                let is_first = std::mem::take(&mut self.is_at_start);
                let text =
                    text.strip_prefix('\u{feff}').filter(|_| is_first).map(str::to_owned).unwrap_or(text);
                Line::Text(text)
            }
            Err(_) => Line::End(Some(format!("line {} is no UTF-8", self.number))),
        }
    }

    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn ends_statements(&self) -> bool {
        self.name.is_none()
    }
}

/// A terminal.
pub(super) struct Terminal {
    editor: Editor<Completion, FileHistory>,
    history: Option<PathBuf>,
    last: String,
}

impl Terminal {
    /// The terminal of standard input, with the history of earlier sessions.
    ///
    /// # Errors
    /// If there is no such terminal.
    pub(super) fn new(schema: Rc<RefCell<Schema>>) -> Result<Self, ReadlineError> {
        let config = Config::builder()
            .max_history_size(HISTORY_MAX)?
            .history_ignore_space(true)
            .completion_type(CompletionType::List)
            .auto_add_history(false)
            .build();
        let mut editor = Editor::with_config(config)?;
        let files = FilenameCompleter::new();
        editor.set_helper(Some(Completion { schema, files, before: String::new(), keyspace: None }));
        let history = history_file();
        if let Some(path) = &history {
            // None is there at first.
            let _ = editor.load_history(path);
        }
        Ok(Self { editor, history, last: String::new() })
    }
}

/// `$CETO_SHELL_HISTORY`, or a file below the home directory, whose folder is made. `None` without a home
/// directory, for an empty name, and where the folder cannot be made.
#[allow(clippy::disallowed_methods)] // nothing else runs on the shell's thread
fn history_file() -> Option<PathBuf> {
    if let Some(name) = std::env::var_os("CETO_SHELL_HISTORY") {
        return (!name.is_empty()).then(|| name.into());
    }
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
    let folder = PathBuf::from(home).join(".local/state/ceto");
    std::fs::create_dir_all(&folder).ok()?;
    Some(folder.join("shell_history"))
}

impl Input for Terminal {
    fn line(&mut self, prompt: &str, before: &str, keyspace: Option<&str>) -> Line {
        if let Some(helper) = self.editor.helper_mut() {
            before.clone_into(&mut helper.before);
            helper.keyspace = keyspace.map(str::to_owned);
        }
        match self.editor.readline(prompt) {
            Ok(line) => Line::Text(line),
            Err(ReadlineError::Interrupted) => Line::Interrupted,
            Err(ReadlineError::Eof) => Line::End(None),
            Err(error) => Line::End(Some(format!("cannot read from the terminal: {error}"))),
        }
    }

    fn is_terminal(&self) -> bool {
        true
    }

    fn remember(&mut self, statement: &str) {
        // Nobody wants to find a password there.
        if statement == self.last || statement.to_ascii_uppercase().contains("PASSWORD") {
            return;
        }
        statement.clone_into(&mut self.last);
        let _ = self.editor.add_history_entry(statement);
        if let Some(path) = &self.history {
            // A history that cannot be written is no reason to disturb.
            let _ = self.editor.append_history(path);
        }
    }

    fn history(&self, count: usize) -> Vec<String> {
        let history = self.editor.history();
        let first = history.len().saturating_sub(count);
        let entry = |at| history.get(at, SearchDirection::Forward).ok().flatten();
        (first..history.len()).filter_map(entry).map(|found| found.entry.into_owned()).collect()
    }
}

/// The editor's helper: it answers when TAB is pressed.
struct Completion {
    schema: Rc<RefCell<Schema>>,
    files: FilenameCompleter,
    /// The earlier lines of the statement.
    before: String,
    keyspace: Option<String>,
}

impl Completer for Completion {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        at: usize,
        context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (head, tail) = line.split_at(at);
        let before = format!("{}{head}", self.before);
        if complete::names_a_file(&before) {
            return self.files.complete(line, at, context);
        }
        let (start, offers) =
            complete::offers(&before, tail, &self.schema.borrow(), self.keyspace.as_deref());
        // An earlier line cannot be changed any more.
        let Some(start) = start.checked_sub(self.before.len()) else { return Ok((at, Vec::new())) };
        let pair = |offer: complete::Offer| Pair { display: offer.shown, replacement: offer.text };
        Ok((start, offers.into_iter().map(pair).collect()))
    }
}

impl Hinter for Completion {
    type Hint = String;
}

impl Highlighter for Completion {}

impl Validator for Completion {}

impl Helper for Completion {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_ends_at_what_is_no_text() {
        let mut input = TextInput::new(&b"\xef\xbb\xbfa\nb\r\n\xff\nc\n"[..], Some("x.cql".to_owned()));
        let mut next = || input.line("", "", None);
        assert_eq!(next(), Line::Text("a".to_owned()));
        assert_eq!(next(), Line::Text("b\r".to_owned()));
        assert_eq!(next(), Line::End(Some("line 3 is no UTF-8".to_owned())));
    }
}
