//! The shell's outputs: results to standard output or to the file of CAPTURE, errors to standard error.

#![allow(clippy::disallowed_types)] // nothing else runs on the shell's thread

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};

use super::style::{Color, RED, Text};

/// The outputs of a shell.
pub(super) struct Out {
    standard: BufWriter<io::Stdout>,
    /// The file that takes results, and its name.
    captured: Option<(String, BufWriter<File>)>,
    /// Whether lines to a terminal have colors.
    has_color: bool,
    /// The first write that failed. Nothing is written any more then, and the shell ends.
    failed: Option<io::Error>,
}

impl Out {
    /// The process' own outputs.
    pub(super) fn new(has_color: bool) -> Self {
        Self { standard: BufWriter::new(io::stdout()), captured: None, has_color, failed: None }
    }

    /// Whether results have colors: a file has none.
    pub(super) fn has_color(&self) -> bool {
        self.has_color && self.captured.is_none()
    }

    /// Writes a line of a result.
    pub(super) fn line(&mut self, line: &str) {
        let written = match &mut self.captured {
            Some((_, file)) => writeln!(file, "{line}"),
            None => writeln!(self.standard, "{line}"),
        };
        self.note(written);
    }

    /// Writes a line that is no result, to standard output.
    pub(super) fn tell(&mut self, line: &str) {
        let written = writeln!(self.standard, "{line}");
        self.note(written);
    }

    /// A text in a color, if there are colors.
    pub(super) fn colored(&self, color: Color, text: &str) -> String {
        Text::of(self.has_color(), color, text).text
    }

    /// Writes an error, behind everything written before.
    pub(super) fn error(&mut self, line: &str) {
        self.flush();
        let line = Text::of(self.has_color, RED, line).text;
        let _ = writeln!(io::stderr(), "{line}");
    }

    /// Writes what was collected.
    pub(super) fn flush(&mut self) {
        let written = self.standard.flush();
        self.note(written);
        if let Some((_, file)) = &mut self.captured {
            let written = file.flush();
            self.note(written);
        }
    }

    fn note(&mut self, written: io::Result<()>) {
        if let Err(error) = written {
            self.failed.get_or_insert(error);
        }
    }

    /// Whether a write failed; a reader that has seen enough is no failure to tell of.
    pub(super) fn failure(&self) -> Option<&io::Error> {
        self.failed.as_ref()
    }

    /// The file that takes results.
    pub(super) fn captured(&self) -> Option<&str> {
        self.captured.as_ref().map(|(name, _)| name.as_str())
    }

    /// Has results appended to a file.
    ///
    /// # Errors
    /// As open(2).
    pub(super) fn capture(&mut self, name: &str) -> io::Result<()> {
        let file = OpenOptions::new().append(true).create(true).open(name)?;
        self.captured = Some((name.to_owned(), BufWriter::new(file)));
        Ok(())
    }

    /// Has results go to standard output again.
    pub(super) fn release(&mut self) {
        self.flush();
        self.captured = None;
    }
}
