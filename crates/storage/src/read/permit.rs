//! Permits for reading from disk: a number of reads of one partition, and separately a number of scans,
//! limited by memory.
//!
//! A read that memory answers needs no permit. The memory that a read holds while it waits for the disk (an
//! index page and a chunk for each file) is charged to a fixed part of the shard's memory. A read costs at
//! least a hundredth of it, so that the number of reads is limited too. Long rows take memory of their own,
//! when their length is known. Scans have a pool of their own: a hundred of them do not delay the read of one
//! row. Waiting reads are served in order; a read whose deadline is over has left the queue, because its
//! future was dropped. Invariant: reads do not nest, so no task waits for a permit while it holds one.

use std::rc::Rc;

use reactor::metrics::{self, Counter, Gauge};
use reactor::{Permit, Semaphore};
use sstable::{LongRows, RowRoom};

use crate::error::StorageError;

/// Most reads of one partition, and most scans, that run at once.
const READS_MAX: usize = 100;
const SCANS_MAX: usize = 10;
/// Most reads, and most scans, that wait; beyond that a read is refused at once.
const READS_WAITING_MAX: usize = 10_000;
const SCANS_WAITING_MAX: usize = 1_000;
/// KiB that a read holds for each file: an index page of 4, a chunk and its compressed bytes, rounded up.
const KIB_PER_FILE: usize = 16;
/// The part of the memtables' memory (one in so many) that reads may take in addition to it, and the least
/// amount, in KiB.
const MEMORY_PART: usize = 8;
const KIB_MIN: usize = 1024;

/// The two pools of one shard.
pub(crate) struct Permits {
    reads: Pool,
    scans: Pool,
    refused: Rc<Counter>,
}

struct Pool {
    /// Free KiB.
    kib: Semaphore,
    total_kib: usize,
    most: usize,
    long_rows: LongRows,
    active: Rc<Gauge>,
    queued: Rc<Gauge>,
}

/// The permit of a running read; dropping it lets the next one start.
pub(crate) struct ReadPermit {
    room: Rc<RowRoom>,
    _permit: Permit,
    _active: Counted,
}

/// One more in a gauge, until dropped.
struct Counted(Rc<Gauge>);

impl Counted {
    fn new(gauge: &Rc<Gauge>) -> Self {
        gauge.add(1);
        Self(Rc::clone(gauge))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}

impl ReadPermit {
    /// The memory for long rows of this read.
    pub(crate) fn room(&self) -> &Rc<RowRoom> {
        &self.room
    }
}

impl Permits {
    /// Pools for a shard with `memory_bytes` for memtables.
    pub(crate) fn new(memory_bytes: usize) -> Self {
        let total_kib = (memory_bytes / MEMORY_PART / 1024).max(KIB_MIN);
        let pool = |class: &str, most, waiting| Pool {
            kib: Semaphore::with_waiters_max(total_kib, waiting),
            total_kib,
            most,
            long_rows: LongRows::new(total_kib * 1024 / 2),
            active: metrics::gauge(
                "scylla_database_active_reads",
                "Reads that hold a permit to read from disk, or to scan",
                &[("class", class)],
            ),
            queued: metrics::gauge(
                "scylla_database_queued_reads",
                "Reads that wait for a permit",
                &[("class", class)],
            ),
        };
        Self {
            reads: pool("user", READS_MAX, READS_WAITING_MAX),
            scans: pool("scan", SCANS_MAX, SCANS_WAITING_MAX),
            refused: metrics::counter(
                "scylla_database_reads_shed_due_to_overload",
                "Reads refused because too many waited already",
                &[],
            ),
        }
    }

    /// Waits for a permit to read one partition out of `files` files.
    ///
    /// # Errors
    /// [`StorageError::TooManyReads`] at once if the queue is full.
    pub(crate) async fn read(&self, files: usize) -> Result<ReadPermit, StorageError> {
        self.take(&self.reads, files.saturating_mul(KIB_PER_FILE)).await
    }

    /// As [`Permits::read`], if no wait is needed.
    pub(crate) fn try_read(&self, files: usize) -> Option<ReadPermit> {
        self.reads.try_take(files.saturating_mul(KIB_PER_FILE))
    }

    /// Waits for a permit to read many partitions.
    ///
    /// # Errors
    /// [`StorageError::TooManyReads`] at once if the queue is full.
    pub(crate) async fn scan(&self) -> Result<ReadPermit, StorageError> {
        self.take(&self.scans, 0).await
    }

    async fn take(&self, pool: &Pool, kib: usize) -> Result<ReadPermit, StorageError> {
        let _queued = Counted::new(&pool.queued);
        match pool.kib.acquire(pool.share(kib)).await {
            Ok(permit) => Ok(pool.permit(permit)),
            Err(full) => {
                self.refused.inc();
                Err(StorageError::TooManyReads { waiting: full.waiting })
            }
        }
    }
}

impl Pool {
    /// KiB charged for a read of `kib`: at least an equal share of all, and at most all.
    fn share(&self, kib: usize) -> usize {
        kib.max(self.total_kib / self.most).min(self.total_kib)
    }

    fn try_take(&self, kib: usize) -> Option<ReadPermit> {
        self.kib.try_acquire(self.share(kib)).map(|permit| self.permit(permit))
    }

    fn permit(&self, permit: Permit) -> ReadPermit {
        ReadPermit { room: self.long_rows.room(), _permit: permit, _active: Counted::new(&self.active) }
    }
}

#[cfg(test)]
mod tests {
    use reactor::sim;

    use super::*;

    #[test]
    fn scans_do_not_hold_up_reads_and_a_full_line_refuses_at_once() {
        sim::run_one(1, || async {
            let permits = Rc::new(Permits::new(0));
            let scans: Vec<_> = {
                let mut scans = Vec::new();
                for _ in 0..SCANS_MAX {
                    scans.push(permits.scan().await.expect("a scan"));
                }
                scans
            };
            let mut waiting = Vec::new();
            for _ in 0..SCANS_WAITING_MAX {
                let mut scan = Box::pin(async { permits.scan().await.map(drop) });
                std::future::poll_fn(|context| {
                    assert!(scan.as_mut().poll(context).is_pending());
                    std::task::Poll::Ready(())
                })
                .await;
                waiting.push(scan);
            }
            assert_eq!(permits.scans.queued.get(), SCANS_WAITING_MAX as i64);
            let refused = permits.scan().await.map(drop);
            assert!(matches!(refused, Err(StorageError::TooManyReads { waiting: SCANS_WAITING_MAX })));
            drop(permits.read(3).await.expect("a read of one partition"));
            drop(waiting);
            assert_eq!(permits.scans.queued.get(), 0);
            drop(scans);
            drop(permits.scan().await.expect("a scan, now that others are done"));
            assert_eq!((permits.scans.active.get(), permits.reads.active.get()), (0, 0));
        });
    }

    #[test]
    fn large_reads_take_more_and_none_takes_for_ever() {
        sim::run_one(1, || async {
            let permits = Permits::new(0);
            let one = permits.read(1).await.expect("a read");
            assert_eq!(permits.reads.kib.available(), KIB_MIN - KIB_PER_FILE);
            drop(one);
            let all = permits.read(1 << 20).await.expect("a read of more files than memory is for");
            assert_eq!(permits.reads.kib.available(), 0);
            drop(all);
            assert_eq!(permits.reads.kib.available(), KIB_MIN);
        });
    }
}
