//! Accounts of one scheduling group's requests to one disk, on one shard, under the field's public metric
//! names.
//!
//! Delay is the time in this crate's queue, execution the time with the driver; a group starves while it has
//! requests in the queue and none with the driver. Invariant: the totals only grow.

use std::time::Duration;

use super::Request;
use crate::metrics::{Sample, Value};
use crate::sched::Group;

#[derive(Default)]
pub(super) struct Account {
    queued: u64,
    in_flight: u64,
    /// Reads, then writes and syncs.
    operations: [u64; 2],
    bytes: [u64; 2],
    delay_ns: u64,
    execution_ns: u64,
    cost_ns: u64,
    starvation_ns: u64,
    /// Since when it starves, if it does.
    starves_since_ns: Option<u64>,
    /// How often it went from no requests to some.
    activations: u64,
}

impl Account {
    pub(super) fn is_used(&self) -> bool {
        self.activations > 0
    }

    /// Requests with the driver.
    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    fn activate(&mut self) {
        self.activations += u64::from(self.queued + self.in_flight == 0);
    }

    fn look(&mut self, now_ns: u64) {
        let starves = self.queued > 0 && self.in_flight == 0;
        match self.starves_since_ns {
            None if starves => self.starves_since_ns = Some(now_ns),
            Some(since_ns) if !starves => {
                self.starvation_ns += now_ns.saturating_sub(since_ns);
                self.starves_since_ns = None;
            }
            _ => {}
        }
    }

    pub(super) fn queues(&mut self, now_ns: u64) {
        self.activate();
        self.queued += 1;
        self.look(now_ns);
    }

    pub(super) fn leaves(&mut self, now_ns: u64) {
        self.queued -= 1;
        self.look(now_ns);
    }

    /// Notes a request that goes to the driver; it had been queued if it has a delay.
    pub(super) fn starts(&mut self, request: &Request, now_ns: u64, delay_ns: Option<u64>) {
        match delay_ns {
            Some(delay_ns) => {
                self.queued -= 1;
                self.delay_ns += delay_ns;
            }
            None => self.activate(),
        }
        self.in_flight += 1;
        let kind = usize::from(!request.read);
        self.operations[kind] += 1;
        self.bytes[kind] += request.bytes;
        self.cost_ns += request.cost_ns;
        self.look(now_ns);
    }

    pub(super) fn finishes(&mut self, request: &Request, now_ns: u64) {
        self.in_flight -= 1;
        self.execution_ns += now_ns.saturating_sub(request.since_ns);
        self.look(now_ns);
    }

    pub(super) fn samples(
        &self,
        disk: &str,
        group: Group,
        shares: u32,
        now_ns: u64,
        samples: &mut Vec<Sample>,
    ) {
        let labels =
            vec![("class".to_owned(), group.name().to_owned()), ("mountpoint".to_owned(), disk.to_owned())];
        let mut push = |name: &str, help: &str, value: Value| {
            let name = format!("scylla_io_queue_{name}");
            samples.push(Sample { name, help: help.to_owned(), labels: labels.clone(), value });
        };
        let seconds = |ns: u64| Value::Seconds(Duration::from_nanos(ns));
        let starving = self.starves_since_ns.map_or(0, |since| now_ns.saturating_sub(since));
        let [reads, writes] = self.operations;
        let [read_bytes, write_bytes] = self.bytes;
        push("queue_length", "Requests that wait for room.", Value::Gauge(self.queued as i64));
        push("disk_queue_length", "Requests with the disk.", Value::Gauge(self.in_flight as i64));
        push("total_operations", "Requests given to the disk.", Value::Counter(reads + writes));
        push("total_bytes", "Bytes of these.", Value::Counter(read_bytes + write_bytes));
        push("total_read_ops", "Reads given to the disk.", Value::Counter(reads));
        push("total_read_bytes", "Bytes of these.", Value::Counter(read_bytes));
        push("total_write_ops", "Writes and syncs given to the disk.", Value::Counter(writes));
        push("total_write_bytes", "Bytes of these.", Value::Counter(write_bytes));
        push("total_delay_sec", "Time requests have waited for room.", seconds(self.delay_ns));
        push("total_exec_sec", "Time requests were with the disk.", seconds(self.execution_ns));
        push(
            "starvation_time_sec",
            "Time with waiting requests and none with the disk.",
            seconds(self.starvation_ns + starving),
        );
        push("consumption", "Device time of the requests, by the disk's model.", seconds(self.cost_ns));
        push("activations", "Times there was something again.", Value::Counter(self.activations));
        push("shares", "Weight.", Value::Gauge(i64::from(shares)));
    }
}
