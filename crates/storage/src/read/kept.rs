//! Scans that stopped because their reader had enough, kept for the reader's next page.
//!
//! A page of a scan opens its table files at the place where the page before ended: it finds the place by
//! the index and reads some of each file, of which the page before used a part. A kept scan has that place
//! and the bytes that were read and not used. It is found by what it reads and where it stands, not by who
//! reads: whoever continues there takes it. A scan that is not kept any more is opened anew, with the same
//! result.
//!
//! Invariant: what is taken continues over the files that the tablet has at that moment, with their rows read
//! as those of the table at that moment; memtables are always looked into anew. A kept scan holds its files
//! open, removed or not, for [`KEPT_FOR`] at most, and its bytes are charged to the shard's budget.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::time::Duration;

use memory::{Budget, Charge, Kind};
use model::clustering::Slice;
use model::tablet::TabletId;
use model::{Table, Token};
use reactor::metrics::{self, Counter};
use reactor::{Group, Instant};
use sstable::{PartitionBound, Scanner};

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

/// The scanners of a scan, each with the index of its file in the tablet's set.
pub(super) type Scanners = Vec<(usize, Box<Scanner>)>;

/// The range and rows that a scan reads, and of which state of the tablet.
#[derive(Clone)]
pub(super) struct Reads<'s> {
    pub(super) tablet: TabletId,
    /// The table when the tablet was entered: an altered one is another.
    pub(super) table: Rc<Table>,
    /// The tablet's set of files then; another set is another allocation.
    pub(super) set: Rc<dyn Any>,
    pub(super) slices: &'s [Slice],
    pub(super) to: PartitionBound,
}

struct Kept {
    tablet: TabletId,
    table: Rc<Table>,
    set: Weak<dyn Any>,
    slices: Vec<Slice>,
    to: PartitionBound,
    /// The partition in which the scan stopped; it continues behind it.
    at: (Token, Vec<u8>),
    scanners: Scanners,
    bytes: usize,
    _charge: Charge,
    since: Instant,
}

impl Kept {
    fn reads(&self, what: &Reads<'_>) -> bool {
        self.tablet == what.tablet
            && Rc::ptr_eq(&self.table, &what.table)
            && self.set.upgrade().is_some_and(|set| Rc::ptr_eq(&set, &what.set))
            && self.to == what.to
            && self.slices == what.slices
    }
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
                "Tablets in which a scan went on where its last page had stopped",
            ),
            opened: counted("ceto_scans_opened", "Tablets of which a scan opened the table files anew"),
        }))
    }

    /// Keeps a scan that stopped in a partition.
    pub(super) fn keep(&self, what: &Reads<'_>, at: (Token, Vec<u8>), mut scanners: Scanners) {
        let inner = &self.0;
        let bytes = scanners.iter().map(|(_, scanner)| scanner.bytes_in_memory()).sum::<usize>();
        if scanners.is_empty() || bytes > inner.bytes_max / 4 {
            return;
        }
        // The memory for long rows is the read's, which ends.
        scanners.iter_mut().for_each(|(_, scanner)| scanner.set_room(None));
        let mut scans = inner.scans.borrow_mut();
        while scans.len() >= KEPT_MAX || inner.bytes.get() + bytes > inner.bytes_max {
            let Some(oldest) = scans.pop_front() else { break };
            inner.forget(&oldest);
        }
        inner.bytes.set(inner.bytes.get() + bytes);
        scans.push_back(Kept {
            tablet: what.tablet,
            table: Rc::clone(&what.table),
            set: Rc::downgrade(&what.set),
            slices: what.slices.to_vec(),
            to: what.to.clone(),
            at,
            scanners,
            bytes,
            _charge: inner.budget.hold(Kind::Work, bytes),
            since: reactor::now(),
        });
        drop(scans);
        if !inner.is_watched.replace(true) {
            reactor::spawn(Group::SCAN, watch(Rc::downgrade(inner))).detach();
        }
    }

    /// Takes the scan that continues behind a partition, if one is named: its scanners stand at that
    /// partition or behind it.
    pub(super) fn take(&self, what: &Reads<'_>, behind: Option<(Token, &[u8])>) -> Option<Scanners> {
        let inner = &self.0;
        let found = behind.and_then(|(token, key)| {
            let mut scans = inner.scans.borrow_mut();
            let stands = |kept: &Kept| kept.at.0 == token && kept.at.1 == key && kept.reads(what);
            let found = scans.iter().position(stands)?;
            scans.remove(found)
        });
        let Some(kept) = found else {
            inner.opened.inc();
            return None;
        };
        inner.forget(&kept);
        inner.resumed.inc();
        Some(kept.scanners)
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
