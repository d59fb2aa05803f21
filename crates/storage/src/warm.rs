//! A warm restart: the partitions in the row cache are listed on disk, and read back after a start.
//!
//! The list is written at the end and from time to time, to `<saved_caches_dir>/rows-<shard>.db`. After a
//! start every shard reads all lists, however many shards wrote them, and reads its own partitions again in
//! the background group, the hottest first, until the lists or the memory are at their end. No request waits
//! for it.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use model::clustering::Slice;
use model::partition_key::DecoratedKey;
use model::{RowView, Token};
use reactor::{Deadline, Group, metrics};

use crate::cache::{List, SAVED_BYTES_MAX, Saved, Taken, decode};
use crate::error::StorageError;
use crate::read::{Flow, PartitionRange, ReadCommand, RowConsumer};
use crate::shard::Storage;

const PREFIX: &str = "rows-";
const SUFFIX: &str = ".db";
/// Lists read at a start; no node has more shards than that.
const LISTS_MAX: usize = 1024;
/// Prefetching ends when no more than this part of memory (one in so many) is free: nothing is evicted for
/// it.
const FREE_PART: usize = 16;

/// Takes all rows and keeps none: reading them fills the cache.
struct Discard;

impl RowConsumer for Discard {
    fn partition(&mut self, _: &[u8], _: Token, _: Option<RowView<'_>>) -> Flow {
        Flow::Continue
    }
    fn row(&mut self, _: &[u8], _: RowView<'_>) -> Flow {
        Flow::Continue
    }
    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

impl Storage {
    fn saved_path(&self) -> PathBuf {
        self.0.config.saved_caches_dir.join(format!("{PREFIX}{}{SUFFIX}", self.0.shard))
    }

    /// Writes the list of the partitions in this shard's row cache, the hottest first.
    ///
    /// # Errors
    /// Those of writing; an earlier list then stays.
    pub async fn save_cache(&self) -> Result<(), StorageError> {
        let config = &self.0.config;
        if config.cache_keys_to_save == 0 {
            return Ok(());
        }
        let mut list = List::new(config.cache_keys_to_save);
        for age in 0..self.0.cache.list_steps() {
            if !self.0.cache.list(age, &mut list) {
                break;
            }
            reactor::maybe_yield().await;
        }
        crate::directory::ensure(&config.saved_caches_dir).await?;
        let path = self.saved_path();
        reactor::file::write_all_atomic(&path, &list.finish().await)
            .await
            .map_err(StorageError::of("write", &path))
    }

    /// Completes when components that open files left out of memory were read again, as far as there is room
    /// after others were closed.
    pub async fn components_restored(&self) {
        self.0.cache.components().restored().await;
    }

    /// Completes when the listed partitions were read back, or reading them was given up.
    pub async fn cache_prefetched(&self) {
        self.0.prefetch_ended.wait_until(|| self.0.prefetched.get()).await;
    }

    pub(crate) fn start_warming(&self) {
        let hold = || self.0.tasks.enter().expect("the gate of a new storage is open");
        let (storage, gate) = (self.clone(), hold());
        drop(reactor::spawn(Group::BACKGROUND, async move {
            storage.prefetch().await;
            storage.0.prefetched.set(true);
            storage.0.prefetch_ended.notify_all();
            drop(gate);
        }));
        let period = self.0.config.cache_save_period;
        if !period.is_zero() && self.0.config.cache_keys_to_save > 0 {
            let (storage, gate) = (self.clone(), hold());
            drop(reactor::spawn(Group::BACKGROUND, async move {
                storage.save_now_and_then(period).await;
                drop(gate);
            }));
        }
    }

    async fn save_now_and_then(&self, period: Duration) {
        while !self.0.draining.get() {
            let stopped = self.0.stopped.wait_until(|| self.0.draining.get());
            if reactor::timeout(Deadline::after(period), stopped).await.is_ok() {
                return;
            }
            if let Err(error) = self.save_cache().await {
                reactor::warn_limited!("the list of cached rows cannot be saved"; error = error);
            }
        }
    }

    async fn prefetch(&self) {
        let left =
            metrics::gauge("cache_prefetch_partitions_left", "Listed partitions still to be read", &[]);
        let done = metrics::counter(
            "cache_prefetch_partitions_total",
            "Partitions read back into the row cache after the start",
            &[],
        );
        let mut lists = self.read_lists().await;
        // One partition of each list in turn, so that the hottest of all come first.
        let mut turn = 0;
        for taken in 0..self.0.config.cache_keys_to_save {
            lists.retain(|list| list.len() > 0);
            let listed = lists.iter().map(Taken::len).sum::<usize>();
            left.set(listed.min(self.0.config.cache_keys_to_save - taken) as i64);
            turn = if turn + 1 < lists.len() { turn + 1 } else { 0 };
            let Some(saved) = lists.get_mut(turn).and_then(Taken::pop) else { break };
            let budget = &self.0.budget;
            if self.0.draining.get() || budget.room() < budget.total_limit() / FREE_PART {
                break;
            }
            match self.prefetch_one(saved).await {
                Ok(true) => done.inc(),
                Ok(false) => {}
                // A client's read of it gets the error; other partitions may be readable.
                Err(error) => {
                    reactor::warn_limited!("a partition cannot be read back into the cache"; error = error);
                }
            }
            reactor::maybe_yield().await;
        }
        left.set(0);
    }

    /// Reads a listed partition if its table still exists; returns whether it did.
    async fn prefetch_one(&self, saved: Saved) -> Result<bool, StorageError> {
        let Some(table) = self.schema().table_by_id(saved.table).map(Rc::clone) else { return Ok(false) };
        let key = DecoratedKey::new(saved.key.clone());
        if !saved.fits(table.clustering_orders().len()) {
            return Ok(false);
        }
        let slices = if saved.slices.is_empty() { vec![Slice::all()] } else { saved.slices };
        let command = ReadCommand {
            table,
            range: PartitionRange::Key(key),
            slices: slices.into(),
            reversed: false,
            now: 0,
            bypass_cache: false,
        };
        self.read(&command, &mut Discard).await?;
        Ok(true)
    }

    /// All lists, the hottest partition of each first.
    async fn read_lists(&self) -> Vec<Taken> {
        let directory = &self.0.config.saved_caches_dir;
        if self.0.config.cache_keys_to_save == 0 {
            return Vec::new();
        }
        let entries = match reactor::file::read_dir(directory).await {
            Ok(entries) => entries,
            Err(error) => {
                if error.kind() != std::io::ErrorKind::NotFound {
                    reactor::warn!("saved caches cannot be listed"; error = error);
                }
                return Vec::new();
            }
        };
        let most = self.0.config.cache_keys_to_save;
        let names = entries.iter().map(|entry| entry.name.as_str());
        let names = names.filter(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX));
        let mut lists = Vec::new();
        for name in names.take(LISTS_MAX) {
            let path = directory.join(name);
            let bytes = match reactor::file::read_all(&path, SAVED_BYTES_MAX).await {
                Ok(bytes) => bytes,
                Err(error) => {
                    reactor::warn!("a list of cached rows cannot be read"; file = path.display(), error = error);
                    continue;
                }
            };
            let Some(list) = decode(&bytes, most, |saved| self.is_mine(saved)).await else {
                reactor::warn!("a list of cached rows is damaged and not used"; file = path.display());
                continue;
            };
            lists.push(list);
        }
        lists
    }

    /// Whether a partition belongs to a table and a tablet of this shard.
    fn is_mine(&self, saved: &Saved) -> bool {
        self.table_store(saved.table).is_ok_and(|store| {
            let token = model::token::murmur3_token(&saved.key);
            !saved.key.is_empty() && store.is_own(store.map().tablet_of(token))
        })
    }
}
