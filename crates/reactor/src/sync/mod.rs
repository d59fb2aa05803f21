//! Synchronisation between tasks of one shard: nothing here crosses threads.
//!
//! One concept, one file. All but [`signal`], which has room for one waiter, serve waiters in the order in
//! which they came. A waiter that is dropped leaves no trace.

pub mod beside;
pub mod channel;
pub mod event;
pub mod gate;
pub mod oneshot;
pub mod semaphore;
pub mod signal;
pub(crate) mod waiters;
