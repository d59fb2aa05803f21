//! The engine of one shard on real files, by topic. One binary, because each binary links the whole engine.

mod basics;
mod cache;
mod cache_model;
mod cleanup;
mod commitlog;
mod compaction;
mod damage;
mod durable;
mod failing;
mod flushes;
mod full;
mod import;
mod log_room;
mod long_entries;
mod made;
mod misplaced;
mod missing;
mod model;
mod moved;
mod operators;
#[path = "../reads/mod.rs"]
mod reads;
mod resident;
mod scrub;
mod skips;
mod snapshots;
mod starts;
#[path = "../table/mod.rs"]
mod table;
mod tablets;
mod takeover;
mod throttle;
