//! What must be there: the table files of each tablet, the segments of the commit log, and how long the
//! schema log is.
//!
//! Each shard appends to a log of its own in the manifest's folder, apart from what it lists, so that a file
//! or a folder that is missing is known to be missing (`check`). Invariants: a table file is listed durably
//! before anything goes that it stands for (the log's entries of a flush, the inputs of a compaction); it is
//! noted as being removed before its first component is; a segment of the commit log is listed before its
//! first entry. Whatever is there and not listed is therefore the work of somebody who did not come to an
//! end, or was put there by hand. `flush`, `compaction::exchange`, `ddl` and `commitlog::recycle` lean on it.
//! Format: docs/formats/manifest.md.

pub(crate) mod check;
pub(crate) mod format;
mod open;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use reactor::Semaphore;

use crate::error::StorageError;
use crate::records::{self, RecordFile};
pub(crate) use format::{Edit, FileKey, SegmentKey};
pub(crate) use open::Listed;

/// A log is written anew once it is so many times as long as its present content would be, and beyond
/// [`REWRITE_BYTES_MIN`].
const REWRITE_FACTOR: u64 = 4;
/// Logs shorter than this are not worth writing anew.
const REWRITE_BYTES_MIN: u64 = 1 << 20;

/// What is known of a table file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileState {
    /// It must be there.
    Live,
    /// What is left of it is to be removed.
    Removing,
}

/// What one shard's log says, all edits applied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) files: BTreeMap<FileKey, FileState>,
    pub(crate) segments: BTreeSet<SegmentKey>,
    pub(crate) schema_records: u64,
}

impl State {
    pub(crate) fn apply(&mut self, edit: Edit) {
        match edit {
            Edit::Live(key) => _ = self.files.insert(key, FileState::Live),
            Edit::Removing(key) => _ = self.files.insert(key, FileState::Removing),
            Edit::Gone(key) => _ = self.files.remove(&key),
            Edit::Segment(key) => _ = self.segments.insert(key),
            Edit::SegmentGone(key) => _ = self.segments.remove(&key),
            Edit::SchemaRecords(count) => self.schema_records = count,
        }
    }

    /// Edits that lead from nothing to this state.
    fn edits(&self) -> Vec<Edit> {
        let files = self.files.iter().map(|(key, state)| match state {
            FileState::Live => Edit::Live(*key),
            FileState::Removing => Edit::Removing(*key),
        });
        let segments = self.segments.iter().map(|key| Edit::Segment(*key));
        let schema = (self.schema_records > 0).then_some(Edit::SchemaRecords(self.schema_records));
        files.chain(segments).chain(schema).collect()
    }

    /// The bytes of a log that says this and nothing else.
    fn encode(&self) -> Vec<u8> {
        records::encode(format::MAGIC, [payload(&self.edits())])
    }
}

/// What the fuzz target reads and writes.
pub(crate) mod fuzzing {
    use super::{Edit, format, payload, records};

    /// All edits of a log; none of damaged bytes.
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

/// The outcome of a note, once its record was written.
type Outcome = Rc<RefCell<Option<Result<(), StorageError>>>>;

/// One shard's part of the manifest. Clones are the same.
#[derive(Clone)]
pub(crate) struct Manifest(Rc<Inner>);

struct Inner {
    path: PathBuf,
    file: RefCell<Rc<RecordFile>>,
    /// With the lazy edits; without those that wait.
    state: RefCell<State>,
    /// Notes that wait for the next record, which takes all of them.
    waiting: RefCell<Vec<(Vec<Edit>, Outcome)>>,
    /// Edits that need not be durable soon: they go with the next note.
    lazy: RefCell<Vec<Edit>>,
    turn: Semaphore,
}

impl Manifest {
    /// Where the log of a shard is.
    pub(crate) fn path_of(directory: &Path, epoch: u64, shard: usize) -> PathBuf {
        directory.join(format!("{epoch}-{shard}.log"))
    }

    /// Opens a shard's log, which shard 0 has made sure of (`check`).
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

    /// How many records its log has.
    #[cfg(test)]
    fn records(&self) -> u64 {
        self.0.file.borrow().count()
    }

    /// Makes sure that notes can be written. Once they cannot, it is unknown until the next start whether the first
    /// note that failed is durable.
    ///
    /// # Errors
    /// [`StorageError::CommitlogDead`].
    pub(crate) fn check_alive(&self) -> Result<(), StorageError> {
        if self.0.file.borrow().is_dead() {
            return Err(StorageError::CommitlogDead { path: self.0.path.clone() });
        }
        Ok(())
    }

    /// What is known of a table file.
    pub(crate) fn file(&self, key: FileKey) -> Option<FileState> {
        self.0.state.borrow().files.get(&key).copied()
    }

    /// Whether a segment of a commit log is listed.
    pub(crate) fn has_segment(&self, key: SegmentKey) -> bool {
        self.0.state.borrow().segments.contains(&key)
    }

    /// Notes edits in one record: all of them are durable on return, or none counts. Notes of several callers
    /// share a record.
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
        // A task of its own: a caller that goes away leaves the others their record.
        let manifest = self.clone();
        let written = reactor::spawn(reactor::current_group(), async move {
            manifest.write_waiting().await;
            drop(turn);
        });
        drop(written.await);
        // None only where that task broke, which its panic tells.
        outcome.take().unwrap_or(Err(StorageError::Draining))
    }

    /// Notes edits that may be forgotten: they are written with the next note.
    pub(crate) fn note_lazily(&self, edits: impl IntoIterator<Item = Edit>) {
        let mut lazy = self.0.lazy.borrow_mut();
        for edit in edits {
            self.0.state.borrow_mut().apply(edit);
            lazy.push(edit);
        }
    }

    /// Makes what was noted lazily durable: numbers of files that are gone may be given out again.
    ///
    /// # Errors
    /// Those of writing.
    pub(crate) async fn settle(&self) -> Result<(), StorageError> {
        let lazy = self.0.lazy.take();
        self.note(&lazy).await
    }

    /// Writes one record for all who wait, and tells each. The caller has the turn.
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
            // They go first again, before those that came meanwhile.
            Err(_) => drop(self.0.lazy.borrow_mut().splice(0..0, lazy)),
        }
        for (_, outcome) in waiting {
            *outcome.borrow_mut() = Some(written.clone());
        }
        if written.is_ok() {
            self.rewrite_if_long(file.bytes()).await;
        }
    }

    /// Replaces a log that is mostly history by one of its present content. The caller has the turn.
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
