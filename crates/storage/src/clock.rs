//! Writes from the future: a machine whose clock was ahead stamped them, and its clock is right again.
//!
//! Until the clock has passed such a timestamp, a later write to the same row that this node stamps has an
//! older timestamp: it is accepted but never visible. Nothing can be repaired here. The start logs it once,
//! with the newest timestamp found in the commit log and the table files. Clients may also set timestamps of
//! their own, with any meaning (a version, nanoseconds); timestamps too far off to come from a clock are left
//! out.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use model::mutation::MutationView;
use model::schema::TableId;
use reactor::Group;
use reactor::metrics::{self, Gauge};

use crate::shard::Storage;

/// How far ahead a stamp may be without a word: clocks are set now and then.
const TOLERATED_US: i64 = 60 * 1_000_000;
/// How far ahead a stamp is no clock's.
const PLAUSIBLE_US: i64 = 10 * 366 * 86_400 * 1_000_000;

/// The newest stamps that are ahead of the clock, by table.
pub(crate) struct FutureWrites {
    newest: RefCell<BTreeMap<TableId, i64>>,
    gauge: Rc<Gauge>,
}

impl FutureWrites {
    pub(crate) fn new() -> Self {
        let gauge = metrics::gauge(
            "scylla_database_future_write_timestamp_seconds",
            "Unix time of the newest write that the last start found stamped later than the clock; 0 where there was none.",
            &[],
        );
        Self { newest: RefCell::default(), gauge }
    }

    /// Notes a table's stamps, microseconds.
    fn note(&self, table: TableId, timestamps: impl Iterator<Item = i64>) {
        let now = reactor::wall_clock_us();
        let is_ahead = |timestamp: &i64| {
            let ahead = timestamp.checked_sub(now).unwrap_or(i64::MAX);
            (TOLERATED_US..PLAUSIBLE_US).contains(&ahead)
        };
        if let Some(newest) = timestamps.filter(is_ahead).max() {
            let mut known = self.newest.borrow_mut();
            let known = known.entry(table).or_insert(newest);
            *known = newest.max(*known);
        }
    }

    /// Notes those of a mutation of the commit log.
    pub(crate) fn note_mutation(&self, mutation: &MutationView<'_>) {
        let of_rows = mutation.rows().map(|(_, row)| row).chain(mutation.static_row()).flat_map(|row| {
            let of_row = [row.liveness().timestamp, row.deletion().timestamp];
            of_row.into_iter().chain(row.cells().map(|cell| cell.timestamp))
        });
        let of_ranges = mutation.tombstones().map(|(.., deletion)| deletion.timestamp);
        self.note(mutation.table, of_rows.chain(of_ranges).chain([mutation.deletion.timestamp]));
    }
}

impl Storage {
    /// On shard 0, once every shard has replayed its log: logs which tables have writes from the future.
    pub(crate) async fn tell_future_writes(&self) {
        let found =
            self.on_every_shard(Group::ADMIN, (), async |storage, ()| Ok(storage.future_writes())).await;
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                reactor::warn!("the shards could not be asked for writes from the future"; error = error);
                return;
            }
        };
        let mut newest: BTreeMap<TableId, i64> = BTreeMap::new();
        for (table, timestamp) in found.into_iter().flatten() {
            let known = newest.entry(table).or_insert(timestamp);
            *known = timestamp.max(*known);
        }
        let Some((id, timestamp)) = newest.iter().max_by_key(|(_, timestamp)| **timestamp) else { return };
        let schema = self.schema();
        let table = schema.table_by_id(*id);
        let table =
            table.map_or_else(|| id.to_string(), |table| format!("{}.{}", table.keyspace(), table.name()));
        let ahead = timestamp.saturating_sub(reactor::wall_clock_us()) / 1_000_000;
        reactor::warn!("there are writes stamped later than this machine's clock: until it has passed them, writes to the same rows \
            that are stamped by this node are not seen; set the clock right, or write such rows with USING TIMESTAMP";
            table = table, tables = newest.len(), timestamp_us = *timestamp, ahead_seconds = ahead);
    }

    /// This shard's, by table.
    fn future_writes(&self) -> Vec<(TableId, i64)> {
        let future = &self.0.future_writes;
        for (id, store) in self.0.tables.borrow().iter() {
            let tablets = store.tablets();
            let files = tablets.iter().flat_map(|tablet| tablet.files().iter().cloned().collect::<Vec<_>>());
            future.note(*id, files.map(|file| file.sstable().max_timestamp()));
        }
        let found: Vec<_> = future.newest.borrow().iter().map(|(id, timestamp)| (*id, *timestamp)).collect();
        let newest = found.iter().map(|(_, timestamp)| *timestamp).max();
        future.gauge.set(newest.map_or(0, |newest| newest / 1_000_000));
        found
    }
}
