//! Lists the files that must exist: the table files of each tablet, the segments of the commit log, and the
//! number of the last schema change. `tenancy` notes which entries of the commit logs count.
//!
//! Each shard appends to its own log in the manifest's folder, apart from the listed files, so that a missing
//! file or folder is noticed (`check`). Invariants: a table file is listed durably before the data it
//! replaces is removed (the log's entries of a flush, the inputs of a compaction); it is noted as being
//! removed before its first component is removed; a segment of the commit log is listed before its first
//! entry. A file that exists and is not listed is therefore from work that was interrupted, or was put there
//! by hand. `flush`, `compaction::exchange`, `ddl` and `commitlog::recycle` rely on it.
//! Format: docs/formats/manifest.md.

pub(crate) mod check;
pub(crate) mod format;
mod open;
mod tenancy;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use reactor::Semaphore;

use crate::error::StorageError;
use crate::records::{self, RecordFile};
pub(crate) use format::{Edit, FileKey, SegmentKey};
pub(crate) use open::{Listed, Placement};
pub(crate) use tenancy::{Tenancies, Tenancy, TenancyKey};

/// A log is rewritten when it is this many times as long as its present content would be, and longer than
/// [`REWRITE_BYTES_MIN`].
const REWRITE_FACTOR: u64 = 4;
/// Logs shorter than this are not worth rewriting.
const REWRITE_BYTES_MIN: u64 = 1 << 20;

/// State of a table file in the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileState {
    /// The file must exist.
    Live,
    /// The rest of the file has to be removed.
    Removing,
}

/// The state of one shard's log, all edits applied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) files: BTreeMap<FileKey, FileState>,
    pub(crate) segments: BTreeSet<SegmentKey>,
    pub(crate) agreed: u64,
    pub(crate) tenancies: Tenancies,
}

impl State {
    pub(crate) fn apply(&mut self, edit: Edit) {
        match edit {
            Edit::Live(key) => _ = self.files.insert(key, FileState::Live),
            Edit::Removing(key) => _ = self.files.insert(key, FileState::Removing),
            Edit::Gone(key) => _ = self.files.remove(&key),
            Edit::Segment(key) => _ = self.segments.insert(key),
            Edit::SegmentGone(key) => _ = self.segments.remove(&key),
            Edit::Agreed(count) => self.agreed = self.agreed.max(count),
            Edit::Tenancy(key, tenancy) => self.tenancies.insert(key, tenancy),
        }
    }

    /// Edits that lead from the empty state to this one.
    fn edits(&self) -> Vec<Edit> {
        let files = self.files.iter().map(|(key, state)| match state {
            FileState::Live => Edit::Live(*key),
            FileState::Removing => Edit::Removing(*key),
        });
        let segments = self.segments.iter().map(|key| Edit::Segment(*key));
        let schema = (self.agreed > 0).then_some(Edit::Agreed(self.agreed));
        let tenancies = self.tenancies.iter().map(|(key, tenancy)| Edit::Tenancy(key, tenancy));
        files.chain(segments).chain(schema).chain(tenancies).collect()
    }

    /// The bytes of a log with exactly this state.
    fn encode(&self) -> Vec<u8> {
        records::encode(format::MAGIC, [payload(&self.edits())])
    }
}

/// For the fuzz target: reads and writes logs.
pub(crate) mod fuzzing {
    use super::{Edit, format, payload, records};

    /// All edits of a log; none if its bytes are damaged.
    pub(crate) fn edits(log: &[u8]) -> Vec<Edit> {
        let Ok(parsed) = records::parse(log, format::MAGIC) else { return Vec::new() };
        parsed.payloads.iter().filter_map(|payload| format::decode(payload)).flatten().collect()
    }

    /// A log of one record.
    pub(crate) fn log(edits: &[Edit]) -> Vec<u8> {
        records::encode(format::MAGIC, [payload(edits)])
    }
}

fn payload(edits: &[Edit]) -> Vec<u8> {
    let mut bytes = Vec::new();
    edits.iter().for_each(|edit| format::encode(*edit, &mut bytes));
    bytes
}

/// The result of a note, `None` until its record was written.
type Outcome = Rc<RefCell<Option<Result<(), StorageError>>>>;

/// One shard's part of the manifest. Clones share it.
#[derive(Clone)]
pub(crate) struct Manifest(Rc<Inner>);

struct Inner {
    path: PathBuf,
    file: RefCell<Rc<RecordFile>>,
    /// The state including lazy edits, without edits that wait.
    state: RefCell<State>,
    /// Notes that wait for the next record, which contains all of them.
    waiting: RefCell<Vec<(Vec<Edit>, Outcome)>>,
    /// Edits that need not be durable soon: they are written with the next note.
    lazy: RefCell<Vec<Edit>>,
    turn: Semaphore,
}

impl Manifest {
    /// Path of a shard's log.
    pub(crate) fn path_of(directory: &Path, epoch: u64, shard: usize) -> PathBuf {
        directory.join(format!("{epoch}-{shard}.log"))
    }

    /// Opens a shard's log, which shard 0 has created or checked (`check`).
    ///
    /// # Errors
    /// [`StorageError::ManifestCorrupt`]; file errors.
    pub(crate) async fn open(directory: &Path, epoch: u64, shard: usize) -> Result<Self, StorageError> {
        let path = Self::path_of(directory, epoch, shard);
        let bytes = records::read(&path).await?;
        let (state, parsed) = open::replay(&bytes, &path)?;
        let file = RecordFile::open(&path, &bytes, &parsed, true).await?;
        Ok(Self(Rc::new(Inner {
            path,
            file: RefCell::new(Rc::new(file)),
            state: RefCell::new(state),
            waiting: RefCell::default(),
            lazy: RefCell::default(),
            turn: Semaphore::new(1),
        })))
    }

    /// Number of records in its log.
    #[cfg(test)]
    fn records(&self) -> u64 {
        self.0.file.borrow().count()
    }

    /// Makes sure that notes can be written. Once they cannot, it is unknown until the next start whether the
    /// first note that failed is durable.
    ///
    /// # Errors
    /// [`StorageError::CommitlogDead`].
    pub(crate) fn check_alive(&self) -> Result<(), StorageError> {
        if self.0.file.borrow().is_dead() {
            return Err(StorageError::CommitlogDead { path: self.0.path.clone() });
        }
        Ok(())
    }

    /// State of a table file in the manifest.
    pub(crate) fn file(&self, key: FileKey) -> Option<FileState> {
        self.0.state.borrow().files.get(&key).copied()
    }

    /// Where the present tenancies of tablets begin in the commit logs that this shard replays.
    pub(crate) fn tenancies(&self) -> Tenancies {
        self.0.state.borrow().tenancies.clone()
    }

    /// Whether a segment of a commit log is listed.
    pub(crate) fn has_segment(&self, key: SegmentKey) -> bool {
        self.0.state.borrow().segments.contains(&key)
    }

    /// Notes edits in one record: all of them are durable on return, or none counts. Several callers share a
    /// record.
    ///
    /// # Errors
    /// Those of writing.
    pub(crate) async fn note(&self, edits: &[Edit]) -> Result<(), StorageError> {
        if edits.is_empty() {
            return Ok(());
        }
        let outcome = Outcome::default();
        self.0.waiting.borrow_mut().push((edits.to_vec(), Rc::clone(&outcome)));
        let Ok(turn) = self.0.turn.acquire(1).await else { return Err(StorageError::Draining) };
        if let Some(done) = outcome.take() {
            return done;
        }
        // In a task of its own: if this caller is dropped, the others still get their record.
        let manifest = self.clone();
        let written = reactor::spawn(reactor::current_group(), async move {
            manifest.write_waiting().await;
            drop(turn);
        });
        drop(written.await);
        // `None` only if that task panicked; the panic is reported there.
        outcome.take().unwrap_or(Err(StorageError::Draining))
    }

    /// Notes edits that may be lost: they are written with the next note.
    pub(crate) fn note_lazily(&self, edits: impl IntoIterator<Item = Edit>) {
        let mut lazy = self.0.lazy.borrow_mut();
        for edit in edits {
            self.0.state.borrow_mut().apply(edit);
            lazy.push(edit);
        }
    }

    /// Makes lazy edits durable: the numbers of removed files may then be given out again.
    ///
    /// # Errors
    /// Those of writing.
    pub(crate) async fn settle(&self) -> Result<(), StorageError> {
        let lazy = self.0.lazy.take();
        self.note(&lazy).await
    }

    /// Writes one record for all waiting notes, and sets their outcomes. The caller holds the permit
    /// (`turn`).
    async fn write_waiting(&self) {
        let lazy = self.0.lazy.take();
        let waiting = self.0.waiting.take();
        let mut edits = lazy.clone();
        edits.extend(waiting.iter().flat_map(|(edits, _)| edits));
        let file = Rc::clone(&self.0.file.borrow());
        let written = file.append(&payload(&edits)).await;
        match &written {
            Ok(()) => {
                let mut state = self.0.state.borrow_mut();
                waiting.iter().flat_map(|(edits, _)| edits).for_each(|edit| state.apply(*edit));
            }
            // The lazy edits go to the front again, before edits that came meanwhile.
            Err(_) => drop(self.0.lazy.borrow_mut().splice(0..0, lazy)),
        }
        for (_, outcome) in waiting {
            *outcome.borrow_mut() = Some(written.clone());
        }
        if written.is_ok() {
            self.rewrite_if_long(file.bytes()).await;
        }
    }

    /// Replaces a log that is mostly history by one with its present content. The caller holds the permit
    /// (`turn`).
    async fn rewrite_if_long(&self, length: u64) {
        if length < REWRITE_BYTES_MIN {
            return;
        }
        let bytes = self.0.state.borrow().encode();
        if length < bytes.len() as u64 * REWRITE_FACTOR {
            return;
        }
        // Lazy edits are part of the state, and need not be written again.
        self.0.lazy.borrow_mut().clear();
        if let Err(error) = self.replace(&bytes).await {
            reactor::warn_limited!("a log of the manifest cannot be shortened and goes on growing"; error = error);
        }
    }

    async fn replace(&self, bytes: &[u8]) -> Result<(), StorageError> {
        let path = &self.0.path;
        reactor::file::write_all_atomic(path, bytes).await.map_err(StorageError::of("replace", path))?;
        let (_, parsed) = open::replay(bytes, path)?;
        let file = RecordFile::open(path, bytes, &parsed, true).await?;
        *self.0.file.borrow_mut() = Rc::new(file);
        Ok(())
    }
}
