//! The facts of a tablet that a strategy decides on.

use std::rc::Rc;

use model::Token;

use super::strategy::{FileInfo, Plan, View};
use crate::tablet::{TableFile, Tablet};

/// The files of a tablet, and the facts about them that strategies use, at one moment.
pub(crate) struct Facts {
    pub(super) files: Rc<Vec<Rc<TableFile>>>,
    infos: Vec<FileInfo>,
    tokens: (Token, Token),
    now: u32,
    gc_before: u32,
    memory_timestamp_min: i64,
    flush_bytes: u64,
}

impl Facts {
    /// Takes the tablet's present files.
    pub(super) fn of(tablet: &Tablet, now: u32, gc_before: u32, flush_bytes: u64) -> Self {
        let files = tablet.files();
        let infos = files.iter().map(|file| info(file, gc_before)).collect();
        let memtables = tablet.memtables();
        let memory_timestamp_min = memtables.iter().map(|m| m.timestamp_min()).min().unwrap_or(i64::MAX);
        Self { files, infos, tokens: tablet.tokens(), now, gc_before, memory_timestamp_min, flush_bytes }
    }

    pub(crate) fn view(&self) -> View<'_> {
        View {
            files: &self.infos,
            tokens: self.tokens,
            now: self.now,
            gc_before: self.gc_before,
            memory_timestamp_min: self.memory_timestamp_min,
            flush_bytes: self.flush_bytes,
        }
    }

    /// The files a plan names.
    pub(super) fn inputs(&self, plan: &Plan) -> Vec<Rc<TableFile>> {
        plan.inputs.iter().map(|index| Rc::clone(&self.files[*index])).collect()
    }
}

fn info(file: &TableFile, gc_before: u32) -> FileInfo {
    let sstable = file.sstable();
    let stats = sstable.stats();
    let partitions = stats.partition_sizes.count().max(0) as f64;
    let cells = stats.cells_per_partition.mean() * partitions;
    // As in Cassandra's estimate: the number of entries with a local deletion time, divided by the number of
    // cells.
    let dead = stats.tombstones.count_until(i64::from(gc_before)) as f64;
    FileInfo {
        generation: file.generation(),
        bytes: sstable.bytes_on_disk(),
        level: u32::try_from(stats.level).unwrap_or(0),
        tokens: (sstable.first_key().0, sstable.last_key().0),
        timestamps: (stats.min_timestamp, stats.max_timestamp),
        deletion_time_max: stats.max_local_deletion_time,
        droppable: if cells > 0.0 { dead / cells } else { 0.0 },
        created: file.created_seconds(),
        busy: file.is_busy() || file.is_broken(),
    }
}
