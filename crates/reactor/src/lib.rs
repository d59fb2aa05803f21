//! One core, one loop: executor, drivers, files, sockets, timers, cross-shard calls, metrics.
//!
//! The crates above this one reach the outside world only through it. Clock, random numbers, disk, network
//! and threads exist behind [`driver::Driver`], with one implementation on io_uring, one on epoll with file
//! threads, and one that simulates many nodes in one thread from a seed. Invariant: a value that belongs to a
//! shard never leaves it; values pass between shards through [`mesh`].
//!
//! Map: `start` spawns shards → `shard` turns the loop → `sched` picks a group, `task` polls →
//! `op` hands I/O, disk requests by way of `io`, to `driver` and gives completions back → `waker` finds the
//! task again.
#![allow(unsafe_code)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // this crate is the door the lints point to

pub mod cpu_counters;
pub mod driver;
pub mod file;
pub mod io;
pub mod log;
pub mod mesh;
pub mod metrics;
pub mod net;
pub mod signal;
mod slices;
pub mod stall;
pub mod sync;

mod cold;
mod op;
mod sched;
mod shard;
mod start;
mod task;
mod time;
mod timer;
mod waker;

pub use cold::{Cold, cold};
pub use driver::sim;
pub use sched::{Group, current_group, maybe_yield, need_preempt, yield_now};
pub use shard::{driver_name, local, random_u64, set_local, shard_count, shard_id};
pub use slices::{Away, give_way, in_slices};
pub use start::{
    Config, DriverChoice, Running, ShardInfo, ShardPanicked, StartError, descriptors_max, run_one, start,
};
pub use sync::beside::side_by_side;
pub use sync::channel;
pub use sync::event::{Event, Place, Wait};
pub use sync::gate::{Gate, GateClosed, GateHold};
pub use sync::oneshot::oneshot;
pub use sync::semaphore::{Permit, Semaphore, TooManyWaiters};
pub use sync::signal::Signal;
pub use task::{JoinHandle, TaskPanicked, drop_in_steps, move_to, spawn, spawn_now};
pub use time::{
    Deadline, Instant, TimedOut, coarse_now, coarse_wall_clock_us, now, refresh_clock, sleep, sleep_until,
    timeout, wall_clock_us,
};

/// Awaits a future at the place where it is made, instead of moving it there.
///
/// `future.await` moves the future into the one that awaits it, whole, with all the room it will ever need.
/// For futures of kilobytes, nested six deep, that was a quarter of a point read's instructions (3,100 of
/// 11,700). Pinned first, only its arguments are written. For the few awaits that every request passes;
/// elsewhere `.await` reads better.
#[macro_export]
macro_rules! in_place {
    ($future:expr) => {{
        let mut future = ::std::pin::pin!($future);
        future.as_mut().await
    }};
}
