//! Writing answers to standard output, in large pieces, by a reader that may go away.

use std::io::{self, BufWriter, StdoutLock, Write};

/// Bytes collected before they are written.
const BUFFER_BYTES: usize = 64 * 1024;

/// Standard output of one tool.
///
/// Its writes block: a tool does nothing else meanwhile.
pub(crate) struct Output {
    out: BufWriter<StdoutLock<'static>>,
}

impl Output {
    /// Takes standard output.
    pub(crate) fn new() -> Self {
        Self { out: BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock()) }
    }

    /// Writes one line.
    ///
    /// # Errors
    /// As write(2), `BrokenPipe` when the reader has seen enough.
    pub(crate) fn line(&mut self, line: &str) -> io::Result<()> {
        self.out.write_all(line.as_bytes())?;
        self.out.write_all(b"\n")
    }

    /// Writes the collected lines.
    ///
    /// # Errors
    /// As [`Self::line`].
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }
}
