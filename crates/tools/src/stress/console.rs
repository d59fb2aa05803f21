//! The output: standard output, and the files that the command line names.
//!
//! Files are written as the run goes, at the latest at the end of each interval, so that they can be
//! followed.

use std::io::Write as _;
use std::rc::Rc;

use reactor::file::{AlignedBuf, File, OpenOptions};

use super::StressError;

/// Prints a line on standard output only. A closed output does not end a run that also writes files.
pub(super) fn tell(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// A text file that grows.
pub(super) struct TextFile {
    path: String,
    file: Rc<File>,
    written: u64,
    pending: Vec<u8>,
}

impl TextFile {
    /// Makes the file, empty.
    pub(super) async fn create(path: &str) -> Result<Self, StressError> {
        let options = OpenOptions::new().write(true).create(true).truncate(true);
        let file = File::open(path, options).await.map_err(StressError::io(path))?;
        Ok(Self { path: path.to_owned(), file: Rc::new(file), written: 0, pending: Vec::new() })
    }

    pub(super) fn line(&mut self, line: &str) {
        self.pending.extend_from_slice(line.as_bytes());
        self.pending.push(b'\n');
    }

    /// Writes the collected lines.
    pub(super) async fn flush(&mut self) -> Result<(), StressError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let mut buffer = AlignedBuf::with_len(self.pending.len());
        buffer.copy_from_slice(&self.pending);
        self.pending.clear();
        let length = buffer.len() as u64;
        let (result, _) = self.file.write_at(self.written, buffer).await;
        result.map_err(StressError::io(&self.path))?;
        self.written += length;
        Ok(())
    }
}

/// The output of lines.
pub(super) struct Console {
    file: Option<TextFile>,
    /// Whether lines are discarded: a run that only warms up.
    pub(super) is_quiet: bool,
}

impl Console {
    pub(super) fn new(file: Option<TextFile>) -> Self {
        Self { file, is_quiet: false }
    }

    /// Prints a line.
    pub(super) fn line(&mut self, line: &str) {
        if self.is_quiet {
            return;
        }
        tell(line);
        if let Some(file) = &mut self.file {
            file.line(line);
        }
    }

    /// Prints several lines.
    pub(super) fn lines(&mut self, lines: &[String]) {
        lines.iter().for_each(|line| self.line(line));
    }

    /// Writes the collected lines to the file.
    pub(super) async fn flush(&mut self) -> Result<(), StressError> {
        match &mut self.file {
            Some(file) => file.flush().await,
            None => Ok(()),
        }
    }
}
