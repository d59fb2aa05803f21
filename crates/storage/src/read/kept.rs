//! Scans that stopped because their reader had enough, kept for the reader's next page.
//!
//! A page of a scan opens its table files at the place where the page before ended: it finds the place by the
//! index and reads a chunk of each file, of which the page before used a part. A kept scan has that place and
//! the bytes that were read and not used. It is found by what it reads and where it stands, not by who reads:
//! whoever continues there takes it. A scan that is not kept any more is opened anew, with the same result.
//!
//! Invariant: what is taken continues over the files that the tablet has at that moment, with their rows read
//! as those of the table at that moment; memtables are always looked into anew. A kept scan holds its files
//! open, removed or not, for [`KEPT_FOR`] at most, and its bytes are charged to the shard's budget.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::time::Duration;

use memory::{Budget, Charge, Kind};
use model::tablet::TabletId;
use model::{Table, Token};
use reactor::metrics::{self, Counter};
use reactor::{Group, Instant};

use super::scan::{FileScan, TabletScan};
use super::{PartitionBound, ReadCommand, Slices};
use crate::tablet::{TableFile, Tablet};

/// How long a scan waits for its next page; a look each half of it ends those that waited longer.
const KEPT_FOR: Duration = Duration::from_secs(2);
/// Most scans that are kept, and the part of the memtables' memory (one in so many) that they may take.
const KEPT_MAX: usize = 256;
const MEMORY_PART: usize = 32;

/// The kept scans of one shard.
pub(crate) struct KeptScans(Rc<Inner>);

struct Inner {
    budget: Budget,
    bytes_max: usize,
    bytes: Cell<usize>,
    /// The one that waits longest first.
    scans: RefCell<VecDeque<Kept>>,
    /// Whether a task looks for scans that waited too long.
    is_watched: Cell<bool>,
    resumed: Rc<Counter>,
    opened: Rc<Counter>,
}

struct Kept {
    tablet: TabletId,
    /// The table when the scan was opened: an altered one is another.
    table: Rc<Table>,
    /// The tablet's set of files then; another set is another allocation.
    set: Weak<Vec<Rc<TableFile>>>,
    slices: Slices,
    /// Key of the partition in which the scan stopped; it continues behind it.
    at: (Token, Vec<u8>),
    to: PartitionBound,
    files: Vec<FileScan>,
    bytes: usize,
    _charge: Charge,
    since: Instant,
}

impl KeptScans {
    /// None yet, on a shard with `memory_bytes` for memtables.
    pub(crate) fn new(budget: Budget, memory_bytes: usize) -> Self {
        let counted = |name: &'static str, help: &'static str| metrics::counter(name, help, &[]);
        Self(Rc::new(Inner {
            budget,
            bytes_max: memory_bytes / MEMORY_PART,
            bytes: Cell::new(0),
            scans: RefCell::default(),
            is_watched: Cell::new(false),
            resumed: counted(
                "ceto_scans_resumed",
                "Tablets scanned on from where the page before had stopped",
            ),
            opened: counted("ceto_scans_opened", "Tablets of which a scan opened the table files anew"),
        }))
    }

    /// Keeps a scan that stopped in the partition it stands at, whose token this is.
    pub(super) fn keep(&self, tablet: &Tablet, scan: TabletScan, token: Token, command: &ReadCommand) {
        let inner = &self.0;
        let TabletScan { set, table, mut files, key, to, .. } = scan;
        if command.reversed || files.is_empty() || files.iter().any(|file| file.scanner.is_none()) {
            return;
        }
        let bytes = files.iter().map(FileScan::bytes_in_memory).sum::<usize>();
        if bytes > inner.bytes_max / 4 {
            return;
        }
        // The memory for long rows is the read's, which ends.
        files.iter_mut().for_each(|file| file.set_room(None));
        let mut scans = inner.scans.borrow_mut();
        while scans.len() >= KEPT_MAX || inner.bytes.get() + bytes > inner.bytes_max {
            let Some(oldest) = scans.pop_front() else { break };
            inner.forget(&oldest);
        }
        inner.bytes.set(inner.bytes.get() + bytes);
        scans.push_back(Kept {
            tablet: tablet.id,
            table,
            set,
            slices: command.slices.clone(),
            at: (token, key),
            to,
            files,
            bytes,
            _charge: inner.budget.hold(Kind::Work, bytes),
            since: reactor::now(),
        });
        drop(scans);
        if !inner.is_watched.replace(true) {
            reactor::spawn(Group::SCAN, watch(Rc::downgrade(inner))).detach();
        }
    }

    /// Takes the kept scan that continues at `place` and ends at `to`: its files, which stand at the partition
    /// of `place` or behind it.
    pub(super) fn take(
        &self,
        tablet: &Tablet,
        (place, to): (&PartitionBound, &PartitionBound),
        command: &ReadCommand,
    ) -> Option<Vec<FileScan>> {
        let inner = &self.0;
        let key = place.key.as_ref().filter(|_| !place.inclusive && !command.reversed);
        let found = key.and_then(|key| {
            let (table, set) = (tablet.table(), tablet.files());
            inner.scans.borrow().iter().position(|kept| {
                kept.tablet == tablet.id
                    && (kept.at.0, &kept.at.1) == (place.token, key)
                    && Rc::ptr_eq(&kept.table, &table)
                    && kept.set.upgrade().is_some_and(|kept| Rc::ptr_eq(&kept, &set))
                    && kept.to == *to
                    && kept.slices == command.slices
            })
        });
        let Some(kept) = found.and_then(|found| inner.scans.borrow_mut().remove(found)) else {
            inner.opened.inc();
            return None;
        };
        inner.forget(&kept);
        inner.resumed.inc();
        Some(kept.files)
    }
}

impl Inner {
    /// Takes the bytes of a scan that is kept no longer out of the sum.
    fn forget(&self, kept: &Kept) {
        self.bytes.set(self.bytes.get() - kept.bytes);
    }
}

/// Ends scans that waited too long, until there are none.
async fn watch(inner: Weak<Inner>) {
    loop {
        reactor::sleep(KEPT_FOR / 2).await;
        let Some(inner) = inner.upgrade() else { return };
        let now = reactor::now();
        let mut scans = inner.scans.borrow_mut();
        while scans.front().is_some_and(|kept| now.since(kept.since) >= KEPT_FOR) {
            if let Some(kept) = scans.pop_front() {
                inner.forget(&kept);
            }
        }
        if scans.is_empty() {
            inner.is_watched.set(false);
            return;
        }
    }
}
