//! A file of numbered records that only grows: the format under group 0's files and the manifest.
//!
//! ```text
//! file   := magic[8] record* zero*
//! record := number:u64 length:u32 crc:u32 payload[length]     little endian; numbers count from 0
//! crc    := CRC-32 of number, length and payload
//! ```
//! Invariant: a record is durable before the next one is begun, so only the last one can be torn. A damaged
//! record that is followed by an intact one is therefore damage, and never taken for the end.
//! The logs of `cluster` are files of this kind too, which is why the module is public.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use reactor::Semaphore;
use reactor::file::{AlignedBuf, File, OpenOptions};

use crate::error::StorageError;

const MAGIC_BYTES: usize = 8;
const HEAD_BYTES: usize = 16;
/// Largest file that is read.
const FILE_BYTES_MAX: usize = 1 << 30;
/// Space that a reserving file keeps behind its end.
const RESERVE_BYTES: u64 = 64 << 10;

/// The first eight bytes of a file: its kind and version.
pub type Magic = [u8; MAGIC_BYTES];

/// Contents of a file.
#[derive(Debug)]
pub struct Parsed<'b> {
    /// Payloads of the intact records, in order.
    pub payloads: Vec<&'b [u8]>,
    /// Offsets at which they begin.
    pub offsets: Vec<usize>,
    /// Offset of the end of the last intact record.
    pub end: usize,
    /// Whether bytes behind the end are not zero: the last append was cut off.
    pub is_torn: bool,
}

/// Place and kind of a damage.
#[derive(Debug)]
pub struct Damaged {
    /// Offset of the first byte that is not right.
    pub offset: usize,
    /// The kind of damage, for the error of the caller.
    pub reason: String,
}

/// Parses the bytes of a file.
///
/// # Errors
/// [`Damaged`] for another magic, and if an intact record follows an invalid one.
pub fn parse<'b>(bytes: &'b [u8], magic: &Magic) -> Result<Parsed<'b>, Damaged> {
    if !bytes.starts_with(magic) {
        let name = String::from_utf8_lossy(magic).trim_end().to_owned();
        return Err(Damaged { offset: 0, reason: format!("it does not begin with {name:?}") });
    }
    let mut parsed = Parsed { payloads: Vec::new(), offsets: Vec::new(), end: MAGIC_BYTES, is_torn: false };
    while let Some((number, payload, end)) = record_at(bytes, parsed.end) {
        if number != parsed.payloads.len() as u64 {
            let reason = format!("record {number} stands where {} should", parsed.payloads.len());
            return Err(Damaged { offset: parsed.end, reason });
        }
        parsed.payloads.push(payload);
        parsed.offsets.push(parsed.end);
        parsed.end = end;
    }
    let next = parsed.payloads.len() as u64;
    // The number is compared first: a checksum is computed only for a possible later record.
    let is_later = |place: usize| {
        bytes
            .get(place..place + 8)
            .map(|number| u64::from_le_bytes(number.try_into().expect("eight bytes")))
            .is_some_and(|number| number > next && number <= next + bytes.len() as u64)
            && record_at(bytes, place).is_some()
    };
    if (parsed.end + 1..bytes.len()).any(is_later) {
        let reason = "a record is damaged and intact ones follow".to_owned();
        return Err(Damaged { offset: parsed.end, reason });
    }
    parsed.is_torn = bytes[parsed.end..].iter().any(|byte| *byte != 0);
    Ok(parsed)
}

/// The bytes of a file with these payloads.
pub fn encode(magic: &Magic, payloads: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut bytes = magic.to_vec();
    for (number, payload) in payloads.into_iter().enumerate() {
        append_record(&mut bytes, number as u64, &payload);
    }
    bytes
}

fn append_record(out: &mut Vec<u8>, number: u64, payload: &[u8]) {
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&crc(number, payload).to_le_bytes());
    out.extend_from_slice(payload);
}

fn crc(number: u64, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number.to_le_bytes());
    hasher.update(&(payload.len() as u32).to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

/// The record at `at`: its number, its payload and its end.
fn record_at(bytes: &[u8], at: usize) -> Option<(u64, &[u8], usize)> {
    let head = bytes.get(at..at.checked_add(HEAD_BYTES)?)?;
    let number = u64::from_le_bytes(head[..8].try_into().expect("eight bytes"));
    let length = u32::from_le_bytes(head[8..12].try_into().expect("four bytes")) as usize;
    let end = (at + HEAD_BYTES).checked_add(length)?;
    let payload = bytes.get(at + HEAD_BYTES..end)?;
    let recorded = u32::from_le_bytes(head[12..16].try_into().expect("four bytes"));
    (recorded == crc(number, payload)).then_some((number, payload, end))
}

/// Reads a whole file of records.
///
/// # Errors
/// File errors.
pub async fn read(path: &Path) -> Result<Vec<u8>, StorageError> {
    reactor::file::read_all(path, FILE_BYTES_MAX).await.map_err(StorageError::of("read", path))
}

/// A file of records, open for appending.
pub struct RecordFile {
    path: PathBuf,
    file: File,
    end: Cell<End>,
    /// Bytes of the file, if it keeps space behind its end.
    reserved: Option<Cell<u64>>,
    turn: Semaphore,
}

#[derive(Clone, Copy)]
struct End {
    offset: u64,
    next: u64,
    /// Whether a write failed and the bytes behind `offset` are unknown: nothing more is appended.
    dead: bool,
}

impl RecordFile {
    /// Opens a file whose `bytes` were `parsed`; a torn last record is cut off, durably. A `reserving` file
    /// keeps space behind its end, so that records about freed space can be written on a full disk.
    ///
    /// # Errors
    /// File errors.
    pub async fn open(
        path: &Path,
        bytes: &[u8],
        parsed: &Parsed<'_>,
        reserving: bool,
    ) -> Result<Self, StorageError> {
        let options = OpenOptions::new().read(true).write(true);
        let file = File::open(path, options).await.map_err(StorageError::of("open", path))?;
        let mut size = bytes.len() as u64;
        if parsed.is_torn {
            reactor::warn!("the last record of a file is torn and is cut";
                path = path.display(), offset = parsed.end);
        }
        if parsed.is_torn || !reserving && size > parsed.end as u64 {
            // The rest is removed durably, so that a shorter record written over it leaves nothing of it
            // behind.
            file.truncate(parsed.end as u64).await.map_err(StorageError::of("cut", path))?;
            file.sync_all().await.map_err(StorageError::of("sync", path))?;
            size = parsed.end as u64;
        }
        let end = End { offset: parsed.end as u64, next: parsed.payloads.len() as u64, dead: false };
        let reserved = reserving.then(|| Cell::new(size));
        Ok(Self { path: path.to_owned(), file, end: Cell::new(end), reserved, turn: Semaphore::new(1) })
    }

    /// Number of records in the file.
    pub fn count(&self) -> u64 {
        self.end.get().next
    }

    /// Offset of the end of its last record.
    pub fn bytes(&self) -> u64 {
        self.end.get().offset
    }

    /// Whether nothing more can be appended, and it is unknown whether the last record is durable.
    pub fn is_dead(&self) -> bool {
        self.end.get().dead
    }

    /// Appends a record; returns once it is durable.
    ///
    /// # Errors
    /// File errors: the record is not in the file. But if the flush of the device failed it is unknown until
    /// the next start whether it is, and the file takes no more records ([`StorageError::CommitlogDead`]).
    pub async fn append(&self, payload: &[u8]) -> Result<(), StorageError> {
        let Ok(_turn) = self.turn.acquire(1).await else { return Err(StorageError::Draining) };
        let end = self.end.get();
        if end.dead {
            return Err(StorageError::CommitlogDead { path: self.path.clone() });
        }
        let mut record = Vec::new();
        append_record(&mut record, end.next, payload);
        self.reserve(end.offset + record.len() as u64).await;
        let mut buf = AlignedBuf::with_len(record.len());
        buf.copy_from_slice(&record);
        if let Err(error) = self.file.write_at(end.offset, buf).await.0 {
            // A half-written record must not look valid once another one follows it.
            if self.file.truncate(end.offset).await.is_err() {
                self.end.set(End { dead: true, ..end });
            }
            self.reserved.iter().for_each(|size| size.set(end.offset));
            return Err(StorageError::io("write", &self.path, error));
        }
        if self.file.fdatasync().await.is_err() {
            self.end.set(End { dead: true, ..end });
            return Err(StorageError::CommitlogDead { path: self.path.clone() });
        }
        self.end.set(End { offset: end.offset + record.len() as u64, next: end.next + 1, dead: false });
        Ok(())
    }

    /// Makes sure that a record of so many bytes can be appended even if the disk is full by then, in a file
    /// that keeps space behind its end. One caller at a time: the space is promised to the next append.
    ///
    /// # Errors
    /// [`StorageError::DiskFull`].
    pub async fn make_room(&self, payload_bytes: usize) -> Result<(), StorageError> {
        let Some(size) = &self.reserved else { return Ok(()) };
        let Ok(_turn) = self.turn.acquire(1).await else { return Err(StorageError::Draining) };
        let upto = self.end.get().offset + (HEAD_BYTES + payload_bytes) as u64;
        let missing = upto.saturating_sub(size.get());
        if missing == 0 {
            return Ok(());
        }
        match self.file.fallocate(size.get(), missing).await.map_err(StorageError::of("extend", &self.path)) {
            Ok(()) => size.set(upto),
            Err(full @ StorageError::DiskFull { .. }) => return Err(full),
            // A file system that keeps no space; the append itself says whether there is any.
            Err(_) => {}
        }
        Ok(())
    }

    /// Keeps space behind `upto`, if there is any: on a full disk an append fails only when its record is
    /// longer than the space that was kept.
    async fn reserve(&self, upto: u64) {
        let Some(size) = &self.reserved else { return };
        if upto + RESERVE_BYTES / 2 <= size.get() {
            return;
        }
        let wanted = upto + RESERVE_BYTES;
        if self.file.fallocate(size.get(), wanted - size.get()).await.is_ok() {
            size.set(wanted);
        }
    }
}
