//! Hints of one shard in files, by host: `<hints_directory>/<host id>/<shard>-<number>.hints`.
//!
//! Hints gather in memory and one task writes them (`writer`), so that whoever leaves a hint waits for no
//! disk. A file that is complete, or was found at a start, is never appended to. Invariants: bytes in memory
//! and in files are bounded; files are in the order in which they were made; a file is listed from before its
//! first hint is written until it was delivered.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use reactor::file::{self, File};
use reactor::{Event, Semaphore};

use super::HintsError;
use super::format::{BadHeader, HEADER_BYTES, Hint};
use super::metrics::HintsMetrics;
use super::reader;

/// Bytes of hints in memory of a shard, not written yet.
const BUFFER_BYTES_MAX: usize = 8 << 20;
/// A shard's part of the free space of the disk that hints may take: one in so many.
const DISK_PART: u64 = 10;

/// A complete file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HintFile {
    pub(super) path: PathBuf,
    pub(super) number: u64,
    pub(super) bytes: u64,
    pub(super) created_us: i64,
}

/// The file that hints are appended to.
pub(super) struct OpenFile {
    pub(super) file: File,
    pub(super) salt: u32,
    pub(super) listed: HintFile,
    pub(super) is_synced: Cell<bool>,
}

/// The hints for one host.
pub(super) struct Host {
    pub(super) id: [u8; 16],
    pub(super) pending: RefCell<VecDeque<Hint>>,
    pending_bytes: Cell<u64>,
    /// Complete files, the oldest first.
    files: RefCell<VecDeque<HintFile>>,
    pub(super) open: RefCell<Option<OpenFile>>,
    pub(super) next_number: Cell<u64>,
    /// Hints that were ever added, and how many of them are durable or lost.
    pub(super) added: Cell<u64>,
    pub(super) settled: Cell<u64>,
    /// Times that hints were lost.
    pub(super) losses: Cell<u64>,
    pub(super) wants_sync: Cell<bool>,
    /// Where delivery of a file goes on: its number, and an offset.
    pub(super) progress: Cell<(u64, u64)>,
}

impl Host {
    fn new(id: [u8; 16]) -> Self {
        Self {
            id,
            pending: RefCell::default(),
            pending_bytes: Cell::new(0),
            files: RefCell::default(),
            open: RefCell::default(),
            next_number: Cell::new(1),
            added: Cell::new(0),
            settled: Cell::new(0),
            losses: Cell::new(0),
            wants_sync: Cell::new(false),
            progress: Cell::new((0, 0)),
        }
    }

    /// Bytes in memory and in files.
    fn bytes(&self) -> u64 {
        let files: u64 = self.files.borrow().iter().map(|file| file.bytes).sum();
        let open = self.open.borrow().as_ref().map_or(0, |open| open.listed.bytes);
        self.pending_bytes.get() + files + open
    }

    /// Number of files, and when the oldest and the newest of them were made.
    pub(super) fn span(&self) -> Option<(usize, i64, i64)> {
        let (files, open) = (self.files.borrow(), self.open.borrow());
        let all = || files.iter().chain(open.as_ref().map(|open| &open.listed)).map(|file| file.created_us);
        Some((all().count(), all().min()?, all().max()?))
    }

    /// The complete file that is delivered next.
    pub(super) fn oldest(&self) -> Option<HintFile> {
        self.files.borrow().front().cloned()
    }

    /// Whether it has hints.
    pub(super) fn has_hints(&self) -> bool {
        self.span().is_some() || !self.pending.borrow().is_empty()
    }

    /// Takes a batch of pending hints of about so many bytes.
    pub(super) fn take_pending(&self, bytes_max: usize) -> Vec<Hint> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        let mut pending = self.pending.borrow_mut();
        while let Some(hint) = pending.front() {
            if !taken.is_empty() && bytes + hint.file_bytes() > bytes_max {
                break;
            }
            bytes += hint.file_bytes();
            taken.extend(pending.pop_front());
        }
        taken
    }
}

/// Hints of one shard.
pub(super) struct Store {
    pub(super) folder: PathBuf,
    pub(super) shard: usize,
    shards: usize,
    pub(super) segment_bytes: u64,
    /// Most bytes for one host on this shard; `None` for no limit of its own.
    host_bytes_max: Option<u64>,
    /// Most bytes for all hosts, from the free space.
    bytes_max: Cell<u64>,
    entry_bytes_max: usize,
    hosts: RefCell<BTreeMap<[u8; 16], Rc<Host>>>,
    buffered: Cell<usize>,
    /// Counts the buffered bytes as memory of the shard.
    charge: RefCell<Box<dyn FnMut(usize)>>,
    /// One changes files at a time.
    pub(super) turn: Semaphore,
    /// Notified when there is work for the writer.
    pub(super) wanted: Event,
    /// Notified when hints became durable or were lost.
    pub(super) settled: Event,
    pub(super) metrics: Rc<HintsMetrics>,
}

/// How a store is set up.
pub(super) struct StoreOptions {
    pub(super) folder: PathBuf,
    pub(super) segment_bytes: u64,
    pub(super) host_bytes_max: Option<u64>,
    pub(super) entry_bytes_max: usize,
    pub(super) charge: Box<dyn FnMut(usize)>,
}

/// Shard and number in a file's name.
fn parse_name(name: &str) -> Option<(usize, u64)> {
    let (shard, number) = name.strip_suffix(".hints")?.split_once('-')?;
    Some((shard.parse().ok()?, number.parse().ok()?))
}

impl Store {
    /// The store of this shard, with the files that earlier starts left.
    ///
    /// # Errors
    /// File errors.
    pub(super) async fn open(options: StoreOptions, metrics: Rc<HintsMetrics>) -> Result<Self, HintsError> {
        let StoreOptions { folder, segment_bytes, host_bytes_max, entry_bytes_max, charge } = options;
        let store = Self {
            folder,
            shard: reactor::shard_id(),
            shards: reactor::shard_count(),
            segment_bytes,
            host_bytes_max,
            bytes_max: Cell::new(0),
            entry_bytes_max,
            hosts: RefCell::default(),
            buffered: Cell::new(0),
            charge: RefCell::new(charge),
            turn: Semaphore::new(1),
            wanted: Event::new(),
            settled: Event::new(),
            metrics,
        };
        let failed = |error| HintsError::io("make", &store.folder, error);
        file::create_dir_all(&store.folder).await.map_err(failed)?;
        if let Some(parent) = store.folder.parent() {
            file::sync_dir(parent).await.map_err(failed)?;
        }
        let failed = |error| HintsError::io("list", &store.folder, error);
        for entry in file::read_dir(&store.folder).await.map_err(failed)? {
            let id = model::hex::parse(&entry.name).and_then(|id| <[u8; 16]>::try_from(id).ok());
            if let Some(id) = id.filter(|_| entry.is_dir) {
                store.survey(id, &store.folder.join(&entry.name)).await?;
            }
        }
        store.measure().await;
        Ok(store)
    }

    /// Lists the files for a host; those of shards that this start has not are a remaining shard's.
    async fn survey(&self, id: [u8; 16], folder: &Path) -> Result<(), HintsError> {
        let failed = |error| HintsError::io("list", folder, error);
        let mut found = Vec::new();
        for entry in file::read_dir(folder).await.map_err(failed)? {
            let Some((shard, number)) = parse_name(&entry.name) else { continue };
            if shard % self.shards != self.shard {
                continue;
            }
            let path = folder.join(&entry.name);
            match reader::header(&path).await? {
                (Ok(header), bytes) if header.host == id => {
                    let created_us = header.created_us;
                    found.push(HintFile { path, number, bytes, created_us });
                }
                (Err(BadHeader::Cut), _) => self.delete(&path).await,
                _ => self.keep_aside(&path, 0).await,
            }
        }
        if found.is_empty() {
            return Ok(());
        }
        found.sort_by(|a, b| (a.created_us, a.number, &a.path).cmp(&(b.created_us, b.number, &b.path)));
        let host = self.host(id);
        host.next_number.set(found.iter().map(|file| file.number).max().unwrap_or(0) + 1);
        host.files.borrow_mut().extend(found);
        Ok(())
    }

    /// The hints for a host.
    pub(super) fn host(&self, id: [u8; 16]) -> Rc<Host> {
        Rc::clone(self.hosts.borrow_mut().entry(id).or_insert_with(|| Rc::new(Host::new(id))))
    }

    /// The hosts that there are or were hints for.
    pub(super) fn hosts(&self) -> Vec<Rc<Host>> {
        self.hosts.borrow().values().cloned().collect()
    }

    /// When the oldest file for a host was made.
    pub(super) fn oldest_us(&self, id: &[u8; 16]) -> Option<i64> {
        let hosts = self.hosts.borrow();
        hosts.get(id)?.span().map(|(_, oldest, _)| oldest)
    }

    /// Most bytes of an entry that is taken for one.
    pub(super) fn entry_bytes_max(&self) -> usize {
        self.entry_bytes_max
    }

    /// Adds a hint for a host; the writer takes it soon.
    ///
    /// # Errors
    /// [`HintsError::Full`]: it is not kept.
    pub(super) fn add(&self, id: [u8; 16], hint: Hint) -> Result<(), HintsError> {
        let bytes = hint.file_bytes();
        let host = self.host(id);
        let check = |of: &'static str, used: u64, limit: u64| {
            if used.saturating_add(bytes as u64) <= limit {
                return Ok(());
            }
            self.metrics.dropped.inc();
            Err(HintsError::Full { of, used, limit })
        };
        check("in memory", self.buffered.get() as u64, BUFFER_BYTES_MAX as u64)?;
        if let Some(limit) = self.host_bytes_max {
            check("for one host", host.bytes(), limit)?;
        }
        check("in all", self.bytes(), self.bytes_max.get())?;
        self.set_buffered(self.buffered.get() + bytes);
        host.pending_bytes.set(host.pending_bytes.get() + bytes as u64);
        host.pending.borrow_mut().push_back(hint);
        host.added.set(host.added.get() + 1);
        self.wanted.notify_all();
        Ok(())
    }

    /// Notes that pending hints were written or lost.
    pub(super) fn took(&self, host: &Host, hints: &[Hint]) {
        let bytes: usize = hints.iter().map(Hint::file_bytes).sum();
        assert!(self.buffered.get() >= bytes, "{bytes} of {} buffered bytes leave", self.buffered.get());
        self.set_buffered(self.buffered.get() - bytes);
        host.pending_bytes.set(host.pending_bytes.get() - bytes as u64);
    }

    fn set_buffered(&self, bytes: usize) {
        self.buffered.set(bytes);
        self.metrics.in_progress.set(bytes as i64);
        (self.charge.borrow_mut())(bytes);
    }

    /// Bytes for all hosts.
    fn bytes(&self) -> u64 {
        self.hosts.borrow().values().map(|host| host.bytes()).sum()
    }

    /// Learns how much space hints may take: a tenth of what is free and of what they have.
    pub(super) async fn measure(&self) {
        if self.hosts.borrow().is_empty() && self.bytes_max.get() > 0 {
            // Measured when the store was opened; nothing has come since.
            return;
        }
        let used = self.bytes();
        self.metrics.file_bytes.set(i64::try_from(used).unwrap_or(i64::MAX));
        match file::available_space(&self.folder).await {
            Ok(free) => self.bytes_max.set((free / self.shards as u64).saturating_add(used) / DISK_PART),
            Err(error) => {
                reactor::warn_limited!("cannot tell how much space hints may take: {error}"; path = self.folder.display());
            }
        }
    }

    /// Lists a file as complete.
    pub(super) fn complete(&self, host: &Host, listed: HintFile) {
        if listed.bytes > HEADER_BYTES as u64 {
            host.files.borrow_mut().push_back(listed);
        }
    }

    /// Forgets the oldest file for a host, which was delivered, and removes it.
    pub(super) async fn remove(&self, host: &Host, listed: &HintFile, damage: Option<u64>) {
        let first = host.files.borrow_mut().pop_front();
        assert_eq!(first.as_ref(), Some(listed), "the oldest file is the one that was delivered");
        match damage {
            Some(offset) => self.keep_aside(&listed.path, offset).await,
            None => self.delete(&listed.path).await,
        }
    }

    async fn delete(&self, path: &Path) {
        if let Err(error) = file::remove_file(path).await {
            // Delivered again by the next start, which changes nothing.
            reactor::warn_limited!("cannot remove a file of hints: {error}"; path = path.display());
        }
    }

    /// Renames a damaged file, so that no start reads it again and somebody can look into it.
    async fn keep_aside(&self, path: &Path, offset: u64) {
        self.metrics.corrupted_files.inc();
        let mut aside = path.as_os_str().to_owned();
        aside.push(".damaged");
        reactor::error!("a file of hints is damaged: its intact hints were taken, and it is kept aside";
            path = path.display(), offset = offset);
        if let Err(error) = file::rename(path, &aside).await {
            reactor::warn!("cannot keep a damaged file of hints aside: {error}"; path = path.display());
        }
    }
}
