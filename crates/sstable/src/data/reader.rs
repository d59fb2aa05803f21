//! What readers of a table file hold: one partition, or a run of them.

use model::Unfiltered;
use model::deletion::DeletionTime;
use model::row::RowView;
use model::token::{Token, murmur3_token};

use super::stream::Stream;
use crate::error::SstableError;
use crate::scan::PartitionBound;

/// One partition of a table file, cut to slices.
#[derive(Debug)]
pub struct PartitionReader {
    stream: Stream,
}

impl PartitionReader {
    pub(crate) fn new(stream: Stream) -> Self {
        Self { stream }
    }

    /// Stored bytes of the partition key.
    pub fn key(&self) -> &[u8] {
        self.stream.key()
    }

    /// Deletion of the whole partition.
    pub fn deletion(&self) -> DeletionTime {
        self.stream.deletion()
    }

    /// The static row, if it says anything.
    pub fn static_row(&self) -> Option<RowView<'_>> {
        self.stream.static_row()
    }

    /// The next row or change of the range deletion in force, in reading order; `None` at the end.
    ///
    /// What is lent stays until the next call. A deletion in force is opened and closed at the ends of each slice.
    ///
    /// # Errors
    /// [`SstableError::Io`] and [`SstableError::Corrupt`]; the reader is then of no further use.
    pub async fn next(&mut self) -> Result<Option<Unfiltered<'_>>, SstableError> {
        self.stream.next().await
    }
}

/// Partitions of a table file one after another, each cut to the same slices.
#[derive(Debug)]
pub struct Scanner {
    stream: Stream,
    end: PartitionBound,
    /// Where the next partition starts; `None` until the current one is read or skipped to its end.
    next_at: Option<u64>,
    length: u64,
    /// Where the current partition starts.
    at: u64,
    token: Token,
}

impl Scanner {
    pub(crate) fn new(stream: Stream, end: PartitionBound, start: Option<u64>, length: u64) -> Self {
        Self { stream, end, next_at: Some(start.unwrap_or(length)), length, at: 0, token: Token::MINIMUM }
    }

    /// Moves to the next partition, over what is left of the current one; says no at the end of the range.
    ///
    /// # Errors
    /// [`SstableError::Io`] and [`SstableError::Corrupt`]; the scanner is then of no further use.
    pub async fn next_partition(&mut self) -> Result<bool, SstableError> {
        let at = match self.next_at.take() {
            Some(at) => at,
            None => self.stream.skip_rest().await?,
        };
        self.at = at;
        if at >= self.length {
            self.next_at = Some(self.length);
            return Ok(false);
        }
        self.stream.open_partition(at).await?;
        self.token = murmur3_token(self.stream.key());
        if self.end.is_before(self.token, self.stream.key()) {
            self.next_at = Some(self.length);
            return Ok(false);
        }
        Ok(true)
    }

    /// Where the current partition starts in the uncompressed data.
    pub(crate) fn position(&self) -> u64 {
        self.at
    }

    /// Token of the current partition.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Stored key of the current partition.
    pub fn key(&self) -> &[u8] {
        self.stream.key()
    }

    /// Deletion of the whole current partition.
    pub fn deletion(&self) -> DeletionTime {
        self.stream.deletion()
    }

    /// The static row of the current partition, if it says anything.
    pub fn static_row(&self) -> Option<RowView<'_>> {
        self.stream.static_row()
    }

    /// The next row or change of the current partition, `None` at its end; as [`PartitionReader::next`].
    ///
    /// # Errors
    /// As [`PartitionReader::next`].
    pub async fn next(&mut self) -> Result<Option<Unfiltered<'_>>, SstableError> {
        self.stream.next().await
    }
}
