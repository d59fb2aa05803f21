//! The promises of this node in rounds of conditional writes over several replicas, per table and partition.
//!
//! A promise, an accepted proposal and the last committed one are three cells of a row in a table of the
//! node's own (`table`). Their bytes mean nothing here. Each cell has the time of its ballot as timestamp, so
//! that the later state wins however rows are merged. A row is on the shard that has its token by arithmetic,
//! which need not be the one that has the tablet of the clients' table: the state follows no tablet from
//! shard to shard. Invariant: what [`Storage::note_paxos`] wrote durably is what [`Storage::paxos_state`]
//! returns after any crash, until it expires.

mod table;

use std::collections::BTreeMap;

use model::clustering::Slice;
use model::deletion::LocalSeconds;
use model::mutation::MutationView;
use model::partition_key::DecoratedKey;
use model::{RowView, TableId, Token};
use reactor::{Deadline, Group, mesh};
use smallvec::smallvec;

use crate::error::StorageError;
use crate::read::{Flow, PartitionRange, ReadCommand, RowConsumer};
use crate::shard::Storage;
pub(crate) use table::{TABLE, table};

/// A clients' table since it was truncated last: what was promised and accepted before does not count any
/// more, because replicas take nothing that was planned with an earlier routing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaxosTable {
    /// The table.
    pub id: TableId,
    /// The version of its routing that truncated it last; 0 if none did.
    pub truncated: u64,
}

/// A part of the state of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PaxosCell {
    /// The ballots that were promised.
    Promised,
    /// The proposal that was accepted.
    Accepted,
    /// The proposal that was committed last.
    Committed,
}

/// What a replica has noted about the rounds of one partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PaxosState {
    /// Of [`PaxosCell::Promised`].
    pub promised: Option<Vec<u8>>,
    /// Of [`PaxosCell::Accepted`].
    pub accepted: Option<Vec<u8>>,
    /// Of [`PaxosCell::Committed`].
    pub committed: Option<Vec<u8>>,
}

/// A change of the state of one partition, made at once.
#[derive(Debug, Clone)]
pub struct PaxosChange {
    /// The cells that are written, or deleted.
    pub cells: BTreeMap<PaxosCell, Option<Vec<u8>>>,
    /// The time of the ballot, in microseconds.
    pub timestamp: i64,
    /// Seconds for which the cells are kept.
    pub keep_seconds: u32,
    /// Whether the change is on stable storage before it is answered, whatever `commitlog_sync` says.
    pub durably: bool,
}

impl Storage {
    /// Whether this shard has the state of a token's partitions.
    ///
    /// # Errors
    /// [`StorageError::UnknownTable`] of a storage that is closing.
    pub fn has_paxos_of(&self, token: Token) -> Result<bool, StorageError> {
        Ok(self.paxos_shard(token)? == self.0.shard)
    }

    fn paxos_shard(&self, token: Token) -> Result<usize, StorageError> {
        let store = self.table_store(TABLE)?;
        let own = store.owner(store.map().tablet_of(token));
        Ok(usize::from(own.expect("a node has all tablets of its own table").shard))
    }

    /// The state of a partition of a table.
    ///
    /// # Errors
    /// Those of [`Storage::read`]; [`StorageError::Shard`] of another shard.
    pub async fn paxos_state(
        &self,
        table: PaxosTable,
        key: &DecoratedKey,
    ) -> Result<PaxosState, StorageError> {
        let shard = self.paxos_shard(key.token)?;
        if shard == self.0.shard {
            return self.paxos_state_here(table, key).await;
        }
        let key = key.clone();
        on_shard(shard, async move |storage| storage.paxos_state_here(table, &key).await).await
    }

    /// Changes the state of a partition of a table. A future that is dropped leaves open whether the change
    /// was made.
    ///
    /// # Errors
    /// Those of [`Storage::apply`]; [`StorageError::Shard`] of another shard.
    pub async fn note_paxos(
        &self,
        table: PaxosTable,
        key: &DecoratedKey,
        change: PaxosChange,
        deadline: Deadline,
    ) -> Result<(), StorageError> {
        let shard = self.paxos_shard(key.token)?;
        if shard == self.0.shard {
            return self.note_paxos_here(table, key, &change, deadline).await;
        }
        let key = key.clone();
        on_shard(shard, async move |storage| storage.note_paxos_here(table, &key, &change, deadline).await)
            .await
    }

    async fn paxos_state_here(
        &self,
        table: PaxosTable,
        key: &DecoratedKey,
    ) -> Result<PaxosState, StorageError> {
        let command = ReadCommand {
            table: self.table_store(TABLE)?.table(),
            range: PartitionRange::Key(key.clone()),
            slices: smallvec![Slice::prefix(&table::clustering(table))],
            reversed: false,
            now: now(),
            bypass_cache: false,
        };
        let mut found = Found::default();
        self.read(&command, &mut found).await?;
        Ok(found.0)
    }

    async fn note_paxos_here(
        &self,
        table: PaxosTable,
        key: &DecoratedKey,
        change: &PaxosChange,
        deadline: Deadline,
    ) -> Result<(), StorageError> {
        let mutation = table::mutation((table, key.token, &key.key), change, now());
        self.apply_checked(&MutationView::trusted(&mutation)?, deadline).await?;
        if change.durably { self.sync_writes().await } else { Ok(()) }
    }

    /// Completes once all writes that this shard has applied so far are on stable storage, whatever
    /// `commitlog_sync` says.
    ///
    /// # Errors
    /// [`StorageError::CommitlogDead`] when the device failed, now or before.
    pub async fn sync_writes(&self) -> Result<(), StorageError> {
        let (log, upto) = (self.0.log.clone(), self.0.log.end());
        // A task of its own: a flush of the device is not to be given up in its middle.
        let synced = reactor::spawn(Group::COMMITLOG, async move { log.sync_upto(upto).await });
        synced.await.unwrap_or_else(|panicked| {
            Err(StorageError::Shard { shard: self.0.shard, reason: panicked.to_string() })
        })
    }
}

/// The present time by which cells expire.
fn now() -> LocalSeconds {
    LocalSeconds::try_from(reactor::wall_clock_us() / 1_000_000).unwrap_or(0)
}

/// Runs `work` with the storage of another shard.
async fn on_shard<T, F>(shard: usize, work: F) -> Result<T, StorageError>
where
    T: Send + 'static,
    F: AsyncFnOnce(Storage) -> Result<T, StorageError> + Send + 'static,
{
    let called = mesh::call(shard, Group::STATEMENT, move || async move {
        let Some(storage) = reactor::local::<Storage>() else {
            return Err("its storage is not open".to_owned());
        };
        // Errors hold values of their shard; between shards their text travels.
        work((*storage).clone()).await.map_err(|error| error.to_string())
    });
    match called.await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(reason)) => Err(StorageError::Shard { shard, reason }),
        Err(error) => Err(StorageError::Shard { shard, reason: error.to_string() }),
    }
}

/// Takes the one row.
#[derive(Default)]
struct Found(PaxosState);

impl RowConsumer for Found {
    fn partition(&mut self, _: &[u8], _: Token, _: Option<RowView<'_>>) -> Flow {
        Flow::Continue
    }

    fn row(&mut self, _: &[u8], row: RowView<'_>) -> Flow {
        self.0 = table::state_of(row);
        Flow::Continue
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}
