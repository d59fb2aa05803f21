//! The reactor's own metrics: the loop, its tasks and operations, scheduling groups, stalls, disks.
//!
//! Names are public ones known from ScyllaDB (`scylla_*`) if there is one for the metric. Nothing is
//! registered: the values are read on request from their owners.

use super::{Sample, Value};
use crate::shard;

pub(super) fn samples() -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut push = |name: &str, help: &str, group: Option<&str>, value: Value| {
        let labels = group.map(|group| ("group".to_owned(), group.to_owned())).into_iter().collect();
        samples.push(Sample { name: name.to_owned(), help: help.to_owned(), labels, value });
    };
    let (tasks, timers, operations, orphans, panics, polls) = shard::with(|shard| {
        let ops = shard.ops.borrow();
        let timers = shard.timers.borrow().len();
        (shard.tasks(), timers, ops.in_flight(), ops.orphans(), shard.panics(), shard.polls())
    });
    push("reactor_tasks", "Tasks that exist.", None, Value::Gauge(tasks as i64));
    push("reactor_timers", "Timers that wait.", None, Value::Gauge(timers as i64));
    push("reactor_operations", "Operations with the driver.", None, Value::Gauge(operations as i64));
    push("reactor_orphans", "Operations nobody waits for any more.", None, Value::Gauge(orphans as i64));
    push("reactor_task_panics_total", "Tasks that panicked.", None, Value::Counter(panics));
    push("reactor_polls_total", "Polls of tasks.", None, Value::Counter(polls));
    for group in crate::Group::all() {
        let name = Some(group.name());
        let (operations, bytes) = crate::file::disk_usage(group);
        push("reactor_cpu_ns_total", "Nanoseconds on the core.", name, Value::Counter(group.cpu_ns()));
        push("reactor_disk_operations_total", "Reads, writes and syncs.", name, Value::Counter(operations));
        push("reactor_disk_bytes_total", "Bytes read and written.", name, Value::Counter(bytes));
    }
    let (stalls, reported) = shard::with(|shard| shard.pulse.counts());
    for (kind, count) in stalls {
        samples.push(Sample {
            name: "reactor_stalls_total".to_owned(),
            help: "Times the core was held beyond the threshold, by a task, the kernel or another process."
                .to_owned(),
            labels: vec![("kind".to_owned(), kind.name().to_owned())],
            value: Value::Counter(count),
        });
    }
    samples.push(Sample {
        name: "scylla_stall_detector_reported".to_owned(),
        help: "Stalls reported with a backtrace.".to_owned(),
        labels: Vec::new(),
        value: Value::Counter(reported),
    });
    samples.push(Sample {
        name: "reactor_stall_ticks_total".to_owned(),
        help: "Signals of the stall detector's timer; none while the shard is idle.".to_owned(),
        labels: Vec::new(),
        value: Value::Counter(shard::with(|shard| shard.pulse.ticks())),
    });
    scheduler_samples(&mut samples);
    shard::with(|shard| {
        let now_ns = shard.now().as_nanos();
        shard.io.borrow().samples(|group| shard.sched.shares_of(group), now_ns, &mut samples);
    });
    samples
}

/// The time of each scheduling group on the core, under the field's public names.
fn scheduler_samples(samples: &mut Vec<Sample>) {
    let milliseconds = |ns: u64| Value::Counter(ns / 1_000_000);
    shard::with(|shard| {
        let now_ns = shard.now().as_nanos();
        let mut busy_ns = 0;
        for group in crate::Group::all() {
            let labels = vec![("group".to_owned(), group.name().to_owned())];
            let mut push = |name: &str, help: &str, value: Value| {
                let (name, help) = (name.to_owned(), help.to_owned());
                samples.push(Sample { name, help, labels: labels.clone(), value });
            };
            let usage = &shard.sched.usage[group.0 as usize];
            let runs = shard.sched.runs(group);
            busy_ns += usage.run_ns.get();
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
        }
        samples.push(Sample {
            name: "scylla_reactor_cpu_busy_ms".to_owned(),
            help: "Time the core worked for any group.".to_owned(),
            labels: Vec::new(),
            value: milliseconds(busy_ns),
        });
    });
}
