//! The leader's work on tablets: their replicas become what the factors of their keyspaces ask for.
//!
//! A table goes from one set of replicas to the next in rounds, of all its tablets that need a step at once:
//! - `Transition` makes a node a replica that joins, or one that leaves; it gets all writes, and is not read.
//! - The barrier: every node that is up has the map, and its requests by earlier ones have ended. From here
//!   on replicas refuse what is planned with an earlier map, so that also a node that nobody reaches cannot
//!   gather a quorum of the replicas of before.
//! - The copying (`Syncer`, in the layers above): the replica that joins gets what the others have, or those
//!   that stay get what the one that leaves has alone.
//! - A second `Transition` completes the steps.
//!
//! Everything that counts is in the agreed map: a new leader goes on with what it finds there. A step is
//! undone when its node, or too many of those that it copies from, are down for [`UNDO_AFTER`]. Format:
//! docs/formats/group0.md.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;

use minicbor::{Decode, Encode};
use model::TableId;
use model::tablet::TabletId;
use reactor::metrics::Gauge;
use reactor::{Deadline, Group, Semaphore, mesh, metrics};

use super::leader::{self, Ask};
use super::service::Membership;
use super::{ClusterError, ControlPlane};
use crate::NodeNumber;
use crate::group0::{ClusterState, Group0Error};
use crate::maps::steps::{self, Next};
use crate::maps::{Placed, ReplicaMap, Step, TabletStep};
use crate::nodes::NodeRecord;
use crate::view::View;

/// How often the leader looks, besides at each change of the agreed state.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Pause after a round that came to nothing.
const AGAIN_AFTER: Duration = Duration::from_millis(500);
/// A step is undone when its node has been down for so long.
const UNDO_AFTER: Duration = Duration::from_secs(10);
/// How long a node waits for its requests by earlier maps to end.
const DRAINED_WITHIN: Duration = Duration::from_secs(15);
/// How often it looks.
const DRAINED_EVERY: Duration = Duration::from_millis(10);
/// How long one slice of the copying may take: far more than it should.
const SLICE_WITHIN: Duration = Duration::from_secs(600);
/// Tables that are worked on at once.
const TABLES_AT_ONCE: usize = 4;
/// Tablets of one table that are copied at once.
const AT_ONCE: usize = 4;

/// A slice of the copying of a tablet between its replicas.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SyncTablet {
    /// The table's id.
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    pub table: [u8; 16],
    /// The number of the tablet.
    #[n(1)]
    pub tablet: u32,
    /// Nodes that all have to take part. A replica that joins or leaves takes part if it is up.
    #[n(2)]
    pub nodes: Vec<NodeNumber>,
    /// The token that it begins with; nothing at the beginning of the tablet.
    #[n(3)]
    pub from: Option<i64>,
}

/// Copies a slice of a tablet on this node, which has a replica; returns the token that the next begins with.
pub type Syncer = Rc<dyn Fn(SyncTablet) -> Pin<Box<dyn Future<Output = Result<Option<i64>, String>>>>>;

impl ControlPlane {
    /// Has `syncer` copy tablets between their replicas.
    pub fn sync_with(&self, syncer: Syncer) {
        self.syncer.replace(Some(syncer));
    }

    /// Waits until all shards of this node have a table's map of that version, and no request goes on that
    /// was planned with an earlier one.
    ///
    /// # Errors
    /// [`Group0Error::Undecided`] if some still do after a while; [`ClusterError::Shard`].
    pub(super) async fn wait_drained(&self, table: TableId, version: u64) -> Result<(), ClusterError> {
        let deadline = Deadline::after(DRAINED_WITHIN);
        self.wait_effective(version, deadline).await?;
        for shard in 0..reactor::shard_count() {
            let drained = mesh::call(shard, Group::CONTROL, move || async move {
                while !View::here().is_drained(table) {
                    if deadline.is_past() {
                        return false;
                    }
                    reactor::sleep(DRAINED_EVERY).await;
                }
                true
            });
            let failed = |reason: String| ClusterError::Shard { reason };
            if !drained.await.map_err(|error| failed(error.to_string()))? {
                return Err(Group0Error::Undecided.into());
            }
        }
        Ok(())
    }

    /// Copies a slice of a tablet.
    ///
    /// # Errors
    /// [`ClusterError::NotOpen`] before there is somebody who copies; the error of the copying.
    pub(super) async fn sync(&self, request: SyncTablet) -> Result<Option<i64>, ClusterError> {
        let syncer = self.syncer.borrow().clone().ok_or(ClusterError::NotOpen)?;
        syncer(request).await.map_err(|reason| ClusterError::Shard { reason })
    }
}

/// A table whose replicas are all there, as it was found: nothing is to be done as long as it is the same.
struct Checked {
    map: u64,
    nodes: u64,
    replication: BTreeMap<String, String>,
}

/// The work of one leader.
pub(crate) struct Transitions {
    control: Rc<ControlPlane>,
    membership: Rc<Membership>,
    checked: RefCell<BTreeMap<TableId, Checked>>,
    /// Tables that a task works on.
    busy: RefCell<BTreeSet<TableId>>,
    places: Semaphore,
    moving: Rc<Gauge>,
}

impl Transitions {
    pub(crate) fn new(control: Rc<ControlPlane>, membership: Rc<Membership>) -> Self {
        let help = "Tablets of which a replica joins or leaves, as the leader of the cluster sees it";
        Self {
            control,
            membership,
            checked: RefCell::default(),
            busy: RefCell::default(),
            places: Semaphore::new(TABLES_AT_ONCE),
            moving: metrics::gauge("ceto_tablets_in_transition", help, &[]),
        }
    }

    /// Takes tablets towards the replicas that they should have, while this node leads: some tables at once,
    /// so that a long copy of one does not hold up the others. Ends with this node.
    pub(crate) async fn drive(self: Rc<Self>) {
        let group = self.control.group();
        while !self.membership.ending.get() {
            self.show();
            if group.may_plan() {
                let state = group.state();
                for (table, map) in state.maps().iter() {
                    if !self.is_checked(&state, *table, map) && self.busy.borrow_mut().insert(*table) {
                        reactor::spawn(Group::CONTROL, Rc::clone(&self).work_on(*table)).detach();
                    }
                }
                self.checked.borrow_mut().retain(|table, _| state.maps().contains_key(table));
            }
            // The state may change, or which nodes are up.
            let _ = reactor::timeout(Deadline::after(LOOK_EVERY), group.wait_changed()).await;
        }
    }

    fn show(&self) {
        let group = self.control.group();
        self.moving.set(if group.may_plan() { count(&group.state()) as i64 } else { 0 });
    }

    fn is_checked(&self, state: &ClusterState, table: TableId, map: &ReplicaMap) -> bool {
        self.checked.borrow().get(&table).is_some_and(|checked| {
            checked.map == map.version()
                && checked.nodes == state.topology_version()
                && replication_of(state, table) == Some(&checked.replication)
        })
    }

    /// Takes steps of one table as long as there are some, and pauses after one that failed.
    async fn work_on(self: Rc<Self>, table: TableId) {
        let _place = self.places.acquire(1).await;
        let _busy = Busy { of: &self, table };
        while self.control.group().may_plan() && !self.membership.ending.get() {
            let gone_on = self.go_on(table).await;
            self.show();
            match gone_on {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    reactor::warn_limited!("the replicas of a table wait for their next step";
                        table = table, error = error);
                    reactor::sleep(AGAIN_AFTER).await;
                    break;
                }
            }
        }
    }

    /// Takes a table's tablets a step further; returns whether there was one.
    async fn go_on(&self, table: TableId) -> Result<bool, ClusterError> {
        let state = self.control.group().state();
        let Some(map) = state.maps().get(&table) else { return Ok(false) };
        if map.in_transition().next().is_some() {
            return self.complete(table, map).await;
        }
        let Some(replication) = replication_of(&state, table) else { return Ok(false) };
        if self.is_checked(&state, table, map) {
            return Ok(false);
        }
        let Next { steps, waiting } = self.next(&state, map, replication);
        if !steps.is_empty() {
            return self.begin(table, steps.len()).await;
        }
        if waiting == 0 && map.is_changing() {
            let turn = ControlPlane::turn().await?;
            let settled = turn.settle(table, |state, map| self.is_settled(state, table, map)).await?;
            if settled {
                reactor::info!("the replicas of a table are what its keyspace asks for"; table = table);
            }
            return Ok(settled);
        }
        if waiting == 0 {
            let checked = Checked {
                map: map.version(),
                nodes: state.topology_version(),
                replication: replication.clone(),
            };
            self.checked.borrow_mut().insert(table, checked);
        }
        Ok(false)
    }

    fn next(&self, state: &ClusterState, map: &ReplicaMap, replication: &BTreeMap<String, String>) -> Next {
        let nodes: Vec<NodeRecord> = state.nodes().values().cloned().collect();
        let live = self.control.live_nodes();
        steps::next(replication, map, &nodes, |node| live.contains(&node))
    }

    fn is_settled(&self, state: &ClusterState, table: TableId, map: &ReplicaMap) -> bool {
        replication_of(state, table)
            .is_some_and(|replication| self.next(state, map, replication) == Next::default())
    }

    async fn begin(&self, table: TableId, count: usize) -> Result<bool, ClusterError> {
        reactor::info!("replicas of a table's tablets join or leave"; table = table, tablets = count);
        let turn = ControlPlane::turn().await?;
        turn.take_steps(table, |state, map| {
            let next = replication_of(state, table).map(|replication| self.next(state, map, replication));
            next.map(|next| next.steps).unwrap_or_default()
        })
        .await
    }

    /// Completes, as far as it can, what has begun.
    async fn complete(&self, table: TableId, map: &Rc<ReplicaMap>) -> Result<bool, ClusterError> {
        let fenced = self.barrier(table, map.version()).await;
        let places = Rc::new(Semaphore::new(AT_ONCE));
        let mut copying = Vec::new();
        let mut done: Vec<(u32, Placed, TabletStep)> = Vec::new();
        let mut failure = None;
        for tablet in map.in_transition() {
            let Some(moving) = map.moving(tablet) else { continue };
            let is_lost = |node| self.control.is_down_for(node, UNDO_AFTER);
            if is_lost(moving.node) || !self.has_sources(map, tablet, moving, |node| !is_lost(node)) {
                done.push((tablet.0, moving, TabletStep::Undo));
                continue;
            }
            match self.sources(map, tablet, moving, &fenced) {
                Ok(sources) => {
                    let (control, membership) = (Rc::clone(&self.control), Rc::clone(&self.membership));
                    let places = Rc::clone(&places);
                    let copied = reactor::spawn(Group::CONTROL, async move {
                        let _place = places.acquire(1).await;
                        let coordinator = sources.coordinator;
                        let copied = copy(&membership, (table, tablet), sources);
                        let copied = while_up(&control, coordinator, copied).await;
                        copied.unwrap_or_else(|| Err(format!("node {coordinator}, which copies it, is down")))
                    });
                    copying.push((tablet, moving, copied));
                }
                Err(reason) => failure = Some(reason),
            }
        }
        for (tablet, moving, copied) in copying {
            match copied.await.unwrap_or_else(|panicked| Err(panicked.to_string())) {
                Ok(()) => done.push((tablet.0, moving, TabletStep::Complete)),
                Err(reason) => failure = Some(reason),
            }
        }
        let is_some = !done.is_empty();
        if is_some {
            let turn = ControlPlane::turn().await?;
            let is_still = |map: &ReplicaMap, tablet: u32, was: &Placed| {
                let now = map.moving(TabletId(tablet));
                now.is_some_and(|now| (now.node, now.since, now.step) == (was.node, was.since, was.step))
            };
            turn.take_steps(table, |_, map| {
                let of_now = done.iter().filter(|(tablet, was, _)| is_still(map, *tablet, was));
                of_now.map(|(tablet, _, step)| (*tablet, *step)).collect()
            })
            .await?;
        }
        match failure {
            Some(reason) => Err(ClusterError::Shard { reason }),
            None => Ok(is_some),
        }
    }

    /// Nodes that have a map and go on with no request by an earlier one.
    async fn barrier(&self, table: TableId, version: u64) -> BTreeSet<NodeNumber> {
        let own = self.control.group().number();
        let others = self.control.live_nodes().into_iter().filter(|node| *node != own);
        let asking: Vec<_> = others
            .map(|node| {
                let (control, membership) = (Rc::clone(&self.control), Rc::clone(&self.membership));
                let asked = reactor::spawn(Group::CONTROL, async move {
                    let deadline = Deadline::after(2 * DRAINED_WITHIN);
                    let ask = Ask::Drained(table.0, version);
                    let asked = leader::call(&membership, node, &ask, deadline);
                    while_up(&control, node, asked).await.is_some_and(|asked| asked.is_ok())
                });
                (node, asked)
            })
            .collect();
        let mut fenced = BTreeSet::new();
        if self.control.wait_drained(table, version).await.is_ok() {
            fenced.insert(own);
        }
        for (node, asked) in asking {
            if asked.await.unwrap_or(false) {
                fenced.insert(node);
            }
        }
        fenced
    }

    fn has_sources(
        &self,
        map: &ReplicaMap,
        tablet: TabletId,
        moving: Placed,
        is_there: impl Fn(NodeNumber) -> bool,
    ) -> bool {
        let state = self.control.group().state();
        let data_center_of = |node| state.nodes().get(&node).map(|node| node.data_center.as_str());
        let whole: Vec<NodeNumber> = map.whole(tablet).iter().map(|placed| placed.node).collect();
        steps::has_sources(&whole, moving.step, data_center_of, is_there)
    }

    /// The node that copies a tablet, and those that take part: the whole replicas behind the barrier.
    fn sources(
        &self,
        map: &ReplicaMap,
        tablet: TabletId,
        moving: Placed,
        fenced: &BTreeSet<NodeNumber>,
    ) -> Result<Sources, String> {
        let whole: Vec<NodeNumber> = map.whole(tablet).iter().map(|placed| placed.node).collect();
        let (there, missing): (Vec<_>, Vec<_>) =
            whole.iter().copied().partition(|node| fenced.contains(node));
        let is_enough = self.has_sources(map, tablet, moving, |node| fenced.contains(&node));
        let coordinator =
            if moving.step == Step::Joining { Some(moving.node) } else { there.first().copied() };
        match coordinator {
            Some(coordinator) if is_enough && fenced.contains(&moving.node) => {
                Ok(Sources { coordinator, nodes: there })
            }
            _ => Err(format!(
                "tablet {} has its replicas on nodes {whole:?}, and node {} is {:?}: {missing:?} are down, or go on \
                 with requests of before",
                tablet.0, moving.node, moving.step
            )),
        }
    }
}

/// The answer of a node that is asked, as long as it is up.
async fn while_up<T>(control: &ControlPlane, node: NodeNumber, asked: impl Future<Output = T>) -> Option<T> {
    let mut asked = pin!(asked);
    loop {
        if let Ok(answer) = reactor::timeout(Deadline::after(AGAIN_AFTER), asked.as_mut()).await {
            return Some(answer);
        }
        if !control.live_nodes().contains(&node) {
            return None;
        }
    }
}

/// The node that copies a tablet, and those that it copies from.
struct Sources {
    coordinator: NodeNumber,
    nodes: Vec<NodeNumber>,
}

async fn copy(
    membership: &Rc<Membership>,
    (table, tablet): (TableId, TabletId),
    sources: Sources,
) -> Result<(), String> {
    let mut from = None;
    loop {
        let slice = SyncTablet { table: table.0, tablet: tablet.0, nodes: sources.nodes.clone(), from };
        let next =
            leader::sync_at(membership, sources.coordinator, slice, Deadline::after(SLICE_WITHIN)).await?;
        match next {
            None => return Ok(()),
            Some(next) if from.is_none_or(|from| from < next) => from = Some(next),
            Some(next) => return Err(format!("the copying of tablet {} ends at {next} again", tablet.0)),
        }
    }
}

fn count(state: &ClusterState) -> usize {
    state.maps().values().map(|map| map.in_transition().count()).sum()
}

/// The replication of a table's keyspace.
fn replication_of(state: &ClusterState, table: TableId) -> Option<&BTreeMap<String, String>> {
    let table = state.schema().table_by_id(table)?;
    Some(&state.schema().keyspace(table.keyspace())?.options.replication)
}

/// A table that a task works on; dropping it lets another begin.
struct Busy<'t> {
    of: &'t Transitions,
    table: TableId,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.of.busy.borrow_mut().remove(&self.table);
    }
}
