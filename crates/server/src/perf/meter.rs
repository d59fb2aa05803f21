//! Costs of operations on a shard: heap allocations, polls of tasks, and instructions and cycles if the
//! processor counts them.
//!
//! A meter belongs to the thread that made it. Invariant: the difference of two readings is the cost of the
//! work between them; a reading allocates nothing.

use std::pin::Pin;
use std::task::{Context, Poll};

use reactor::cpu_counters::{CpuCounters, CpuCounts};
use reactor::metrics;

/// Costs so far, or between two readings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Used {
    /// Heap allocations.
    pub(super) allocations: u64,
    /// Polls of tasks.
    pub(super) tasks: u64,
    /// `None` if the processor's counters are not available.
    pub(super) cpu: Option<CpuCounts>,
}

impl Used {
    /// The sum of two costs: of two shards, or of two stretches of one shard.
    pub(super) fn and(self, other: Self) -> Self {
        let sum = |a: CpuCounts, b: CpuCounts| CpuCounts {
            instructions: a.instructions + b.instructions,
            cycles: a.cycles + b.cycles,
        };
        Self {
            allocations: self.allocations + other.allocations,
            tasks: self.tasks + other.tasks,
            cpu: self.cpu.zip(other.cpu).map(|(a, b)| sum(a, b)),
        }
    }
}

/// The counters of the current thread.
#[derive(Debug)]
pub(super) struct Meter {
    cpu: Option<CpuCounters>,
}

impl Meter {
    /// A meter with the processor's counters, if they are available.
    pub(super) fn new() -> Self {
        Self { cpu: CpuCounters::open().ok() }
    }

    /// A meter that counts neither instructions nor cycles.
    pub(super) fn none() -> Self {
        Self { cpu: None }
    }

    fn read(&self) -> Used {
        let cpu = self.cpu.as_ref().and_then(|cpu| cpu.read().ok());
        Used { allocations: memory::allocations(), tasks: metrics::polls(), cpu }
    }

    /// Runs `work`; returns its output and its costs on this shard.
    pub(super) async fn measure<T>(&self, work: impl Future<Output = T>) -> (T, Used) {
        let before = self.read();
        let output = work.await;
        let after = self.read();
        let used = Used {
            allocations: after.allocations - before.allocations,
            tasks: after.tasks - before.tasks,
            cpu: after.cpu.zip(before.cpu).map(|(after, before)| after.since(before)),
        };
        (output, used)
    }
}

/// Work whose polls go through a function of their own, so that a profiler can be limited to that function
/// (`valgrind --tool=callgrind --toggle-collect='*Measured*poll*'`, as `perf/counts.sh` does).
pub(super) struct Measured<F>(Pin<Box<F>>);

impl<F> Measured<F> {
    /// Wraps `work`.
    pub(super) fn new(work: F) -> Self {
        Self(Box::pin(work))
    }
}

impl<F: Future> Future for Measured<F> {
    type Output = F::Output;

    #[inline(never)]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.0.as_mut().poll(context)
    }
}
