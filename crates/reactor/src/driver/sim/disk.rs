//! A simulated node's disk: files in memory, with what a crash, a full or a failing device does to them.
//!
//! Fault model: a write is visible when it completes and durable after a later sync of its file. At a crash
//! every unsynced write is, by chance, there, gone, or torn at 512-byte sectors; length changes likewise. A
//! failed sync marks its writes as clean without their being durable, as Linux does, so a second sync proves
//! nothing. Names: see `names`. Reads, writes and syncs fail with given probabilities.

mod outside;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::Path;

pub use outside::TakenAway;

use super::content::Content;
use super::names::{Entry, Names, normal};
use crate::driver::{Handle, HandleKind, Op, Output, PathOp};
use crate::file::buffer::SECTOR_BYTES;
use crate::file::{DirEntry, FileIdentity, OpenOptions, Place};
use crate::io::{DiskModel, is_scheduled};

/// The bytes that a device writes as a whole or not at all.
const SECTOR: usize = SECTOR_BYTES as usize;

/// The faults of a simulated disk, and its latency.
#[derive(Debug, Clone)]
pub struct DiskFaults {
    /// Probability that a read fails with EIO.
    pub read_error: f64,
    /// Probability that a write fails with EIO.
    pub write_error: f64,
    /// Probability that a sync fails with EIO; its writes then may be lost.
    pub sync_error: f64,
    /// Bytes the device holds; beyond it writes fail with ENOSPC.
    pub capacity_bytes: u64,
    /// Shortest and longest service time, in nanoseconds; each request draws its own.
    pub latency_ns: (u64, u64),
    /// Serves one request after the other, each in the time this gives it, before its latency begins; `None`
    /// serves all at once.
    pub speed: Option<DiskModel>,
    /// Whether a crash loses and tears unsynced writes and names; otherwise it keeps what had completed.
    pub lose_unsynced: bool,
}

impl Default for DiskFaults {
    /// No errors, 1 TiB, 20 to 200 µs, and a crash loses what was not synced.
    fn default() -> Self {
        Self {
            read_error: 0.0,
            write_error: 0.0,
            sync_error: 0.0,
            capacity_bytes: 1 << 40,
            latency_ns: (20_000, 200_000),
            speed: None,
            lose_unsynced: true,
        }
    }
}

/// One change of a file's content that no sync has covered.
enum Unsynced {
    Write { offset: usize, bytes: Vec<u8> },
    Length(usize),
}

#[derive(Default)]
struct Inode {
    current: Content,
    durable: Content,
    /// Changes no sync has covered, each with its number.
    unsynced: Vec<(u64, Unsynced)>,
    changes: u64,
    open: usize,
}

impl Inode {
    fn apply(target: &mut Content, change: &Unsynced) {
        match change {
            Unsynced::Write { offset, bytes } => target.write(*offset, bytes),
            Unsynced::Length(length) => target.resize(*length),
        }
    }

    fn change(&mut self, change: Unsynced) {
        Self::apply(&mut self.current, &change);
        self.note(change);
    }

    fn note(&mut self, change: Unsynced) {
        self.unsynced.push((self.changes, change));
        self.changes += 1;
    }
}

struct Descriptor {
    inode: u64,
    read: bool,
    write: bool,
    lock: bool,
}

/// One node's disk. It survives crashes of the node.
pub(super) struct Disk {
    pub(super) faults: DiskFaults,
    names: Names,
    inodes: BTreeMap<u64, Inode>,
    next_inode: u64,
    descriptors: BTreeMap<i32, Descriptor>,
    next_descriptor: i32,
    /// When it has served all it was given, at its speed.
    free_at_ns: u64,
}

/// Chance, as the disk needs it.
pub(super) trait Chance {
    fn below(&mut self, limit: u64) -> u64;
    fn chance(&mut self, probability: f64) -> bool;
}

fn error(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

fn to_usize(number: u64) -> io::Result<usize> {
    usize::try_from(number).map_err(|_| error(libc::EFBIG))
}

impl Disk {
    pub(super) fn new(faults: DiskFaults) -> Self {
        Self {
            faults,
            names: Names::new(),
            inodes: BTreeMap::new(),
            next_inode: 1,
            descriptors: BTreeMap::new(),
            next_descriptor: 1,
            free_at_ns: 0,
        }
    }

    /// How long a request that comes now stands behind others and is served itself, without its latency.
    pub(super) fn busy_ns(&mut self, op: &Op, now_ns: u64) -> u64 {
        let Some(speed) = self.faults.speed.filter(|_| is_scheduled(op)) else { return 0 };
        let cost_ns = speed.cost_ns(matches!(op, Op::Read { .. }), op.bytes() as u64);
        self.free_at_ns = self.free_at_ns.max(now_ns) + cost_ns;
        self.free_at_ns - now_ns
    }

    fn used(&self) -> u64 {
        self.inodes.values().map(|inode| inode.current.len() as u64).sum()
    }

    fn check_space(&self, inode: u64, length: usize) -> io::Result<()> {
        let present = self.inodes.get(&inode).map_or(0, |inode| inode.current.len());
        let more = length.saturating_sub(present) as u64;
        if more > 0 && self.used() + more > self.faults.capacity_bytes {
            return Err(error(libc::ENOSPC));
        }
        Ok(())
    }

    fn descriptor(&self, handle: &Handle) -> io::Result<&Descriptor> {
        self.descriptors.get(&handle.descriptor()).ok_or_else(|| error(libc::EBADF))
    }

    fn inode(&mut self, handle: &Handle, write: bool) -> io::Result<(u64, &mut Inode)> {
        let descriptor = self.descriptor(handle)?;
        let allowed = if write { descriptor.write } else { descriptor.read };
        if !allowed {
            return Err(error(libc::EBADF));
        }
        let number = descriptor.inode;
        self.inodes.get_mut(&number).map(|inode| (number, inode)).ok_or_else(|| error(libc::EBADF))
    }

    /// How many changes a sync submitted now will cover: those that have completed.
    pub(super) fn sync_mark(&self, op: &Op) -> u64 {
        let Op::Sync { file, .. } = op else { return 0 };
        let inode = self.descriptor(file).ok().and_then(|descriptor| self.inodes.get(&descriptor.inode));
        inode.map_or(0, |inode| inode.changes)
    }

    /// Serves a request: this is the moment at which it happens.
    pub(super) fn serve(&mut self, op: &mut Op, mark: u64, chance: &mut dyn Chance) -> io::Result<Output> {
        match op {
            Op::Read { file, offset, buf, at } => {
                if chance.chance(self.faults.read_error) {
                    return Err(error(libc::EIO));
                }
                let (_, inode) = self.inode(file, false)?;
                let count = inode.current.read(to_usize(*offset + *at as u64)?, &mut buf[*at..]);
                Ok(Output::Number(count as u64))
            }
            Op::Write { file, offset, buf, at } => {
                if chance.chance(self.faults.write_error) {
                    return Err(error(libc::EIO));
                }
                let offset = to_usize(*offset + *at as u64)?;
                let bytes = buf[*at..].to_vec();
                let (number, _) = self.inode(file, true)?;
                self.check_space(number, offset.checked_add(bytes.len()).ok_or_else(|| error(libc::EFBIG))?)?;
                let count = bytes.len() as u64;
                self.inode(file, true)?.1.change(Unsynced::Write { offset, bytes });
                Ok(Output::Number(count))
            }
            Op::Sync { file, .. } => {
                let failed = chance.chance(self.faults.sync_error);
                let number = self.descriptor(file)?.inode;
                let inode = self.inodes.get_mut(&number).ok_or_else(|| error(libc::EBADF))?;
                let covered = inode.unsynced.partition_point(|(number, _)| *number < mark);
                for (_, change) in inode.unsynced.drain(..covered) {
                    if !failed || chance.below(2) == 0 {
                        Inode::apply(&mut inode.durable, &change);
                    }
                }
                if failed { Err(error(libc::EIO)) } else { Ok(Output::Done) }
            }
            // What is on its way is not durable: a crash takes any part of it, as of all that is not synced.
            Op::Writeback { file, .. } => self.inode(file, true).map(|_| Output::Done),
            Op::Allocate { file, offset, len } => {
                let len = to_usize(offset.saturating_add(*len))?;
                let (number, inode) = self.inode(file, true)?;
                if len > inode.current.len() {
                    self.check_space(number, len)?;
                    self.inode(file, true)?.1.change(Unsynced::Length(len));
                }
                Ok(Output::Done)
            }
            Op::Truncate { file, len } => {
                let len = to_usize(*len)?;
                let (number, _) = self.inode(file, true)?;
                self.check_space(number, len)?;
                self.inode(file, true)?.1.change(Unsynced::Length(len));
                Ok(Output::Done)
            }
            Op::Size { file } => {
                let number = self.descriptor(file)?.inode;
                let inode = self.inodes.get(&number).ok_or_else(|| error(libc::EBADF))?;
                Ok(Output::Number(inode.current.len() as u64))
            }
            Op::Path(op) => self.serve_path(op, chance),
            Op::Accept { .. } | Op::Connect { .. } | Op::Send { .. } => Err(error(libc::EINVAL)),
        }
    }

    fn serve_path(&mut self, op: &PathOp, chance: &mut dyn Chance) -> io::Result<Output> {
        match op {
            PathOp::Open(path, options) => self.open(&normal(path), *options),
            PathOp::Rename(from, to) => self.names.rename(&normal(from), &normal(to)).map(|()| Output::Done),
            PathOp::RemoveFile(path) => {
                let path = normal(path);
                self.names.remove_file(&path)?;
                self.collect_garbage();
                Ok(Output::Done)
            }
            PathOp::CreateDirAll(path) => self.names.create_dir_all(&normal(path)).map(|()| Output::Done),
            PathOp::RemoveDirAll(path) => {
                self.names.remove_dir(&normal(path), true)?;
                self.collect_garbage();
                Ok(Output::Done)
            }
            PathOp::RemoveDir(path) => self.names.remove_dir(&normal(path), false).map(|()| Output::Done),
            PathOp::HardLink(from, to) => {
                let inode = self.names.file(&normal(from))?;
                self.names.add_file(&normal(to), inode).map(|()| Output::Done)
            }
            PathOp::SyncDir(path) => {
                if chance.chance(self.faults.sync_error) {
                    return Err(error(libc::EIO));
                }
                self.names.sync(&normal(path))?;
                self.collect_garbage();
                Ok(Output::Done)
            }
            PathOp::ReadDir(path) => {
                let entries = self.names.list(&normal(path))?;
                Ok(Output::Entries(
                    entries
                        .into_iter()
                        .map(|(name, entry)| match entry {
                            Entry::Directory => DirEntry { name, is_dir: true, size: 0 },
                            Entry::File(inode) => DirEntry { name, is_dir: false, size: self.length(inode) },
                        })
                        .collect(),
                ))
            }
            PathOp::MetadataSize(path) => match self.names.get(&normal(path)) {
                Some(Entry::File(inode)) => Ok(Output::Number(self.length(inode))),
                Some(Entry::Directory) => Ok(Output::Number(0)),
                None => Err(error(libc::ENOENT)),
            },
            PathOp::AvailableSpace(_) => {
                Ok(Output::Number(self.faults.capacity_bytes.saturating_sub(self.used())))
            }
            PathOp::Ancestry(path) => {
                let path = normal(path);
                self.names.get(&path).ok_or_else(|| error(libc::ENOENT))?;
                Ok(Output::Ancestry(path.ancestors().map(|path| self.place(path)).collect()))
            }
            PathOp::Lock(path) => self.lock(&normal(path)),
        }
    }

    /// A folder is its path here: nothing leads to it by another name.
    fn place(&self, path: &Path) -> Place {
        let inode = match self.names.get(path) {
            Some(Entry::File(inode)) => inode,
            _ => {
                let mut hasher = DefaultHasher::new();
                path.hash(&mut hasher);
                hasher.finish()
            }
        };
        Place { path: path.to_owned(), identity: FileIdentity { device: 0, inode } }
    }

    fn length(&self, inode: u64) -> u64 {
        self.inodes.get(&inode).map_or(0, |inode| inode.current.len() as u64)
    }

    fn create(&mut self, path: &Path) -> io::Result<u64> {
        let inode = self.next_inode;
        self.names.add_file(path, inode)?;
        self.next_inode += 1;
        self.inodes.insert(inode, Inode::default());
        Ok(inode)
    }

    fn open(&mut self, path: &Path, options: OpenOptions) -> io::Result<Output> {
        let inode = match self.names.file(path) {
            Ok(_) if options.create_new => return Err(error(libc::EEXIST)),
            Ok(inode) => inode,
            Err(missing) if missing.raw_os_error() == Some(libc::ENOENT) => {
                if !(options.create || options.create_new) {
                    return Err(missing);
                }
                self.create(path)?
            }
            Err(other) => return Err(other),
        };
        if options.truncate
            && let Some(file) = self.inodes.get_mut(&inode)
            && file.current.len() > 0
        {
            file.change(Unsynced::Length(0));
        }
        let handle =
            self.describe(Descriptor { inode, read: options.read, write: options.write, lock: false });
        Ok(Output::File { handle, direct: options.direct, read_alignment: SECTOR_BYTES, device: 0 })
    }

    fn describe(&mut self, descriptor: Descriptor) -> Handle {
        if let Some(inode) = self.inodes.get_mut(&descriptor.inode) {
            inode.open += 1;
        }
        let number = self.next_descriptor;
        self.next_descriptor =
            self.next_descriptor.checked_add(1).expect("fewer than 2^31 opens in one simulation");
        self.descriptors.insert(number, descriptor);
        Handle::new(number, HandleKind::SimFile)
    }

    fn lock(&mut self, path: &Path) -> io::Result<Output> {
        let inode = match self.names.file(path) {
            Ok(inode) => inode,
            Err(missing) if missing.raw_os_error() == Some(libc::ENOENT) => self.create(path)?,
            Err(other) => return Err(other),
        };
        if self.descriptors.values().any(|held| held.lock && held.inode == inode) {
            return Err(error(libc::EWOULDBLOCK));
        }
        let handle = self.describe(Descriptor { inode, read: true, write: true, lock: true });
        Ok(Output::File { handle, direct: false, read_alignment: SECTOR_BYTES, device: 0 })
    }

    pub(super) fn close(&mut self, descriptor: i32) {
        if let Some(closed) = self.descriptors.remove(&descriptor)
            && let Some(inode) = self.inodes.get_mut(&closed.inode)
        {
            inode.open -= 1;
            if inode.open == 0 && !self.names.refers_to(closed.inode) {
                self.inodes.remove(&closed.inode);
            }
        }
    }

    fn collect_garbage(&mut self) {
        let mut named: Vec<u64> = self.names.inodes().collect();
        named.sort_unstable();
        self.inodes.retain(|number, inode| inode.open > 0 || named.binary_search(number).is_ok());
    }

    /// Power is lost. `in_flight` are writes the device had been given and had not finished.
    pub(super) fn crash(&mut self, in_flight: &[&Op], chance: &mut dyn Chance) {
        for op in in_flight {
            if let Op::Write { file, offset, buf, at } = *op
                && let (Ok(offset), Some(descriptor)) =
                    (to_usize(*offset + *at as u64), self.descriptors.get(&file.descriptor()))
                && let Some(inode) = self.inodes.get_mut(&descriptor.inode)
            {
                inode.note(Unsynced::Write { offset, bytes: buf[*at..].to_vec() });
            }
        }
        let lose = self.faults.lose_unsynced;
        for inode in self.inodes.values_mut() {
            inode.open = 0;
            for (_, change) in std::mem::take(&mut inode.unsynced) {
                match (lose, chance.below(4), change) {
                    (false, _, change) | (true, 0, change) => Inode::apply(&mut inode.durable, &change),
                    (true, 1 | 2, Unsynced::Write { offset, bytes }) => {
                        tear(&mut inode.durable, offset, &bytes, chance);
                    }
                    _ => {}
                }
            }
            inode.current = inode.durable.clone();
        }
        self.descriptors.clear();
        self.names.crash(|count| if lose { chance.below(count as u64 + 1) as usize } else { count });
        self.collect_garbage();
    }
}

/// Writes some of the sectors that `bytes` at `offset` touch.
fn tear(target: &mut Content, offset: usize, bytes: &[u8], chance: &mut dyn Chance) {
    let mut at = 0;
    while at < bytes.len() {
        let end = (at + SECTOR - (offset + at) % SECTOR).min(bytes.len());
        if chance.below(2) == 0 {
            target.write(offset + at, &bytes[at..end]);
        }
        at = end;
    }
}
