//! Maintenance beside reading and writing: flushes, compactions, truncations, the end of a life.

use storage::{CompactOptions, CompactionFilter};

use super::{KEYS, Worker, below};
use crate::history::Action;
use crate::table::token;

impl Worker {
    pub(super) async fn flush(&self, slot: usize) -> Result<(), String> {
        let Some(table) = self.table_id(slot) else { return Ok(()) };
        let shard = below(self.shards as u64) as usize;
        let flushed = self
            .on(shard, async move |storage| storage.flush(table).await.map_err(|error| error.to_string()))
            .await;
        // The crashes that follow check its promise of durability: a flush syncs the log before.
        flushed.or_else(|error| self.unless_faulty(&format!("a flush failed: {error}")))
    }

    pub(super) async fn compact(&self, slot: usize) -> Result<(), String> {
        let Some(table) = self.table_id(slot) else { return Ok(()) };
        let shard = below(self.shards as u64) as usize;
        let kind = below(8);
        let (from, to) = (KEYS as u64).checked_sub(1).map_or((0, 0), |last| (below(last), last));
        let compacted = self
            .on(shard, async move |storage| {
                let outcome = match kind {
                    0 => storage.garbage_collect(table).await,
                    1 => storage.upgrade_sstables(table, true).await,
                    2 => storage.cleanup(table).await,
                    3 => {
                        let (from, to) = (token(from as u8), token(to as u8));
                        let tokens = Some((from.min(to), from.max(to)));
                        let options =
                            CompactOptions { tokens, split_output: true, ..CompactOptions::default() };
                        storage.compact_with(table, &options).await
                    }
                    4 => {
                        storage.stop_compactions(&CompactionFilter::default());
                        return Ok(());
                    }
                    _ => storage.compact_with(table, &CompactOptions::default()).await,
                };
                outcome.map(|_| ()).map_err(|error| error.to_string())
            })
            .await;
        compacted.or_else(|error| self.unless_faulty(&format!("a compaction failed: {error}")))
    }

    pub(super) async fn truncate(&self, slot: usize) -> Result<(), String> {
        let Some(table) = self.table_id(slot) else { return Ok(()) };
        // A tablet that has not left yet is truncated with its old shard.
        if !self.moved().await? {
            return Ok(());
        }
        let shard = below(self.shards as u64) as usize;
        self.forget_snapshot(slot);
        let keys = (0..KEYS).filter(|key| self.owner(slot, *key) == shard).collect();
        let operation = self.shared.borrow_mut().history.begin(slot, shard, Action::Truncate { keys });
        let truncated = self
            .on(shard, async move |storage| {
                storage.truncate_shard(table).await.map_err(|error| error.to_string())
            })
            .await;
        match truncated {
            Ok(()) => {
                let mut shared = self.shared.borrow_mut();
                shared.history.acknowledge(operation);
                shared.durable[shard] = operation + 1;
                Ok(())
            }
            Err(error) => self.unless_faulty(&format!("a truncation failed: {error}")),
        }
    }

    pub(super) async fn drain(&self) {
        for shard in (0..self.shards).rev() {
            let before = self.shared.borrow().history.len();
            let drained = self
                .on(shard, async move |storage| storage.drain().await.map_err(|error| error.to_string()))
                .await;
            let mut shared = self.shared.borrow_mut();
            match drained {
                Ok(()) => shared.durable[shard] = before,
                Err(_) if shared.faulty => {}
                Err(error) => shared.fail(format!("shard {shard} does not drain: {error}")),
            }
        }
    }
}
