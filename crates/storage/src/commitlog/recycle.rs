//! Keeps a segment ready before it is needed, and takes back free ones. A shard with few writes takes little
//! space: its first segment reserves its space with its first entry, and another is made ready when part of
//! that one is full.
//!
//! A file that was written once is faster to make durable than a fresh one, so free files are kept.
//! Invariant: a file begins its next life with a durable header of a new id and salt, before its first entry;
//! so the entries of the life before are not valid any more.

use std::cell::Cell;
use std::rc::Rc;

use reactor::file::{AlignedBuf, File, OpenOptions};

use super::format::{HEADER_BYTES, SegmentHeader};
use super::group::RETRY_EVERY;
use super::replay::OldSegment;
use super::{Active, Commitlog, CommitlogOptions, Inner, Segment, State};
use crate::error::StorageError;
use crate::manifest::{Edit, SegmentKey};

/// Spare segments kept if the log may be small; freed ones beyond that are deleted.
const SPARES_MIN: usize = 2;
/// One part in this many of the log's room may be spare segments. A flush frees many at once, which are soon
/// wanted again, and taking one back costs the disk less than deleting one and making another.
const SPARES_SHARE: u64 = 4;
/// When one part in this many of a segment is full, another segment is made ready.
const BEFORE_NEXT: usize = 4;

impl Commitlog {
    /// The keeper's task.
    pub(super) async fn keep_segments(&self) {
        while !self.0.closing.get() {
            let freed = self.0.state.borrow().freed.front().cloned();
            if let Some(segment) = freed {
                // In order: as long as an entry can be read, the later entries that revoke it can be read
                // too.
                match self.take_back(&segment).await {
                    Ok(()) => drop(self.0.state.borrow_mut().freed.pop_front()),
                    Err(error) => {
                        reactor::warn_limited!("a free commit-log segment cannot be used again or deleted";
                            error = error);
                        self.pause().await;
                    }
                }
                self.0.room.notify_all();
                continue;
            }
            if !self.0.state.borrow().wants_spare(self.0.options.segment_bytes) {
                self.0.keep.wait().await;
                continue;
            }
            let made = self.0.make_segment(true).await;
            let failed = {
                let mut state = self.0.state.borrow_mut();
                match made {
                    Ok(segment) => {
                        state.spares.push_back(segment);
                        state.keeper_failure = None;
                        false
                    }
                    Err(error) => {
                        if state.keeper_failure.is_none() {
                            reactor::error!("there is no new commit-log segment, writes fail when this one is full";
                                error = &error);
                        }
                        state.keeper_failure = Some(error);
                        true
                    }
                }
            };
            self.0.room.notify_all();
            if failed {
                self.pause().await;
            }
        }
    }

    /// Ends the life of a free segment, durably: as a spare one, or by deleting the file.
    async fn take_back(&self, segment: &Segment) -> Result<(), StorageError> {
        let wanted = self.0.state.borrow().spares.len() < self.0.spares_max();
        let path = &segment.path;
        let size = segment.file.size().await.map_err(StorageError::of("measure", path))?;
        if wanted && size == self.0.options.segment_bytes as u64 {
            let header = self.0.next_header();
            self.0.begin_life(&segment.file, path, header).await?;
            let file = segment.file.clone();
            let fresh = Segment {
                seed: header.seed(),
                header,
                slot: segment.slot,
                path: path.clone(),
                file,
                reserved: Cell::new(true),
                uses: Cell::new(0),
                closed: Cell::new(false),
            };
            self.0.state.borrow_mut().spares.push_back(Rc::new(fresh));
            return Ok(());
        }
        self.0.options.manifest.note(&[Edit::SegmentGone(self.0.key(segment))]).await?;
        match reactor::file::remove_file(path).await {
            // An earlier attempt may have deleted it already.
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(StorageError::io("delete", path, error));
            }
            _ => {}
        }
        let directory = &self.0.options.directory;
        reactor::file::sync_dir(directory).await.map_err(StorageError::of("sync", directory))
    }

    /// Deletes spare segments that would only cost the next start time.
    pub(super) async fn delete_surplus(&self) {
        let surplus: Vec<_> = {
            let mut state = self.0.state.borrow_mut();
            let kept = SPARES_MIN.min(state.spares.len());
            state.spares.drain(kept..).collect()
        };
        let gone: Vec<Edit> = surplus.iter().map(|s| Edit::SegmentGone(self.0.key(s))).collect();
        if self.0.options.manifest.note(&gone).await.is_err() {
            return;
        }
        for segment in surplus {
            // A file that stays only makes the next start slower.
            drop(reactor::file::remove_file(&segment.path).await);
        }
    }

    async fn pause(&self) {
        let _ = reactor::timeout(reactor::Deadline::after(RETRY_EVERY), self.0.stopped.wait()).await;
    }
}

impl State {
    /// Whether a segment has to be made ready.
    pub(super) fn wants_spare(&self, segment_bytes: usize) -> bool {
        let full = |active: &Active| active.offset > segment_bytes / BEFORE_NEXT;
        self.spares.is_empty() && self.active.as_ref().is_none_or(full)
    }
}

impl Segment {
    /// Bytes that the file takes.
    pub(super) fn file_bytes(&self, options: &CommitlogOptions) -> usize {
        if self.reserved.get() { options.segment_bytes } else { HEADER_BYTES }
    }

    /// Reserves disk space for the whole file, unless that is done.
    pub(super) async fn reserve(&self, segment_bytes: usize) -> Result<(), StorageError> {
        if !self.reserved.get() {
            let reserved = self.file.fallocate(0, segment_bytes as u64).await;
            reserved.map_err(StorageError::of("reserve space for", &self.path))?;
            self.reserved.set(true);
        }
        Ok(())
    }
}

impl Inner {
    /// The segment's key in the manifest.
    fn key(&self, segment: &Segment) -> SegmentKey {
        (self.options.shard, segment.slot)
    }

    fn spares_max(&self) -> usize {
        let segments = self.options.bytes_max / SPARES_SHARE / self.options.segment_bytes as u64;
        SPARES_MIN.max(usize::try_from(segments).unwrap_or(usize::MAX))
    }

    /// Makes a new file with a durable header and a durable name; `reserved` is whether its space is
    /// reserved at once.
    pub(super) async fn make_segment(&self, reserved: bool) -> Result<Rc<Segment>, StorageError> {
        // A segment that cannot be listed would only take room, at every attempt another one.
        self.options.manifest.check_alive()?;
        let header = self.next_header();
        let (slot, path) = loop {
            let slot = self.state.borrow().next_slot;
            self.state.borrow_mut().next_slot = slot + 1;
            let path = self.options.directory.join(format!("{slot}.log"));
            let is_taken = reactor::file::exists(&path).await;
            if !is_taken.map_err(StorageError::of("look for", &path))? {
                break (slot, path);
            }
        };
        let listed = [Edit::Segment((self.options.shard, slot))];
        let made = match self.create(&path, header, reserved).await {
            Ok(file) => self.options.manifest.note(&listed).await.map(|()| file),
            Err(error) => Err(error),
        };
        match made {
            Ok(file) => Ok(Rc::new(Segment {
                seed: header.seed(),
                header,
                slot,
                path,
                file,
                reserved: Cell::new(reserved),
                uses: Cell::new(0),
                closed: Cell::new(false),
            })),
            Err(error) => {
                // A segment that may be listed durably has to be there at the next start. A partly made file
                // that is not listed is no segment; if it cannot be removed now, the next start removes it.
                if self.options.manifest.check_alive().is_ok() {
                    let _ = reactor::file::remove_file(&path).await;
                }
                Err(error)
            }
        }
    }

    /// Begins a new life in a segment of an earlier process that has all its space and no entries.
    pub(super) async fn begin_unused(&self, unused: &OldSegment) -> Result<Rc<Segment>, StorageError> {
        let header = self.next_header();
        self.begin_life(&unused.file, &unused.path, header).await?;
        Ok(Rc::new(Segment {
            seed: header.seed(),
            header,
            slot: unused.slot,
            path: unused.path.clone(),
            file: unused.file.clone(),
            reserved: Cell::new(true),
            uses: Cell::new(0),
            closed: Cell::new(false),
        }))
    }

    async fn create(
        &self,
        path: &std::path::Path,
        header: SegmentHeader,
        reserved: bool,
    ) -> Result<File, StorageError> {
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(true);
        let file = File::open(path, options).await.map_err(StorageError::of("create", path))?;
        if reserved {
            let reserved = file.fallocate(0, self.options.segment_bytes as u64).await;
            reserved.map_err(StorageError::of("reserve space for", path))?;
        }
        self.begin_life(&file, path, header).await?;
        reactor::file::sync_dir(&self.options.directory)
            .await
            .map_err(StorageError::of("sync", &self.options.directory))?;
        Ok(file)
    }

    async fn begin_life(
        &self,
        file: &File,
        path: &std::path::Path,
        header: SegmentHeader,
    ) -> Result<(), StorageError> {
        let mut buf = AlignedBuf::with_len(HEADER_BYTES);
        header.encode(&mut buf);
        file.write_at(0, buf).await.0.map_err(StorageError::of("write", path))?;
        file.fdatasync().await.map_err(StorageError::of("sync", path))
    }

    fn next_header(&self) -> SegmentHeader {
        let mut state = self.state.borrow_mut();
        let id = state.next_id;
        state.next_id += 1;
        SegmentHeader {
            id,
            shard: self.options.shard,
            salt: reactor::random_u64() as u32,
            boot: self.options.boot,
        }
    }
}
