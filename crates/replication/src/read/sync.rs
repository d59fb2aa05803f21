//! Gives a replica that joins a tablet what it lacks, and the others what one that leaves has alone.
//!
//! It is a read of the tablet from the replicas whose contents count, and from the one that joins or leaves,
//! with read repair whatever the table's options say: each gets what the others have. The leader of the
//! cluster drives it slice by slice (`cluster::control::Syncer`), so that nothing is lost with a coordinator
//! but the slice under way. A slice begins at a token and ends before another one.

use std::time::Duration;

use cluster::{SyncTablet, View};
use model::clustering::Slice;
use model::tablet::TabletId;
use model::{RowView, TableId, Token};
use reactor::{Deadline, Group, Instant};
use smallvec::smallvec;
use storage::{
    Dead, Flow, PartitionBound, PartitionRange, Place, ReadCommand, RowConsumer, StorageError, call_and_note,
};

use super::collect::Reading;
use super::rest::Time;
use super::{ReadLimits, paced};
use crate::consistency::Consistency;
use crate::error::{ReplicaFailure, ReplicationError};
use crate::replicator::{Replicator, here};

/// How long a slice may read before it ends at the next partition.
const SLICE_TIME: Duration = Duration::from_secs(10);
/// How long each fetch of a slice may take.
const FETCH_WITHIN: Duration = Duration::from_secs(30);

/// Copies a slice of a tablet between its replicas, on the shard of this node that has a replica. Returns the
/// token that the next slice begins with; `None` at the end. What this shard wrote by then is durable.
///
/// # Errors
/// The text of the error: a replica that failed, or is none any more.
pub async fn sync_slice(request: SyncTablet) -> Result<Option<i64>, String> {
    let (table, tablet) = (TableId(request.table), TabletId(request.tablet));
    let view = View::here();
    let own = view.known_routing(table).and_then(|routing| {
        let replicas = (tablet.0 < routing.tablets().count()).then(|| routing.replicas(tablet));
        replicas?.iter().find(|replica| replica.node == view.own().node).copied()
    });
    let own = own.ok_or_else(|| format!("this node has no replica of tablet {} of {table}", tablet.0))?;
    let shard = usize::from(own.shard) % reactor::shard_count();
    let call = call_and_note(shard, Group::STREAMING, move || async move {
        let replicator = here().ok_or_else(|| ReplicaFailure::starting().here(1))?;
        replicator.sync_here(&request).await
    });
    let synced = call.await.map_err(|error| error.to_string())?;
    synced.map(|next| next.map(|Token(token)| token)).map_err(|error| error.to_string())
}

impl Replicator {
    async fn sync_here(&self, request: &SyncTablet) -> Result<Option<Token>, ReplicationError> {
        let id = TableId(request.table);
        let table = self.storage().borrow_schema().table_by_id(id).cloned();
        let table = table.ok_or_else(|| ReplicaFailure::TableGone(id).here(1))?;
        let (first, last) = table.tablets().range(TabletId(request.tablet));
        let from = request.from.map_or(first, Token).max(first);
        let bound = |token| PartitionBound { token, key: None, inclusive: true };
        let command = ReadCommand {
            range: PartitionRange::Between { from: bound(from), to: bound(last) },
            slices: smallvec![Slice::all()],
            reversed: false,
            now: u32::try_from(reactor::wall_clock_us() / 1_000_000).unwrap_or(0),
            bypass_cache: true,
            table,
        };
        let mut slice = SliceEnd { until: reactor::now() + SLICE_TIME, first: None, next: None };
        let (deadline, limits) = (Deadline::after(FETCH_WITHIN), ReadLimits::default());
        let time = Time::Until(deadline);
        let level = Consistency::All;
        let all_of = Some(request.nodes.as_slice());
        let reading = Reading { replicator: self, command: &command, limits, level, time, all_of };
        Box::pin(paced::in_fetches(reading, deadline, &mut slice)).await?;
        let synced = self.storage().sync_writes().await;
        synced.map_err(|error: StorageError| ReplicaFailure::from(error).here(1))?;
        Ok(slice.next)
    }
}

/// Takes rows and forgets them, until a slice's time is over and another token begins.
struct SliceEnd {
    until: Instant,
    first: Option<Token>,
    next: Option<Token>,
}

impl SliceEnd {
    fn at(&mut self, token: Token) -> Flow {
        let first = *self.first.get_or_insert(token);
        if token > first && reactor::now() >= self.until {
            self.next = Some(token);
            return Flow::Stop;
        }
        Flow::Continue
    }
}

impl RowConsumer for SliceEnd {
    fn partition(&mut self, _: &[u8], token: Token, _: Option<RowView<'_>>) -> Flow {
        self.at(token)
    }

    fn row(&mut self, _: &[u8], _: RowView<'_>) -> Flow {
        Flow::Continue
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }

    fn dead(&mut self, _: Dead, place: Place<'_>) -> Flow {
        self.at(place.token)
    }
}
