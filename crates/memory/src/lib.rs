//! Memory for cached bytes: segments out of one budget per shard, objects behind handles, ordered trees of
//! handles.
//!
//! An object is named by a [`Handle`], never by an address, so that a region may move it while it is not
//! being read, and a paused reader holds only a number. Segments are cut out of one reserved range per shard
//! (`arena`), and tables of handles and nodes are in segments too (`pieces`): these files have the `unsafe`
//! code, together with `counting`, which counts heap allocations, and `pages`, which returns what they leave
//! behind to the kernel. All other code is safe indexing: the bounds
//! check is not measurable beside the cache miss, and no raw pointer can outlive a pause. `storage::memtable`
//! and `storage::cache` use this crate.
//!
//! `make sanitize` runs its tests under the address sanitizer.

mod arena;
mod budget;
mod counting;
mod pages;
mod pieces;
mod region;
mod tree;

pub use budget::{Budget, Charge, Kind, Reclaim};
pub use counting::{Counting, allocations, held_bytes, large_allocations};
pub use pages::{give_back_pages, keep_pages_briefly, leave_pages_to_returner, returner, tidy_pages};
pub use pieces::Pieces;
pub use region::{Handle, Region, SEGMENT_BYTES};
pub use tree::{Cursor, Forest, Tree};
