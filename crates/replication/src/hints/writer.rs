//! The task that writes a shard's hints to files, and makes them durable at intervals.
//!
//! Hints reach the kernel as soon as the task has its turn; they are synced each `sync_every`, when somebody
//! waits for it ([`Store::synced`]), and at the end. Invariant: a file whose writing or syncing failed gets
//! no further hint, because it is unknown which of its bytes are on the disk.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use reactor::Deadline;
use reactor::file::{self, AlignedBuf, File, OpenOptions};

use super::HintsError;
use super::format::{HEADER_BYTES, Header, Hint};
use super::store::{HintFile, Host, OpenFile, Store};

/// Bytes of one write.
const WRITE_BYTES: usize = 1 << 20;

impl Store {
    /// Writes hints until `is_ending` says so and `wanted` is notified; then writes and syncs the rest.
    pub(super) async fn run(&self, sync_every: Duration, is_ending: &Cell<bool>) {
        let mut sync_at = reactor::now() + sync_every;
        loop {
            let has_work = || {
                let wants = |host: &Rc<Host>| host.wants_sync.get() || !host.pending.borrow().is_empty();
                is_ending.get() || self.hosts().iter().any(wants)
            };
            let until = Deadline::after(sync_at - reactor::now());
            let _in_time = reactor::timeout(until, self.wanted.wait_until(has_work)).await;
            let ends = is_ending.get();
            let is_due = reactor::now() >= sync_at;
            self.write_all(is_due || ends).await;
            if ends {
                return;
            }
            if is_due {
                self.measure().await;
                sync_at = reactor::now() + sync_every;
            }
        }
    }

    async fn write_all(&self, syncs: bool) {
        let Ok(_turn) = self.turn.acquire(1).await else { return };
        for host in self.hosts() {
            let upto = host.added.get();
            let written = self.write(&host).await;
            let result = match written {
                Ok(()) if syncs || host.wants_sync.get() => self.sync(&host).await.map(|()| true),
                Ok(()) => Ok(false),
                Err(error) => Err(error),
            };
            match result {
                Ok(false) => {}
                Ok(true) => {
                    // Hints that came meanwhile are not among them.
                    host.wants_sync.set(host.wants_sync.get() && host.added.get() > upto);
                    host.settled.set(upto);
                }
                Err(error) => {
                    reactor::error_limited!("hints are lost"; error = error);
                    host.losses.set(host.losses.get() + 1);
                    host.settled.set(upto);
                    host.wants_sync.set(false);
                }
            }
            self.settled.notify_all();
        }
    }

    /// Writes the pending hints for a host.
    async fn write(&self, host: &Host) -> Result<(), HintsError> {
        // Ends: hints that come meanwhile are few, because their memory is bounded.
        loop {
            let hints = host.take_pending(WRITE_BYTES);
            if hints.is_empty() {
                return Ok(());
            }
            let written = self.append(host, &hints).await;
            self.took(host, &hints);
            match written {
                Ok(()) => self.metrics.written.add(hints.len() as u64),
                Err(error) => {
                    self.metrics.errors.add(hints.len() as u64);
                    self.give_up(host);
                    return Err(error);
                }
            }
            let is_full = |open: &OpenFile| open.listed.bytes >= self.segment_bytes;
            if host.open.borrow().as_ref().is_some_and(is_full) {
                self.seal(host).await?;
            }
        }
    }

    async fn append(&self, host: &Host, hints: &[Hint]) -> Result<(), HintsError> {
        if host.open.borrow().is_none() {
            let open = self.create(host).await?;
            host.open.replace(Some(open));
        }
        let (file, path, salt, begin) = {
            let open = host.open.borrow();
            let open = open.as_ref().expect("a file was opened");
            open.is_synced.set(false);
            (open.file.clone(), open.listed.path.clone(), open.salt, open.listed.bytes)
        };
        let mut bytes = Vec::new();
        for hint in hints {
            hint.append(salt, begin + bytes.len() as u64, &mut bytes);
        }
        let mut buf = AlignedBuf::with_len(bytes.len());
        buf.copy_from_slice(&bytes);
        file.write_at(begin, buf).await.0.map_err(|error| HintsError::io("write", &path, error))?;
        let mut open = host.open.borrow_mut();
        open.as_mut().expect("only this task closes files").listed.bytes += bytes.len() as u64;
        Ok(())
    }

    async fn create(&self, host: &Host) -> Result<OpenFile, HintsError> {
        let folder = self.folder.join(model::hex::text(&host.id));
        let failed = |error| HintsError::io("make", &folder, error);
        file::create_dir_all(&folder).await.map_err(failed)?;
        file::sync_dir(&self.folder).await.map_err(failed)?;
        let number = host.next_number.get();
        host.next_number.set(number + 1);
        let path = folder.join(format!("{}-{number}.hints", self.shard));
        let failed = |error| HintsError::io("make", &path, error);
        let options = OpenOptions::new().read(true).write(true).create_new(true);
        let file = File::open(&path, options).await.map_err(failed)?;
        let (created_us, salt) = (reactor::wall_clock_us(), reactor::random_u64() as u32);
        let header = Header { host: host.id, created_us, salt }.encode();
        assert_eq!(header.len(), HEADER_BYTES, "a header has its bytes");
        let mut buf = AlignedBuf::with_len(header.len());
        buf.copy_from_slice(&header);
        file.write_at(0, buf).await.0.map_err(failed)?;
        file.sync_all().await.map_err(failed)?;
        file::sync_dir(&folder).await.map_err(|error| HintsError::io("sync", &folder, error))?;
        let listed = HintFile { path, number, bytes: HEADER_BYTES as u64, created_us };
        Ok(OpenFile { file, salt, listed, is_synced: Cell::new(true) })
    }

    /// Makes what was written for a host durable.
    async fn sync(&self, host: &Host) -> Result<(), HintsError> {
        let unsynced = {
            let open = host.open.borrow();
            let open = open.as_ref().filter(|open| !open.is_synced.get());
            open.map(|open| (open.file.clone(), open.listed.path.clone()))
        };
        let Some((file, path)) = unsynced else { return Ok(()) };
        if let Err(error) = file.fdatasync().await {
            self.give_up(host);
            return Err(HintsError::io("sync", &path, error));
        }
        if let Some(open) = host.open.borrow().as_ref() {
            open.is_synced.set(true);
        }
        Ok(())
    }

    /// Completes the open file, durably.
    async fn seal(&self, host: &Host) -> Result<(), HintsError> {
        self.sync(host).await?;
        self.give_up(host);
        Ok(())
    }

    /// Appends nothing more to the open file; what is intact in it will be delivered.
    fn give_up(&self, host: &Host) {
        if let Some(open) = host.open.take() {
            self.complete(host, open.listed);
        }
    }

    /// Completes the open file for a host, so that it can be delivered.
    ///
    /// # Errors
    /// File errors.
    pub(super) async fn rotate(&self, host: &Host) -> Result<(), HintsError> {
        let Ok(_turn) = self.turn.acquire(1).await else { return Err(HintsError::Ended) };
        self.seal(host).await
    }

    /// Waits until all hints that were added for a host by now are durable.
    ///
    /// # Errors
    /// [`HintsError::NotWritten`] if some were lost meanwhile, or the deadline passed.
    pub(super) async fn synced(&self, host: &Host, deadline: Deadline) -> Result<(), HintsError> {
        let (upto, losses) = (host.added.get(), host.losses.get());
        host.wants_sync.set(true);
        self.wanted.notify_all();
        let settled = self.settled.wait_until(|| host.settled.get() >= upto);
        let in_time = reactor::timeout(deadline, settled).await.is_ok();
        if in_time && host.losses.get() == losses { Ok(()) } else { Err(HintsError::NotWritten) }
    }
}
