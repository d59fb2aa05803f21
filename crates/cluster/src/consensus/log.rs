//! The log of a group on disk: appends batches, and reads them at a start together with the snapshot.
//!
//! ```text
//! log-<n> := magic "cetorl1\n" record[base] record[batch]*      records as in storage::records
//! base    := CBOR {0: index, 1: term}          the entry that comes before the first one: the snapshot's
//! batch   := CBOR {0: hard state?, 1: entries}     entries replace those of their indexes and all behind
//! ```
//! One batch is one record, so that a power loss leaves all of it or none. When a log is full a new snapshot
//! is made durable, then the next log file, then `acknowledged`; only then the older ones are removed.
//! Invariant: a record is acknowledged only when it is synced, and what was acknowledged is found again or a
//! start is refused; nothing is guessed. Format: docs/formats/group0.md.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use minicbor::{Decode, Encode};
use storage::StorageError;
use storage::records::{self, Magic, Parsed, RecordFile};

use super::files::{self, Acknowledged, Count, LogError, log_path, snapshot_path};
use super::{Entry, HardState, Snapshot};

const MAGIC: &Magic = b"cetorl1\n";

/// Number of a group's first log file.
const FIRST_LOG: u64 = 1;
/// Entries after which a log that could not be replaced for want of space is tried again.
const ENTRIES_BETWEEN: u64 = 256;
/// No log reaches this index: it would take a million entries a second for a hundred thousand years.
const INDEX_MAX: u64 = 1 << 62;
/// Bytes of a batch with one command beside the command, at most.
const BATCH_BYTES: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
struct Base {
    #[n(0)]
    index: u64,
    #[n(1)]
    term: u64,
}

#[derive(Encode, Decode)]
struct Batch {
    #[n(0)]
    hard_state: Option<HardState>,
    #[n(1)]
    entries: Vec<Entry>,
}

impl Batch {
    fn to_bytes(&self) -> Vec<u8> {
        minicbor::to_vec(self).expect("writing to memory does not fail")
    }
}

/// Sizes at which a log is full, so that a new snapshot and log take its place.
#[derive(Debug, Clone, Copy)]
pub struct LogLimits {
    /// Bytes of a log file.
    pub bytes: u64,
    /// Entries appended to a log file.
    pub entries: u64,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self { bytes: 4 << 20, entries: 4096 }
    }
}

/// Everything that a group had when it last ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// The newest snapshot.
    pub snapshot: Snapshot,
    /// The last hard state; its commit index is that of the snapshot at least.
    pub hard_state: HardState,
    /// Entries behind the snapshot, contiguous.
    pub entries: Vec<Entry>,
}

/// The log of a group, open for appending.
pub struct GroupLog {
    folder: PathBuf,
    limits: LogLimits,
    number: Cell<u64>,
    file: RefCell<Rc<RecordFile>>,
    acknowledged: Acknowledged,
    snapshot_index: Cell<u64>,
    /// Index of the last entry in the log.
    last: Cell<u64>,
    appended: Cell<u64>,
    /// Number of appended entries up to which a full log stays, because the disk was full.
    postponed: Cell<u64>,
}

impl GroupLog {
    /// Makes the folder of a new group with its first snapshot. Afterwards the folder is there, whole and
    /// durable, or, after a crash, not at all.
    ///
    /// # Errors
    /// File errors; the folder is not there then.
    pub async fn create(folder: &Path, snapshot: &Snapshot) -> Result<(), LogError> {
        let parent =
            folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let new = folder.with_extension("new");
        if reactor::file::exists(&new).await.map_err(StorageError::of("look for", &new))? {
            reactor::file::remove_dir_all(&new).await.map_err(StorageError::of("remove", &new))?;
        }
        reactor::file::create_dir_all(&new).await.map_err(StorageError::of("create", &new))?;
        // The folder has to be durable before its files can be.
        reactor::file::sync_dir(parent).await.map_err(StorageError::of("sync", parent))?;
        snapshot.write(&new).await?;
        let base = Base { index: snapshot.index, term: snapshot.term };
        let hard_state = HardState { term: snapshot.term, vote: None, commit: snapshot.index };
        let records =
            write_log(&new, FIRST_LOG, base, Batch { hard_state: Some(hard_state), entries: Vec::new() })
                .await?;
        let path = Acknowledged::path(&new);
        let count = Acknowledged::encode(Count { log: FIRST_LOG, records });
        reactor::file::write_all_atomic(&path, &count).await.map_err(StorageError::of("write", &path))?;
        reactor::file::rename(&new, folder).await.map_err(StorageError::of("rename", &new))?;
        Ok(reactor::file::sync_dir(parent).await.map_err(StorageError::of("sync", parent))?)
    }

    /// Opens the folder of a group.
    ///
    /// # Errors
    /// [`LogError::Damaged`] and [`LogError::Missing`] where something is not as it was acknowledged; file
    /// errors.
    pub async fn open(folder: &Path, limits: LogLimits) -> Result<(Self, Recovered), LogError> {
        let (acknowledged, count) = Acknowledged::open(folder).await?;
        let listing = files::list(folder).await?;
        for path in &listing.temporary {
            files::remove(path).await;
        }
        let Some(number) = listing.logs.last().copied().filter(|number| *number >= count.log) else {
            let proof = Acknowledged::path(folder).display().to_string();
            return Err(LogError::Missing { path: log_path(folder, count.log), proof });
        };
        let path = log_path(folder, number);
        let bytes = records::read(&path).await?;
        let parsed = records::parse(&bytes, MAGIC)
            .map_err(|damaged| LogError::damaged(&path, damaged.offset, damaged.reason))?;
        let records = parsed.payloads.len() as u64;
        if number == count.log && records < count.records {
            let reason = format!("{records} records are whole and {} were acknowledged", count.records);
            return Err(LogError::damaged(&path, parsed.end, reason));
        }
        let replayed = Replayed::of(&parsed, &path)?;
        let index = newest_snapshot(folder, &listing.snapshots, replayed.base, &path)?;
        let snapshot = Snapshot::read(folder, index).await?;
        let recovered = replayed.join(snapshot, &path, parsed.end)?;
        let file = RecordFile::open(&path, &bytes, &parsed, true).await?;
        let appended = recovered.entries.len() as u64;
        let log = Self {
            folder: folder.to_owned(),
            limits,
            number: Cell::new(number),
            file: RefCell::new(Rc::new(file)),
            acknowledged,
            snapshot_index: Cell::new(index),
            last: Cell::new(index + appended),
            appended: Cell::new(appended),
            postponed: Cell::new(0),
        };
        log.settle(&listing, replayed.base, &recovered).await?;
        Ok((log, recovered))
    }

    /// Ends what a crash interrupted: a snapshot that has no log of its own gets one, files that are of no
    /// more use are removed, and the count of acknowledged records is durable.
    async fn settle(
        &self,
        found: &files::Listing,
        base: Base,
        recovered: &Recovered,
    ) -> Result<(), LogError> {
        if base.index != recovered.snapshot.index {
            let next = self.next_log(&recovered.snapshot, recovered.hard_state, &recovered.entries).await;
            if let Err(LogError::Storage(full @ StorageError::DiskFull { .. })) = &next {
                // The log and the newer snapshot go together all the same, at the next start too.
                reactor::warn!("the control plane's log is not made shorter"; error = full);
                return Ok(());
            }
            next?;
        } else {
            self.acknowledged.set(self.count()).await?;
            self.acknowledged.sync().await?;
        }
        for number in found.logs.iter().filter(|number| **number != self.number.get()) {
            files::remove(&log_path(&self.folder, *number)).await;
        }
        for index in found.snapshots.iter().filter(|index| **index != self.snapshot_index.get()) {
            files::remove(&snapshot_path(&self.folder, *index)).await;
        }
        Ok(())
    }

    /// Appends one batch; returns once it is durable: one write and one fdatasync.
    ///
    /// # Errors
    /// File errors. It is unknown then whether the batch is durable: the caller stops, and the next start
    /// says.
    pub async fn append(&self, hard_state: Option<HardState>, entries: Vec<Entry>) -> Result<(), LogError> {
        if let (Some(first), Some(last)) = (entries.first(), entries.last()) {
            assert!(
                self.snapshot_index.get() < first.index && first.index <= self.last.get() + 1,
                "entry {} is appended to a log of {} to {}",
                first.index,
                self.snapshot_index.get(),
                self.last.get()
            );
            assert_eq!(last.index - first.index + 1, entries.len() as u64, "a batch with a gap");
            self.last.set(last.index);
        }
        self.appended.set(self.appended.get() + entries.len() as u64);
        let file = Rc::clone(&self.file.borrow());
        file.append(&Batch { hard_state, entries }.to_bytes()).await?;
        self.acknowledged.set(self.count()).await
    }

    /// Whether a new snapshot of what is applied up to `applied` should take the place of this log: it is
    /// full, and half of its entries at least would go. Entries that are not committed stay in any case.
    pub fn is_full(&self, applied: u64) -> bool {
        let appended = self.appended.get();
        appended >= self.postponed.get()
            && (appended >= self.limits.entries || self.file.borrow().bytes() >= self.limits.bytes)
            && 2 * applied.saturating_sub(self.snapshot_index.get()) >= appended.max(1)
    }

    fn count(&self) -> Count {
        Count { log: self.number.get(), records: self.file.borrow().count() }
    }

    /// Makes sure that a command of so many bytes can be appended even if the disk is full by then.
    ///
    /// # Errors
    /// [`StorageError::DiskFull`] if there is no room; the log is as it was.
    pub async fn make_room(&self, bytes: usize) -> Result<(), StorageError> {
        let file = Rc::clone(&self.file.borrow());
        file.make_room(bytes + BATCH_BYTES).await
    }

    /// Makes a snapshot durable, then a new log with the entries behind it, then removes the older ones. On a
    /// full disk the log stays as it is for some more entries; false then.
    ///
    /// # Errors
    /// File errors: the caller stops. The next start finds the older files or the new ones, whole.
    pub async fn replace(
        &self,
        snapshot: &Snapshot,
        hard_state: HardState,
        entries: &[Entry],
    ) -> Result<bool, LogError> {
        assert!(
            snapshot.index >= self.snapshot_index.get() && hard_state.commit >= snapshot.index,
            "a snapshot of {} upon one of {}, committed {}",
            snapshot.index,
            self.snapshot_index.get(),
            hard_state.commit
        );
        if snapshot.index == self.snapshot_index.get() {
            return Ok(true);
        }
        let (old_number, old_index) = (self.number.get(), self.snapshot_index.get());
        let written = match snapshot.write(&self.folder).await {
            Ok(()) => self.next_log(snapshot, hard_state, entries).await,
            failed => failed,
        };
        if let Err(LogError::Storage(full @ StorageError::DiskFull { .. })) = &written {
            reactor::warn!("the control plane's log is not made shorter"; error = full);
            self.postponed.set(self.appended.get() + ENTRIES_BETWEEN);
            return Ok(false);
        }
        written?;
        files::remove(&log_path(&self.folder, old_number)).await;
        files::remove(&snapshot_path(&self.folder, old_index)).await;
        Ok(true)
    }

    async fn next_log(
        &self,
        snapshot: &Snapshot,
        hard_state: HardState,
        entries: &[Entry],
    ) -> Result<(), LogError> {
        let number = self.number.get() + 1;
        let base = Base { index: snapshot.index, term: snapshot.term };
        let batch = Batch { hard_state: Some(hard_state), entries: entries.to_vec() };
        let records = write_log(&self.folder, number, base, batch).await?;
        let path = log_path(&self.folder, number);
        let bytes = records::read(&path).await?;
        let parsed = records::parse(&bytes, MAGIC)
            .map_err(|damaged| LogError::damaged(&path, damaged.offset, damaged.reason))?;
        let file = RecordFile::open(&path, &bytes, &parsed, true).await?;
        self.file.replace(Rc::new(file));
        self.number.set(number);
        self.snapshot_index.set(snapshot.index);
        self.appended.set(entries.len() as u64);
        self.postponed.set(0);
        self.last.set(snapshot.index + entries.len() as u64);
        self.acknowledged.set(Count { log: number, records }).await?;
        self.acknowledged.sync().await
    }
}

/// Writes a log file as a whole, durably; the number of its records.
async fn write_log(folder: &Path, number: u64, base: Base, batch: Batch) -> Result<u64, LogError> {
    let base = minicbor::to_vec(base).expect("writing to memory does not fail");
    let path = log_path(folder, number);
    let bytes = records::encode(MAGIC, [base, batch.to_bytes()]);
    reactor::file::write_all_atomic(&path, &bytes).await.map_err(StorageError::of("write", &path))?;
    Ok(2)
}

/// The index of the newest snapshot; the log proves that there is one of its base at least.
fn newest_snapshot(folder: &Path, snapshots: &[u64], base: Base, log: &Path) -> Result<u64, LogError> {
    let newest = snapshots.last().copied().filter(|newest| *newest >= base.index);
    newest.ok_or_else(|| LogError::Missing {
        path: snapshot_path(folder, base.index),
        proof: log.display().to_string(),
    })
}

/// A log as its records say it is.
struct Replayed {
    base: Base,
    hard_state: HardState,
    entries: Vec<Entry>,
}

impl Replayed {
    fn of(parsed: &Parsed<'_>, path: &Path) -> Result<Self, LogError> {
        let Some((base, batches)) = parsed.payloads.split_first() else {
            return Err(LogError::damaged(path, parsed.end, "its first record is not whole"));
        };
        let at = |number: usize, reason: String| LogError::damaged(path, parsed.offsets[number], reason);
        let base: Base = minicbor::decode(base).map_err(|error| at(0, error.to_string()))?;
        if base.index > INDEX_MAX {
            return Err(at(0, format!("no log reaches entry {}", base.index)));
        }
        let hard_state = HardState { term: base.term, vote: None, commit: base.index };
        let mut replayed = Self { base, hard_state, entries: Vec::new() };
        for (number, payload) in batches.iter().enumerate() {
            let batch = minicbor::decode(payload).map_err(|error| at(number + 1, error.to_string()))?;
            replayed.take(batch).map_err(|reason| at(number + 1, reason))?;
        }
        let last = replayed.last();
        if last < replayed.hard_state.commit {
            let reason = format!(
                "entries up to {} were committed and it ends with {last}",
                replayed.hard_state.commit
            );
            return Err(LogError::damaged(path, parsed.end, reason));
        }
        Ok(replayed)
    }

    fn last(&self) -> u64 {
        self.base.index + self.entries.len() as u64
    }

    /// Takes in one batch, or says what contradicts the batches before it.
    fn take(&mut self, batch: Batch) -> Result<(), String> {
        for entry in batch.entries {
            let (base, last, commit) = (self.base.index, self.last(), self.hard_state.commit);
            if entry.index <= base || entry.index > last + 1 {
                return Err(format!("entry {} stands behind entries {} to {last}", entry.index, base + 1));
            }
            if entry.index <= commit {
                return Err(format!("entry {} is overwritten and {commit} was committed", entry.index));
            }
            self.entries.truncate((entry.index - base - 1) as usize);
            let before = self.entries.last().map_or(self.base.term, |entry| entry.term);
            if entry.term < before {
                return Err(format!("entry {} has term {} behind one of {before}", entry.index, entry.term));
            }
            self.entries.push(entry);
        }
        if let Some(state) = batch.hard_state {
            if state.term < self.hard_state.term || state.commit < self.hard_state.commit {
                return Err(format!("its hard state falls from {:?} to {state:?}", self.hard_state));
            }
            self.hard_state = state;
        }
        Ok(())
    }

    /// The log behind `snapshot`, which may be newer than the log where a crash came between the two.
    fn join(&self, snapshot: Snapshot, path: &Path, end: usize) -> Result<Recovered, LogError> {
        let mut hard_state = self.hard_state;
        let place = (snapshot.index - self.base.index) as usize;
        let term = match place.checked_sub(1) {
            None => Some(self.base.term),
            Some(place) => self.entries.get(place).map(|entry| entry.term),
        };
        let entries = match term {
            Some(term) if term == snapshot.term => self.entries[place..].to_vec(),
            // Only another node's snapshot differs from the log, or goes beyond it: it replaces all of it.
            _ if snapshot.index > hard_state.commit => Vec::new(),
            _ => {
                let reason = format!(
                    "entry {} was committed with term {term:?}, the snapshot has {}",
                    snapshot.index, snapshot.term
                );
                return Err(LogError::damaged(path, end, reason));
            }
        };
        if snapshot.term > hard_state.term {
            hard_state.term = snapshot.term;
            hard_state.vote = None;
        }
        hard_state.commit = hard_state.commit.max(snapshot.index);
        Ok(Recovered { snapshot, hard_state, entries })
    }
}

/// For the fuzz target: the bytes of a log with these payloads.
pub(super) fn encode(payloads: &[&[u8]]) -> Vec<u8> {
    records::encode(MAGIC, payloads.iter().map(|payload| payload.to_vec()))
}

/// For the fuzz target: reads a log, and checks what it found.
pub(super) fn parse_log(bytes: &[u8], path: &Path) {
    let Ok(parsed) = records::parse(bytes, MAGIC) else { return };
    let Ok(replayed) = Replayed::of(&parsed, path) else { return };
    let first = replayed.base.index.checked_add(1);
    for (entry, index) in replayed.entries.iter().zip(first.into_iter().flat_map(|first| first..)) {
        assert_eq!(entry.index, index, "a log with a gap was taken");
    }
    assert!(replayed.hard_state.commit <= replayed.last(), "a log was taken without its committed end");
}
