//! The public readers of a table file: of one partition, or of a run of partitions.

use std::rc::Rc;

use model::Unfiltered;
use model::deletion::DeletionTime;
use model::row::RowView;
use model::token::{Token, murmur3_token};

use super::long_rows::RowRoom;
use super::stream::{AtHand, Stream};
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

    /// The static row, if it is not empty.
    pub fn static_row(&self) -> Option<RowView<'_>> {
        self.stream.static_row()
    }

    /// The next row or change of the range deletion in force, in reading order; `None` at the end.
    ///
    /// The result is borrowed until the next call. A deletion in force is opened and closed at the ends of
    /// each slice.
    ///
    /// # Errors
    /// [`SstableError::Io`] and [`SstableError::Corrupt`]; the reader is then unusable.
    pub async fn next(&mut self) -> Result<Option<Unfiltered<'_>>, SstableError> {
        self.stream.next().await
    }

    /// As [`PartitionReader::next`] without waiting for the disk.
    ///
    /// # Errors
    /// As [`PartitionReader::next`].
    #[inline]
    pub fn next_at_hand(&mut self) -> Result<AtHand<'_>, SstableError> {
        self.stream.next_at_hand()
    }

    /// Reads the data that [`PartitionReader::next_at_hand`] lacked.
    ///
    /// # Errors
    /// As [`PartitionReader::next`].
    pub async fn fetch(&mut self) -> Result<(), SstableError> {
        self.stream.fetch().await
    }

    /// The row that was returned last, until the next call for one.
    #[inline]
    pub fn row(&self) -> (&[u8], RowView<'_>) {
        self.stream.row()
    }
}

/// Partitions of a table file one after another, each cut to the same slices.
#[derive(Debug)]
pub struct Scanner {
    stream: Stream,
    end: PartitionBound,
    /// Offset of the next partition; `None` until the current one is read or skipped to its end.
    next_at: Option<u64>,
    length: u64,
    /// Offset of the current partition.
    at: u64,
    token: Token,
}

impl Scanner {
    pub(crate) fn new(stream: Stream, end: PartitionBound, start: Option<u64>, length: u64) -> Self {
        Self { stream, end, next_at: Some(start.unwrap_or(length)), length, at: 0, token: Token::MINIMUM }
    }

    /// Moves to the next partition, skipping the rest of the current one; returns false at the end of the
    /// range.
    ///
    /// # Errors
    /// [`SstableError::Io`] and [`SstableError::Corrupt`]; the scanner is then unusable.
    #[inline]
    pub async fn next_partition(&mut self) -> Result<bool, SstableError> {
        match self.next_partition_at_hand()? {
            Some(more) => Ok(more),
            // Boxed, so that the future of a scan that does not wait stays small.
            None => Box::pin(self.read_partition()).await,
        }
    }

    /// As [`Scanner::next_partition`] without waiting for the disk; `None` if the disk has to be read.
    fn next_partition_at_hand(&mut self) -> Result<Option<bool>, SstableError> {
        let Some(at) = self.next_at.or_else(|| self.stream.behind_end()) else { return Ok(None) };
        if at < self.length && !self.stream.open_at_hand(at)? {
            return Ok(None);
        }
        Ok(Some(self.at_partition(at)))
    }

    async fn read_partition(&mut self) -> Result<bool, SstableError> {
        let at = match self.next_at.take() {
            Some(at) => at,
            None => self.stream.skip_rest().await?,
        };
        if at < self.length {
            self.stream.open_partition(at).await?;
        }
        Ok(self.at_partition(at))
    }

    /// Whether the partition that was opened at `at` is in the range.
    fn at_partition(&mut self, at: u64) -> bool {
        self.at = at;
        if at < self.length {
            self.token = murmur3_token(self.stream.key());
            if !self.end.is_before(self.token, self.stream.key()) {
                self.next_at = None;
                return true;
            }
        }
        self.next_at = Some(self.length);
        false
    }

    /// Takes memory for long rows from `room` from now on; those before gave theirs back.
    pub fn set_room(&mut self, room: Option<&Rc<RowRoom>>) {
        self.stream.set_room(room);
    }

    /// Bytes of data in memory, those included that are being read.
    pub fn bytes_in_memory(&self) -> usize {
        self.stream.bytes_in_memory()
    }

    /// Offset of the current partition in the uncompressed data.
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

    /// The static row of the current partition, if it is not empty.
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

    /// As [`Scanner::next`] without waiting for the disk.
    ///
    /// # Errors
    /// As [`PartitionReader::next`].
    #[inline]
    pub fn next_at_hand(&mut self) -> Result<AtHand<'_>, SstableError> {
        self.stream.next_at_hand()
    }

    /// Reads the data that [`Scanner::next_at_hand`] lacked.
    ///
    /// # Errors
    /// As [`PartitionReader::next`].
    pub async fn fetch(&mut self) -> Result<(), SstableError> {
        self.stream.fetch().await
    }

    /// The row that was returned last, until the next call for one.
    #[inline]
    pub fn row(&self) -> (&[u8], RowView<'_>) {
        self.stream.row()
    }
}
