//! A disk as all shards of the process see it: its model, and how much of its time is allotted.
//!
//! Device time is counted in nanoseconds: a request costs the larger of its shares of a second's operations
//! and of a second's bytes. `busy_until` is the moment at which the disk, if it works as its model says, will
//! have served everything admitted so far; `in_flight` is the device time of requests that are not complete.
//! Both are single atomics that every shard adds to: a token bucket without a lock. So that no shard finds
//! the bucket always empty, each may also take its equal share of the disk's time regardless of the others
//! (`Local`). Invariant: time that is added to `in_flight` is taken off at the request's completion, once.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Device time all requests together may be ahead of the model's clock, and in flight.
pub(crate) const FOREGROUND_ROOM_NS: u64 = 1_000_000;
/// The same for background groups: the device time that a foreground request may find ahead of it.
pub(crate) const BACKGROUND_ROOM_NS: u64 = FOREGROUND_ROOM_NS / 2;
/// Device time of one piece of a long transfer.
const PIECE_NS: u64 = BACKGROUND_ROOM_NS;
/// Smaller pieces would cost more in operations than they gain in latency.
const PIECE_BYTES_MIN: u64 = 64 << 10;
/// Most disks of a configuration: a file stores the number of its disk in one byte.
pub const DISKS_MAX: usize = 255;
const SECOND_NS: u64 = 1_000_000_000;

/// Operations and bytes that a disk serves in a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskModel {
    /// Reads of 4 KiB.
    pub read_iops: u64,
    /// Bytes read.
    pub read_bandwidth: u64,
    /// Writes of 4 KiB.
    pub write_iops: u64,
    /// Bytes written.
    pub write_bandwidth: u64,
}

impl DiskModel {
    /// Device time of a request, in nanoseconds.
    pub fn cost_ns(&self, read: bool, bytes: u64) -> u64 {
        let (iops, bandwidth) = if read {
            (self.read_iops, self.read_bandwidth)
        } else {
            (self.write_iops, self.write_bandwidth)
        };
        cost_ns(iops, bandwidth, bytes)
    }
}

fn cost_ns(iops: u64, bandwidth: u64, bytes: u64) -> u64 {
    let by_operations = SECOND_NS.checked_div(iops).unwrap_or(0);
    let by_bytes = bytes.saturating_mul(SECOND_NS).checked_div(bandwidth).unwrap_or(0);
    by_operations.max(by_bytes)
}

/// A disk of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskSpec {
    /// Any path on it; also its name in metrics.
    pub mountpoint: PathBuf,
    /// Its speed.
    pub model: DiskModel,
}

/// The disks of a process; the first is for all files on none of the others.
#[derive(Debug, Clone)]
pub(crate) struct Disks(pub(crate) Arc<[Arc<Disk>]>);

impl Disks {
    /// One disk without a model, and the first [`DISKS_MAX`] that are given with their devices.
    pub(crate) fn new(specs: impl IntoIterator<Item = (DiskSpec, u64)>, shards: usize) -> Self {
        let specs = specs.into_iter().take(DISKS_MAX);
        let mut disks = vec![Disk::new(None, shards)];
        for (spec, device) in specs {
            let disk = Disk::new(Some(device), shards);
            disk.set(&spec.mountpoint.display().to_string(), spec.model);
            disks.push(disk);
        }
        Self(disks.into())
    }
}

#[derive(Debug)]
pub(crate) struct Disk {
    device: Option<u64>,
    name: OnceLock<String>,
    shards: u64,
    /// Zero for no limit, as the three below.
    read_iops: AtomicU64,
    read_bandwidth: AtomicU64,
    write_iops: AtomicU64,
    write_bandwidth: AtomicU64,
    busy_until_ns: AtomicU64,
    in_flight_ns: AtomicU64,
}

impl Disk {
    fn new(device: Option<u64>, shards: usize) -> Arc<Self> {
        Arc::new(Self {
            device,
            name: OnceLock::new(),
            shards: shards as u64,
            read_iops: AtomicU64::new(0),
            read_bandwidth: AtomicU64::new(0),
            write_iops: AtomicU64::new(0),
            write_bandwidth: AtomicU64::new(0),
            busy_until_ns: AtomicU64::new(0),
            in_flight_ns: AtomicU64::new(0),
        })
    }

    pub(crate) fn set(&self, name: &str, model: DiskModel) {
        // Models may be replaced, names are for good: metrics keep them.
        self.name.get_or_init(|| name.to_owned());
        self.read_iops.store(model.read_iops, Ordering::Relaxed);
        self.read_bandwidth.store(model.read_bandwidth, Ordering::Relaxed);
        self.write_iops.store(model.write_iops, Ordering::Relaxed);
        self.write_bandwidth.store(model.write_bandwidth, Ordering::Relaxed);
    }

    /// Forgets the model.
    pub(super) fn lift(&self) {
        for figure in [&self.read_iops, &self.read_bandwidth, &self.write_iops, &self.write_bandwidth] {
            figure.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn model(&self) -> Option<DiskModel> {
        let model = DiskModel {
            read_iops: self.read_iops.load(Ordering::Relaxed),
            read_bandwidth: self.read_bandwidth.load(Ordering::Relaxed),
            write_iops: self.write_iops.load(Ordering::Relaxed),
            write_bandwidth: self.write_bandwidth.load(Ordering::Relaxed),
        };
        (model.read_iops != 0).then_some(model)
    }

    pub(super) fn holds(&self, device: u64) -> bool {
        self.device == Some(device)
    }

    pub(super) fn name(&self) -> &str {
        self.name.get().map_or("default", String::as_str)
    }

    pub(super) fn cost_ns(&self, read: bool, bytes: u64) -> u64 {
        let (iops, bandwidth) = if read {
            (&self.read_iops, &self.read_bandwidth)
        } else {
            (&self.write_iops, &self.write_bandwidth)
        };
        cost_ns(iops.load(Ordering::Relaxed), bandwidth.load(Ordering::Relaxed), bytes)
    }

    /// Bytes of one request; longer transfers take several. A power of two.
    pub(crate) fn piece_bytes(&self, read: bool) -> usize {
        let bandwidth = if read { &self.read_bandwidth } else { &self.write_bandwidth };
        match bandwidth.load(Ordering::Relaxed) {
            0 => crate::file::TRANSFER_BYTES_MAX,
            bandwidth => {
                let bytes = bandwidth / (SECOND_NS / PIECE_NS);
                let power = 1u64 << bytes.max(1).ilog2();
                power.clamp(PIECE_BYTES_MIN, crate::file::TRANSFER_BYTES_MAX as u64) as usize
            }
        }
    }

    /// Whether a request may go now; if not, when to try again, or `None` to try at the next completion.
    pub(super) fn admits(&self, room_ns: u64, local: &Local, now_ns: u64) -> Result<(), Option<u64>> {
        let in_flight_ns = self.in_flight_ns.load(Ordering::Relaxed);
        if in_flight_ns > room_ns && local.in_flight_ns >= room_ns / self.shards {
            return Err(None);
        }
        let free_at_ns = self.busy_until_ns.load(Ordering::Relaxed).saturating_sub(room_ns);
        if free_at_ns > now_ns && local.busy_until_ns > now_ns {
            return Err(Some(free_at_ns.min(local.busy_until_ns)));
        }
        Ok(())
    }

    pub(super) fn start(&self, cost_ns: u64, local: &mut Local, now_ns: u64) {
        if cost_ns == 0 {
            return;
        }
        self.in_flight_ns.fetch_add(cost_ns, Ordering::Relaxed);
        local.in_flight_ns += cost_ns;
        local.busy_until_ns = local.busy_until_ns.max(now_ns).saturating_add(cost_ns * self.shards);
        let add = |busy_until: u64| Some(busy_until.max(now_ns).saturating_add(cost_ns));
        // The closure always answers, so this cannot fail.
        let _ = self.busy_until_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    pub(super) fn finish(&self, cost_ns: u64, local: &mut Local) {
        if cost_ns > 0 {
            self.in_flight_ns.fetch_sub(cost_ns, Ordering::Relaxed);
            local.in_flight_ns -= cost_ns;
        }
    }
}

/// One shard's part of a disk: the same two numbers, at its equal share of the disk's speed.
#[derive(Debug, Default)]
pub(super) struct Local {
    busy_until_ns: u64,
    in_flight_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: DiskModel = DiskModel {
        read_iops: 10_000,
        read_bandwidth: 100 << 20,
        write_iops: 5_000,
        write_bandwidth: 50 << 20,
    };

    fn disk(shards: usize) -> Arc<Disk> {
        let spec = DiskSpec { mountpoint: "/d".into(), model: MODEL };
        Disks::new([(spec, 7)], shards).0[1].clone()
    }

    #[test]
    fn a_request_costs_the_larger_of_its_two_shares() {
        assert_eq!(MODEL.cost_ns(true, 4096), 100_000);
        assert_eq!(MODEL.cost_ns(true, 10 << 20), 100_000_000);
        assert_eq!(MODEL.cost_ns(false, 0), 200_000);
        assert_eq!(DiskModel { read_iops: 0, read_bandwidth: 0, ..MODEL }.cost_ns(true, u64::MAX), 0);
    }

    #[test]
    fn pieces_take_half_a_millisecond_but_are_not_tiny() {
        let disk = disk(1);
        assert_eq!((disk.piece_bytes(true), disk.piece_bytes(false)), (64 << 10, 64 << 10));
        disk.set("", DiskModel { read_bandwidth: 3 << 30, ..MODEL });
        assert_eq!(disk.piece_bytes(true), 1 << 20);
        assert_eq!(Disk::new(None, 1).piece_bytes(true), crate::file::TRANSFER_BYTES_MAX);
    }

    #[test]
    fn the_rate_is_the_models_whoever_asks() {
        let disk = disk(4);
        let mut locals = [const { Local { busy_until_ns: 0, in_flight_ns: 0 } }; 4];
        let mut admitted = [0u64; 4];
        // Every shard always has requests, and every request completes at once.
        for now_ns in (0..SECOND_NS).step_by(10_000) {
            for (local, admitted) in locals.iter_mut().zip(&mut admitted) {
                if disk.admits(BACKGROUND_ROOM_NS, local, now_ns).is_ok() {
                    disk.start(100_000, local, now_ns);
                    disk.finish(100_000, local);
                    *admitted += 1;
                }
            }
        }
        let total: u64 = admitted.iter().sum();
        assert!((9_990..=10_040).contains(&total), "{total} of 10,000 in a second");
        assert!(admitted.iter().all(|count| *count >= 2_400), "{admitted:?}");
    }

    #[test]
    fn what_does_not_come_back_holds_the_depth() {
        let disk = disk(2);
        let (mut one, mut other) = (Local::default(), Local::default());
        let mut started = 0;
        // The device serves nothing while an hour passes.
        for minute in 1..=60 {
            while disk.admits(FOREGROUND_ROOM_NS, &one, minute * 60 * SECOND_NS).is_ok() {
                disk.start(100_000, &mut one, minute * 60 * SECOND_NS);
                started += 1;
            }
        }
        assert_eq!(started, 11, "1 ms of device time, and the request that fills it");
        let now_ns = 3600 * SECOND_NS;
        assert_eq!(disk.admits(BACKGROUND_ROOM_NS, &one, now_ns), Err(None));
        assert_eq!(
            disk.admits(BACKGROUND_ROOM_NS, &other, now_ns),
            Ok(()),
            "another shard's share is its own"
        );
        disk.start(300_000, &mut other, now_ns);
        assert_eq!(disk.admits(BACKGROUND_ROOM_NS, &other, now_ns), Err(None));
    }

    #[test]
    fn who_is_refused_is_told_when_there_is_room() {
        let disk = disk(1);
        let mut local = Local::default();
        disk.start(2_000_000, &mut local, 1000);
        disk.finish(2_000_000, &mut local);
        assert_eq!(disk.admits(FOREGROUND_ROOM_NS, &local, 1000), Err(Some(1_001_000)));
        assert_eq!(disk.admits(BACKGROUND_ROOM_NS, &local, 1000), Err(Some(1_501_000)));
        assert_eq!(disk.admits(FOREGROUND_ROOM_NS, &local, 1_001_000), Ok(()));
    }
}
