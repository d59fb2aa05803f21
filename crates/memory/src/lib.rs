//! Where cached bytes live: segments out of one budget per shard, objects behind handles, ordered trees of handles.
//!
//! An object is named by a [`Handle`], never by an address, so that a region may move it while nobody looks and a
//! reader that pauses holds nothing but a number. Everything is plain safe indexing: the bounds check is not
//! visible beside the cache miss. There is no `unsafe` in what holds objects and no raw pointer, so none can outlive a pause; a
//! sanitizer has nothing to find that the compiler has not. `storage::memtable` and `storage::cache` lean on this crate.
//! `counting` counts what the heap gives.

mod budget;
mod counting;
mod region;
mod tree;

pub use budget::{Budget, Charge, Kind, Reclaim};
pub use counting::{Counting, allocations};
pub use region::{Handle, Region, SEGMENT_BYTES};
pub use tree::{Cursor, Forest, Tree};
