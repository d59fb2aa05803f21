//! The I/O scheduler of one shard: which disk request goes next, and when.
//!
//! A request (read, write, sync) belongs to the scheduling group of the task that asked, and costs device
//! time by its disk's model (`disk`). It goes to the driver at once while the disk has room; else it waits in
//! the queue of its group (`queue`), and the group that has had least for its shares goes next. Room is
//! counted twice: device time admitted ahead of the model's clock, which holds the rate, and device time in
//! flight, which holds the depth when the device is slower than its model. Background groups get half of the
//! room, so that a request of the foreground never stands behind more than that. Long transfers are cut into
//! pieces by `file`. A disk without a model has all the room there is: its requests are only counted.
//! Invariant: a request is in a queue, or with the driver, or gone; `op` relies on one completion for each.

mod account;
pub(crate) mod disk;
pub mod measure;
mod queue;

use std::sync::Arc;

use crate::driver::{Op, OpId};
use crate::metrics::Sample;
use crate::sched::Group;
use crate::shard;
pub use disk::{DISKS_MAX, DiskModel, DiskSpec};
pub(crate) use disk::{Disk, Disks};
use queue::{Next, Queue};

/// A request that waits in a queue or is with the driver.
struct Request {
    id: OpId,
    disk: u8,
    group: Group,
    read: bool,
    bytes: u64,
    cost_ns: u64,
    /// When the request entered its present state: the queue, or the driver.
    since_ns: u64,
    /// Set while the request waits; afterwards the driver has the operation.
    op: Option<Op>,
}

/// All requests of one shard, for all disks.
pub(crate) struct Io {
    queues: Vec<Queue>,
    /// By slot of the operation.
    requests: Vec<Option<Request>>,
    queued: usize,
    /// When to look again, if something waits for time to pass.
    next_try_ns: Option<u64>,
    /// The shard ends: everything goes at once.
    draining: bool,
}

/// Whether an operation is a disk's work, and as such queued, counted and charged.
pub(crate) fn is_scheduled(op: &Op) -> bool {
    matches!(op, Op::Read { .. } | Op::Write { .. } | Op::Sync { .. })
}

impl Io {
    pub(crate) fn new(disks: &Disks) -> Self {
        Self {
            queues: disks.0.iter().map(|disk| Queue::new(disk.clone())).collect(),
            requests: Vec::new(),
            queued: 0,
            next_try_ns: None,
            draining: false,
        }
    }

    /// Number of the disk that holds files of a device.
    pub(crate) fn disk_of(&self, device: u64) -> u8 {
        let found = self.queues.iter().position(|queue| queue.disk().holds(device));
        found.unwrap_or(0) as u8
    }

    pub(crate) fn disk(&self, number: u8) -> &Arc<Disk> {
        self.queues[number as usize].disk()
    }

    /// Requests that wait for room.
    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    pub(crate) fn next_try_ns(&self) -> Option<u64> {
        self.next_try_ns
    }

    /// From now on nothing waits.
    pub(crate) fn drain(&mut self) {
        self.draining = true;
    }

    /// Takes a request in. Gives it back when it may go to the driver at once; else it waits for
    /// [`Io::next`].
    pub(crate) fn arrive(&mut self, id: OpId, op: Op, group: Group, shares: u32, now_ns: u64) -> Option<Op> {
        let (read, file) = match &op {
            Op::Read { file, .. } => (true, file),
            Op::Write { file, .. } | Op::Sync { file, .. } => (false, file),
            _ => return Some(op),
        };
        let (disk, bytes) = (file.disk(), op.bytes() as u64);
        let queue = &mut self.queues[disk as usize];
        let cost_ns = queue.disk().cost_ns(read, bytes);
        let mut request = Request { id, disk, group, read, bytes, cost_ns, since_ns: now_ns, op: None };
        let at_once = self.draining || (queue.is_empty() && queue.admits(group, now_ns));
        let gone = if at_once {
            queue.start(&request, shares, now_ns, None);
            Some(op)
        } else {
            request.op = Some(op);
            queue.push(id, group, now_ns);
            self.queued += 1;
            self.next_try_ns = Some(now_ns);
            None
        };
        if self.requests.len() <= id.slot() {
            self.requests.resize_with(id.slot() + 1, || None);
        }
        self.requests[id.slot()] = Some(request);
        gone
    }

    /// The next request that may go to the driver now; when there is none, notes when to look again.
    pub(crate) fn next(&mut self, shares: impl Fn(Group) -> u32, now_ns: u64) -> Option<(OpId, Op, Group)> {
        self.next_try_ns = None;
        for queue in &mut self.queues {
            let (requests, queued) = (&mut self.requests, &mut self.queued);
            // Each round takes an entry out of a queue or ends.
            loop {
                match queue.next(now_ns, self.draining) {
                    Next::Go(id, group) => {
                        let waiting = requests[id.slot()].as_mut().filter(|request| request.id == id);
                        let Some(request) = waiting else { continue };
                        let Some(op) = request.op.take() else { continue };
                        *queued -= 1;
                        let delay_ns = now_ns.saturating_sub(request.since_ns);
                        request.since_ns = now_ns;
                        queue.start(request, shares(group), now_ns, Some(delay_ns));
                        return Some((id, op, group));
                    }
                    Next::At(at_ns) => {
                        self.next_try_ns = Some(self.next_try_ns.map_or(at_ns, |found| found.min(at_ns)));
                        break;
                    }
                    Next::None => break,
                }
            }
        }
        None
    }

    /// The driver is done with a request.
    pub(crate) fn depart(&mut self, id: OpId, now_ns: u64) {
        let Some(place) = self.requests.get_mut(id.slot()) else { return };
        if let Some(request) = place.take_if(|request| request.id == id) {
            self.queues[request.disk as usize].finish(&request, now_ns);
        }
    }

    /// Takes a request that still waits out again.
    pub(crate) fn withdraw(&mut self, id: OpId, now_ns: u64) -> Option<Op> {
        let place = self.requests.get_mut(id.slot())?;
        let request = place.take_if(|request| request.id == id && request.op.is_some())?;
        self.queued -= 1;
        let requests = &self.requests;
        let waits =
            |id: OpId| requests[id.slot()].as_ref().is_some_and(|other| other.id == id && other.op.is_some());
        self.queues[request.disk as usize].leave(request.group, now_ns, waits);
        request.op
    }

    pub(crate) fn samples(&self, shares: impl Fn(Group) -> u32, now_ns: u64, samples: &mut Vec<Sample>) {
        for queue in &self.queues {
            queue.samples(&shares, now_ns, samples);
        }
    }
}

/// Gives the disk of all files that lie on no disk of the configuration a name, for metrics, and a model;
/// every shard of this process follows it from now on.
pub fn set_model(mountpoint: &str, model: DiskModel) {
    shard::with(|shard| shard.io.borrow().disk(0).set(mountpoint, model));
}

/// Removes the model of [`set_model`] if `mountpoint` is the name of that disk: its requests are not held
/// back until it has another model.
pub fn lift_model(mountpoint: &str) {
    shard::with(|shard| {
        let io = shard.io.borrow();
        let disk = io.disk(0);
        if disk.name() == mountpoint {
            disk.lift();
        }
    });
}

/// Replaces the model of the disk with this name; returns false if no disk has the name.
pub fn replace_model(mountpoint: &str, model: DiskModel) -> bool {
    shard::with(|shard| {
        let io = shard.io.borrow();
        let queue = io.queues.iter().find(|queue| queue.disk().name() == mountpoint);
        queue.map(|queue| queue.disk().set(mountpoint, model)).is_some()
    })
}

/// The model that [`set_model`] has set, or the configuration for the disk of that mount point.
pub fn model(mountpoint: &str) -> Option<DiskModel> {
    shard::with(|shard| {
        let io = shard.io.borrow();
        let queue = io.queues.iter().find(|queue| queue.disk().name() == mountpoint)?;
        queue.disk().model()
    })
}
