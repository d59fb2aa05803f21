//! This shard's commit log, which keeps every write until it is in a table file.
//!
//! `append` gathers entries into groups, and `long` writes entries that need pieces. `group` writes one group
//! at a time, and `writeback` keeps the kernel from gathering them. `patience` ends waiting at deadlines.
//! `recycle` keeps segments ready and takes back free ones. `room` tracks how much of its room the log takes.
//! `replay` reads the log of an earlier process. `format` and `pieces` define the bytes
//! (docs/formats/commitlog.md). Invariants: an entry is acknowledged only after its group is written
//! (`periodic`) or durable (`batch`), in the order of the log; a segment is reused only when every [`Hold`]
//! on it and on all before it was given back.

mod append;
pub(crate) mod flushed;
pub(crate) mod format;
mod group;
mod long;
mod patience;
pub(crate) mod pieces;
mod recycle;
pub(crate) mod replay;
pub(crate) mod room;
mod writeback;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;

use reactor::file::File;
use reactor::{Event, Gate, Group as TaskGroup, Semaphore};

use crate::config::CommitlogSync;
use crate::error::StorageError;
use crate::manifest::Manifest;
pub(crate) use append::Pending;
use format::{BootId, Position, SegmentHeader};
use room::LogRoom;

/// Settings of one shard's log.
#[derive(Clone)]
pub(crate) struct CommitlogOptions {
    /// Directory of this shard's segments.
    pub(crate) directory: PathBuf,
    pub(crate) shard: u32,
    pub(crate) sync: CommitlogSync,
    pub(crate) segment_bytes: usize,
    pub(crate) bytes_max: u64,
    pub(crate) boot: BootId,
    /// Lists the segments.
    pub(crate) manifest: Manifest,
}

/// The log of this shard. Clones are the same log.
#[derive(Clone)]
pub(crate) struct Commitlog(Rc<Inner>);

struct Inner {
    options: CommitlogOptions,
    state: RefCell<State>,
    room_used: Rc<LogRoom>,
    /// The writer has something to do.
    work: Event,
    /// An appender may try again.
    room: Event,
    /// The keeper has something to do.
    keep: Event,
    /// The oldest segments should be freed.
    pressure: Event,
    /// The kernel should be asked to write.
    behind: Event,
    syncing: Semaphore,
    /// One long entry at a time.
    long: Semaphore,
    patience: patience::Patience,
    gate: Gate,
    closing: Cell<bool>,
    /// Whether entries are refused until a restart.
    ended: Cell<bool>,
    /// Whether the log may grow beyond its limit. It may while old entries are applied: the work that frees
    /// segments waits for that.
    unlimited: Cell<bool>,
    stopped: Event,
    counts: Counts,
}

/// Counters since the log was opened.
#[derive(Default)]
struct Counts {
    written_bytes: Cell<u64>,
    device_flushes: Cell<u64>,
    limit_exceeded: Cell<u64>,
}

/// A shard's commit log in figures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CommitlogStats {
    /// Segments that hold entries.
    pub segments: u64,
    /// Segments that are ready to be written.
    pub spare_segments: u64,
    /// Segments on their way to be used again or deleted.
    pub freed_segments: u64,
    /// Bytes of all segment files.
    pub disk_bytes: u64,
    /// Bytes of those that hold entries.
    pub live_bytes: u64,
    /// Most bytes they may take.
    pub bytes_max: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes of the device.
    pub device_flushes: u64,
    /// Groups of entries that wait to be written.
    pub pending_groups: u64,
    /// Appends that found the log at its limit.
    pub limit_exceeded: u64,
}

/// The greatest number of a segment or its file; no log gets there by counting.
const NUMBER_MAX: u64 = 1 << 60;

struct State {
    groups: VecDeque<group::Group>,
    group_states: Vec<Rc<group::GroupState>>,
    checksums: format::Checksums,
    /// The group that is on its way to the disk.
    writing: Option<Rc<group::GroupState>>,
    active: Option<Active>,
    spares: VecDeque<Rc<Segment>>,
    /// Segments that hold entries, by id; the active one too.
    live: BTreeMap<u64, Rc<Segment>>,
    /// Closed segments whose last write is not durable yet.
    unsynced: VecDeque<Rc<Segment>>,
    /// Free segments, oldest first.
    freed: VecDeque<Rc<Segment>>,
    /// Segments that the pieces of a long entry still need or wait for.
    wanted: usize,
    last_active: u64,
    next_id: u64,
    next_slot: u64,
    /// End of the last finished write, and end of the part that a flush of the device made durable.
    written: Position,
    durable: Position,
    /// Position up to which the kernel was asked to write (`periodic`).
    handed_over: Position,
    marked: Position,
    /// Whether an entry was appended since the last flush of the device.
    dirty: bool,
    health: Health,
    keeper_failure: Option<StorageError>,
}

struct Active {
    segment: Rc<Segment>,
    offset: usize,
}

enum Health {
    Good,
    /// A write failed: segments have to be closed at these offsets before the log can go on. The first is the
    /// one whose write failed; later ones were begun meanwhile and hold no entries.
    WriteFailed {
        error: StorageError,
        ends: Vec<(Rc<Segment>, usize)>,
    },
    /// A flush of the device failed.
    Dead(PathBuf),
}

impl Health {
    /// Whether the log can be written.
    #[inline]
    fn check(&self) -> Result<(), StorageError> {
        match self {
            Self::Good => Ok(()),
            Self::WriteFailed { error, .. } => Err(error.clone()),
            Self::Dead(path) => Err(StorageError::CommitlogDead { path: path.clone() }),
        }
    }
}

/// A segment file in one of its lives.
pub(crate) struct Segment {
    header: SegmentHeader,
    /// Seed of `header`, which every entry carries.
    seed: u32,
    /// Number of the file.
    slot: u64,
    path: PathBuf,
    file: File,
    /// Whether disk space is reserved for the whole file. The first segment of a log reserves it when first
    /// written.
    reserved: Cell<bool>,
    uses: Cell<u32>,
    closed: Cell<bool>,
}

/// A claim on a segment: it stays until the hold is dropped, or for ever after [`Hold::keep`].
pub(crate) struct Hold {
    log: Rc<Inner>,
    segment: Rc<Segment>,
    armed: bool,
}

impl std::fmt::Debug for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hold({})", self.segment.header.id)
    }
}

impl Hold {
    fn new(log: &Rc<Inner>, segment: &Rc<Segment>) -> Self {
        segment.uses.set(segment.uses.get() + 1);
        Self { log: Rc::clone(log), segment: Rc::clone(segment), armed: true }
    }

    /// Another claim on the same segment.
    pub(crate) fn again(&self) -> Self {
        Self::new(&self.log, &self.segment)
    }

    /// Id of the segment.
    pub(crate) fn segment(&self) -> u64 {
        self.segment.header.id
    }

    /// Drops the value without giving up the claim: the entries it stands for are not durable elsewhere.
    pub(crate) fn keep(mut self) {
        self.armed = false;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.armed {
            let uses = self.segment.uses.get() - 1;
            self.segment.uses.set(uses);
            // While other holds claim the segment, it keeps all later segments too.
            if uses == 0 {
                self.log.free_unused();
            }
        }
    }
}

/// Claims on the segments of an earlier process, in the order of the segments. Dropped, they stay: a start
/// that fails has not put the entries anywhere else.
pub(crate) struct OldHolds(Vec<Hold>);

impl OldHolds {
    /// The claim on a segment.
    pub(crate) fn get(&self, segment: usize) -> Option<&Hold> {
        self.0.get(segment)
    }

    /// Gives the claims up: each entry is claimed by a memtable, or is durable elsewhere.
    pub(crate) fn release(mut self) {
        self.0.clear();
    }
}

impl Drop for OldHolds {
    fn drop(&mut self) {
        self.0.drain(..).for_each(Hold::keep);
    }
}

/// A batch that is in this shard's log and not yet done. Dropped, it is left to the next start: its segment
/// stays.
#[derive(Debug)]
pub struct LoggedBatch {
    id: replay::BatchId,
    /// Its claim on its segment; `None` once it is done.
    hold: Option<Hold>,
}

impl LoggedBatch {
    pub(crate) fn new(id: replay::BatchId, hold: Hold) -> Self {
        Self { id, hold: Some(hold) }
    }

    pub(crate) fn id(&self) -> replay::BatchId {
        self.id
    }

    /// Gives up this place in the log for a later one of the same batch.
    pub fn move_to(&mut self, later: Self) {
        assert_eq!(self.id, later.id, "both are of one batch");
        drop(self.hold.take());
        *self = later;
    }

    /// Gives up its place: all of its writes are in the logs of their shards.
    pub(crate) fn end(mut self) {
        drop(self.hold.take());
    }
}

impl Drop for LoggedBatch {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            hold.keep();
        }
    }
}

/// A batch that this shard keeps for a coordinator, as a start found it.
#[derive(Debug)]
pub struct KeptBatch {
    /// Its id.
    pub id: [u8; 16],
    /// The knowledge of its coordinator when it began the batch.
    pub origin: replay::BatchOrigin,
    /// `model::mutation` bytes, not checked but for the log's checksum; those of truncated tables are left
    /// out.
    pub mutations: Vec<Vec<u8>>,
    /// Its place in the log.
    pub logged: LoggedBatch,
}

impl KeptBatch {
    pub(crate) fn new(kept: replay::Kept, hold: Hold) -> Self {
        let replay::Kept { id, origin, mutations } = kept;
        Self { id, origin, mutations, logged: LoggedBatch::new(id, hold) }
    }
}

impl Inner {
    /// Frees unclaimed segments, oldest first.
    ///
    /// The order matters: a later segment may revoke entries of an earlier one (truncations, flushes), so it
    /// has to stay as long as they do.
    fn free_unused(&self) {
        let mut state = self.state.borrow_mut();
        let mut any = false;
        while let Some(oldest) = state.live.first_entry() {
            if oldest.get().uses.get() > 0 || !oldest.get().closed.get() {
                break;
            }
            let segment = oldest.remove();
            state.freed.push_back(segment);
            any = true;
        }
        drop(state);
        if any {
            self.note_room();
            self.keep.notify_all();
        }
    }

    /// Publishes how many bytes of its room the log takes; the rest of the segment behind the last write does
    /// not count yet.
    fn note_room(&self) {
        let state = self.state.borrow();
        let segment_bytes = self.options.segment_bytes as u64;
        let behind = segment_bytes.saturating_sub(state.written.offset.into());
        let used = (state.live.len() as u64 * segment_bytes).saturating_sub(behind);
        self.room_used.set(used, !self.unlimited.get());
    }
}

impl Commitlog {
    /// Opens the log for writing. `old` are the segments of an earlier process; they stay until their holds
    /// are released.
    ///
    /// A full disk does not prevent opening: a segment that was never written to is used then, and without
    /// one writes fail until there is space.
    ///
    /// # Errors
    /// Those of creating the first segment, but for a full disk.
    pub(crate) async fn open(
        options: CommitlogOptions,
        mut old: Vec<replay::OldSegment>,
    ) -> Result<(Self, OldHolds), StorageError> {
        let directory = options.directory.clone();
        crate::directory::ensure(&directory).await?;
        if let Some(last) = old.iter().find(|s| s.header.id > NUMBER_MAX) {
            return Err(StorageError::CommitlogCorrupt {
                path: last.path.clone(),
                offset: 0,
                reason: "a segment with a number that none has",
            });
        }
        let next_id = old.iter().map(|s| s.header.id + 1).max().unwrap_or(1);
        // File names may have been made by anybody: a taken one is skipped when a file is made.
        let slots = old.iter().map(|s| s.slot).filter(|slot| *slot <= NUMBER_MAX);
        let next_slot = slots.map(|slot| slot + 1).max().unwrap_or(0);
        let start = Position { segment: 0, offset: 0 };
        let state = State {
            groups: VecDeque::new(),
            group_states: Vec::new(),
            checksums: format::Checksums::new(),
            writing: None,
            active: None,
            spares: VecDeque::new(),
            live: BTreeMap::new(),
            unsynced: VecDeque::new(),
            freed: VecDeque::new(),
            wanted: 0,
            last_active: next_id - 1,
            next_id,
            next_slot,
            written: start,
            durable: start,
            handed_over: start,
            marked: start,
            dirty: false,
            health: Health::Good,
            keeper_failure: None,
        };
        let log = Self(Rc::new(Inner {
            room_used: Rc::new(LogRoom::new(options.bytes_max)),
            options,
            state: RefCell::new(state),
            work: Event::new(),
            room: Event::new(),
            keep: Event::new(),
            pressure: Event::new(),
            behind: Event::new(),
            syncing: Semaphore::new(1),
            long: Semaphore::new(1),
            patience: patience::Patience::new(),
            gate: Gate::new(),
            closing: Cell::new(false),
            ended: Cell::new(false),
            unlimited: Cell::new(!old.is_empty()),
            stopped: Event::new(),
            counts: Counts::default(),
        }));
        let first = match log.0.make_segment(false).await {
            Err(error @ StorageError::DiskFull { .. }) => {
                let whole = |s: &mut replay::OldSegment| s.is_unused(log.0.options.segment_bytes);
                let unused = old.pop_if(whole);
                let begun = match &unused {
                    Some(unused) => Some(log.0.begin_unused(unused).await?),
                    None => None,
                };
                reactor::error!("there is no space for the commit log: the node reads, and writes as far as it has room";
                    has_room = begun.is_some(), error = &error);
                log.0.state.borrow_mut().keeper_failure = Some(error);
                begun
            }
            made => Some(made?),
        };
        let mut holds = Vec::new();
        for segment in old {
            let segment = Rc::new(Segment {
                header: segment.header,
                seed: segment.header.seed(),
                slot: segment.slot,
                path: segment.path,
                file: segment.file,
                reserved: Cell::new(true),
                uses: Cell::new(0),
                closed: Cell::new(true),
            });
            log.0.state.borrow_mut().live.insert(segment.header.id, Rc::clone(&segment));
            holds.push(Hold::new(&log.0, &segment));
        }
        log.0.state.borrow_mut().spares.extend(first);
        log.start_tasks();
        Ok((log, OldHolds(holds)))
    }

    fn start_tasks(&self) {
        let hold = || self.0.gate.enter().expect("the gate of a new log is open");
        let (log, gate) = (self.clone(), hold());
        drop(reactor::spawn(TaskGroup::COMMITLOG, async move {
            log.write_groups().await;
            drop(gate);
        }));
        let (log, gate) = (self.clone(), hold());
        drop(reactor::spawn(TaskGroup::COMMITLOG, async move {
            log.keep_segments().await;
            drop(gate);
        }));
        let (log, gate) = (self.clone(), hold());
        drop(reactor::spawn(TaskGroup::COMMITLOG, async move {
            log.watch_deadlines().await;
            drop(gate);
        }));
        if let CommitlogSync::Periodic { period } = self.0.options.sync {
            let (log, gate) = (self.clone(), hold());
            drop(reactor::spawn(TaskGroup::COMMITLOG, async move {
                log.sync_periodically(period).await;
                drop(gate);
            }));
            let (log, gate) = (self.clone(), hold());
            drop(reactor::spawn(TaskGroup::COMMITLOG, async move {
                log.write_back().await;
                drop(gate);
            }));
        }
    }

    /// Completes when the log takes so much room that the oldest segments should be freed.
    pub(crate) async fn wait_for_pressure(&self, stop: &Cell<bool>) {
        self.0.pressure.wait_until(|| stop.get() || self.pressing_segment().is_some()).await;
    }

    /// How much of its room the log takes.
    pub(crate) fn room(&self) -> Rc<LogRoom> {
        Rc::clone(&self.0.room_used)
    }

    /// Wakes the task that waits for pressure, so that it checks whether it should stop.
    pub(crate) fn wake(&self) {
        self.0.pressure.notify_all();
    }

    /// The oldest segment, if the log takes more than half of its room or a long entry has none; never the
    /// active one.
    pub(crate) fn pressing_segment(&self) -> Option<u64> {
        let state = self.0.state.borrow();
        let bytes = |segments: usize| segments as u64 * self.0.options.segment_bytes as u64;
        let pressing = bytes(state.live.len()) > self.0.options.bytes_max / 2
            || state.wanted > 0 && bytes(state.live.len() + state.wanted) > self.0.options.bytes_max;
        let active = state.active.as_ref().map(|a| a.segment.header.id);
        pressing.then(|| state.live.keys().next().copied()).flatten().filter(|id| Some(*id) != active)
    }

    /// The log in figures.
    pub(crate) fn stats(&self) -> CommitlogStats {
        let (state, counts) = (self.0.state.borrow(), &self.0.counts);
        let bytes = |segments: usize| segments as u64 * self.0.options.segment_bytes as u64;
        let spares: usize = state.spares.iter().map(|spare| spare.file_bytes(&self.0.options)).sum();
        CommitlogStats {
            segments: state.live.len() as u64,
            spare_segments: state.spares.len() as u64,
            freed_segments: state.freed.len() as u64,
            disk_bytes: bytes(state.live.len() + state.freed.len()) + spares as u64,
            live_bytes: bytes(state.live.len()),
            bytes_max: self.0.options.bytes_max,
            written_bytes: counts.written_bytes.get(),
            device_flushes: counts.device_flushes.get(),
            pending_groups: state.groups.len() as u64,
            limit_exceeded: counts.limit_exceeded.get(),
        }
    }

    /// Ends the log: all is written and durable, and the last segment is closed.
    ///
    /// # Errors
    /// Those of the last write.
    pub(crate) async fn close(&self) -> Result<(), StorageError> {
        let closed = self.put_end().await;
        let synced = self.sync().await;
        self.0.closing.set(true);
        for event in [&self.0.work, &self.0.keep, &self.0.room, &self.0.behind, &self.0.stopped] {
            event.notify_all();
        }
        self.0.patience.wake();
        self.0.gate.close().await;
        self.delete_surplus().await;
        closed.and(synced)
    }
}
