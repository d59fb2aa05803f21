//! The reactor's own metrics: the loop, its tasks and operations, scheduling groups, stalls, disks.
//!
//! Names are public ones known from ScyllaDB (`scylla_*`) if there is one for the metric. Nothing is
//! registered: the values are read on request from their owners.

use std::cell::Cell;

use super::{Sample, Value};
use crate::sched::GROUPS;
use crate::shard;

/// Parts of [`append_part`]: two for the shard, and one for each scheduling group.
pub(super) const PARTS: usize = 2 + GROUPS;

/// Appends one part of the samples. Each takes some ten microseconds.
pub(super) fn append_part(part: usize, samples: &mut Vec<Sample>) {
    match part {
        0 => append_loop(samples),
        1 => shard::with(|shard| {
            let now_ns = shard.now().as_nanos();
            shard.io.borrow().samples(|group| shard.sched.shares_of(group), now_ns, samples);
        }),
        _ => {
            if let Some(group) = crate::Group::all().nth(part - 2) {
                append_group(group, samples);
            }
        }
    }
}

fn append_loop(samples: &mut Vec<Sample>) {
    let mut push = |name: &str, help: &str, value: Value| {
        samples.push(Sample { name: name.to_owned(), help: help.to_owned(), labels: Vec::new(), value });
    };
    let (tasks, timers, operations, orphans, panics, polls) = shard::with(|shard| {
        let ops = shard.ops.borrow();
        let timers = shard.timers.borrow().len();
        (shard.tasks(), timers, ops.in_flight(), ops.orphans(), shard.panics(), shard.polls())
    });
    push("reactor_tasks", "Tasks that exist.", Value::Gauge(tasks as i64));
    push("reactor_timers", "Timers that wait.", Value::Gauge(timers as i64));
    push("reactor_operations", "Operations with the driver.", Value::Gauge(operations as i64));
    push("reactor_orphans", "Operations nobody waits for any more.", Value::Gauge(orphans as i64));
    push("reactor_task_panics_total", "Tasks that panicked.", Value::Counter(panics));
    push("reactor_polls_total", "Polls of tasks.", Value::Counter(polls));
    let (stalls, reported) = shard::with(|shard| shard.pulse.counts());
    push("scylla_stall_detector_reported", "Stalls reported with a backtrace.", Value::Counter(reported));
    push(
        "reactor_stall_ticks_total",
        "Signals of the stall detector's timer; none while the shard is idle.",
        Value::Counter(shard::with(|shard| shard.pulse.ticks())),
    );
    let busy_ns: u64 = crate::Group::all().map(crate::Group::cpu_ns).sum();
    push("scylla_reactor_cpu_busy_ms", "Time the core worked for any group.", milliseconds(busy_ns));
    push(
        "scylla_reactor_utilization",
        "Per cent of the time that the core worked for any group, between the last two scrapes a second apart.",
        Value::Gauge(shard::with(|shard| shard.load.percent(shard.now().as_nanos(), busy_ns)) as i64),
    );
    for (kind, count) in stalls {
        samples.push(Sample {
            name: "reactor_stalls_total".to_owned(),
            help: "Times the core was held beyond the threshold, by a task, the kernel or another process."
                .to_owned(),
            labels: vec![("kind".to_owned(), kind.name().to_owned())],
            value: Value::Counter(count),
        });
    }
}

/// Busy time since the last look that was a second ago or more.
#[derive(Default)]
pub(crate) struct Load(Cell<(u64, u64, u64)>);

impl Load {
    /// Of a shard that begins at `now_ns`.
    pub(crate) fn since(now_ns: u64) -> Self {
        Self(Cell::new((now_ns, 0, 0)))
    }

    /// Per cent of the time, given the busy time since the start.
    fn percent(&self, now_ns: u64, busy_ns: u64) -> u64 {
        let (seen_ns, seen_busy_ns, percent) = self.0.get();
        let elapsed_ns = now_ns.saturating_sub(seen_ns);
        if elapsed_ns < 1_000_000_000 {
            return percent;
        }
        let busy_ns_since = busy_ns.saturating_sub(seen_busy_ns);
        let percent = (u128::from(busy_ns_since) * 100 / u128::from(elapsed_ns)).min(100) as u64;
        self.0.set((now_ns, busy_ns, percent));
        percent
    }
}

fn milliseconds(ns: u64) -> Value {
    Value::Counter(ns / 1_000_000)
}

/// A scheduling group's time on the core and its disk requests, under the field's public names.
fn append_group(group: crate::Group, samples: &mut Vec<Sample>) {
    let labels = vec![("group".to_owned(), group.name().to_owned())];
    let mut push = |name: &str, help: &str, value: Value| {
        let (name, help) = (name.to_owned(), help.to_owned());
        samples.push(Sample { name, help, labels: labels.clone(), value });
    };
    let (operations, bytes) = crate::file::disk_usage(group);
    push("reactor_cpu_ns_total", "Nanoseconds on the core.", Value::Counter(group.cpu_ns()));
    push("reactor_disk_operations_total", "Reads, writes and syncs.", Value::Counter(operations));
    push("reactor_disk_bytes_total", "Bytes read and written.", Value::Counter(bytes));
    shard::with(|shard| {
        let now_ns = shard.now().as_nanos();
        let usage = &shard.sched.usage[group.0 as usize];
        let runs = shard.sched.runs(group);
        push(
            "scylla_scheduler_runtime_ms",
            "Time on the core, kernel time of its I/O included.",
            milliseconds(usage.run_ns.get()),
        );
        push(
            "scylla_scheduler_waittime_ms",
            "Time without a task that could run.",
            milliseconds(usage.wait_ns(now_ns, runs)),
        );
        push(
            "scylla_scheduler_starvetime_ms",
            "Time with tasks that could run but without the core.",
            milliseconds(usage.starve_ns(now_ns)),
        );
        push(
            "scylla_scheduler_tasks_processed",
            "Tasks that were given the core.",
            Value::Counter(usage.polls.get()),
        );
        push(
            "scylla_scheduler_queue_length",
            "Tasks that wait for the core.",
            Value::Gauge(shard.sched.queued(group) as i64),
        );
        push("scylla_scheduler_shares", "Weight.", Value::Gauge(i64::from(shard.sched.shares_of(group))));
        push(
            "scylla_scheduler_time_spent_on_task_quota_violations_ms",
            "Time the core was held beyond 0.5 ms in one go.",
            milliseconds(usage.violation_ns.get()),
        );
        push(
            "reactor_task_quota_violations_total",
            "Times the core was held beyond 0.5 ms in one go.",
            Value::Counter(usage.violations.get()),
        );
        push(
            "reactor_longest_hold_us",
            "Longest time the core was held in one go, in microseconds.",
            Value::Gauge((usage.longest_ns.get() / 1000) as i64),
        );
        push(
            "reactor_late_give_way_total",
            "Times background work gave way more than 100 microseconds after the foreground had come.",
            Value::Counter(usage.late.get()),
        );
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utilization_is_of_the_time_since_a_look_a_second_ago() {
        let load = Load::since(5_000_000_000);
        assert_eq!(load.percent(5_100_000_000, 100_000_000), 0);
        assert_eq!(load.percent(7_000_000_000, 1_000_000_000), 50);
        assert_eq!(load.percent(7_500_000_000, 1_500_000_000), 50, "another scraper, at once");
        assert_eq!(load.percent(9_000_000_000, 3_000_000_000), 100);
    }
}
