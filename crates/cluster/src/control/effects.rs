//! The effects of what was agreed upon on every shard, in the order of the log.
//!
//! New replicas and nodes reach the `View` of every shard first, so that a new table finds its replicas; then
//! the storage of every shard applies the change; then what is gone leaves the views, and listeners hear of
//! it. A table that is truncated loses its rows in the second step: until then this node refuses what was
//! planned with the state after the truncation, and what was planned before it goes with the rows. Effects
//! follow the state: a shard that could not apply a change gets it from the state at the next start, as a
//! node that crashed between the two does.

use std::collections::BTreeMap;
use std::rc::Rc;

use model::schema::{Schema, SchemaChange, TableId};
use model::tablet::TabletId;
use reactor::{Group, mesh};
use storage::{AgreedChanges, OwnTablet, OwnTablets, Storage, StorageError};

use super::{ControlPlane, SchemaNews};
use crate::NodeNumber;
use crate::group0::{Applied, Change, ClusterState};
use crate::maps::map::MapParts;
use crate::maps::{Placed, ReplicaMap, Step};
use crate::net::{Member, Members, Network};
use crate::nodes::{NodeRecord, NodeState};
use crate::view::{News, Nodes, View};

/// A command on its way to the shards.
pub(super) struct Effect {
    index: u64,
    /// The last command in the state. What was learnt as a whole may end with an entry that is none: the
    /// first one of a leader.
    command: u64,
    before: Rc<Schema>,
    changes: Vec<SchemaChange>,
    /// The schema that takes the place of `before` as a whole.
    replaced: Option<Rc<Schema>>,
    news: News,
    /// Tables that lose their rows.
    truncated: Vec<TableId>,
    /// Whether this node has taken its snapshots of them.
    is_prepared: bool,
}

impl Effect {
    /// The index of the command.
    pub(super) fn index(&self) -> u64 {
        self.index
    }
}

impl ControlPlane {
    /// Has commands carried to the shards as they are applied. What was applied while the storage opened
    /// comes first, as one effect.
    pub(super) fn follow(self: &Rc<Self>) {
        let control = Rc::downgrade(self);
        self.group.on_applied(Rc::new(move |applied, state| {
            let Some(control) = control.upgrade() else { return };
            match applied {
                Applied::Command(index, command) => {
                    let done = state.requests().find(command.id);
                    let is_made = done.is_some_and(|done| done.index == index && done.refusal.is_none());
                    let changes = command.changes.iter().filter(|_| is_made);
                    let is_prepared = control.prepared.borrow_mut().remove(&command.id);
                    control.see(
                        (index, is_prepared),
                        Some(changes.filter_map(schema_change).collect()),
                        state,
                    );
                }
                Applied::Installed(index) => control.see((index, false), None, state),
            }
        }));
        let now = self.group.state();
        let is_new = !Rc::ptr_eq(&self.seen.borrow(), &now);
        if is_new {
            self.see((self.group.applied(), false), None, &now);
        }
    }

    /// Takes an effect in line: the state is `state` after the command at `index`, by these changes of the
    /// schema or as a whole.
    fn see(
        self: &Rc<Self>,
        (index, is_prepared): (u64, bool),
        changes: Option<Vec<SchemaChange>>,
        state: &Rc<ClusterState>,
    ) {
        let before = self.seen.replace(Rc::clone(state));
        let truncated = truncated_between(&before, state);
        let news = News::between(&before, state);
        let replaced = changes.is_none().then(|| Rc::clone(state.schema()));
        let changes = changes.unwrap_or_else(|| replacing(&before, state));
        let before = Rc::clone(before.schema());
        let command = state.last_command();
        let effect = Effect { index, command, before, changes, replaced, news, truncated, is_prepared };
        self.effects.borrow_mut().push_back(effect);
        self.carry();
    }

    /// Sees to it that a task carries effects to the shards.
    fn carry(self: &Rc<Self>) {
        if self.working.replace(true) {
            return;
        }
        let control = Rc::clone(self);
        // The removal of a dropped table's files is no urgent work.
        drop(reactor::spawn(Group::ADMIN, async move {
            loop {
                let next = control.effects.borrow_mut().pop_front();
                let Some(effect) = next else { break };
                let (index, before) = (effect.index, control.effective.get());
                assert!(before < index, "command {index} takes effect behind {before}");
                if let Err(error) = control.take_effect(effect).await {
                    reactor::error!("a change takes effect everywhere only at the next start";
                        index = index, error = error);
                    control.failure.replace(Some((index, error)));
                }
                control.effective.set(index);
                control.progress.notify_all();
            }
            control.working.set(false);
        }));
    }

    /// Has every shard apply an effect: new replicas are known before a table can be used, and those of a
    /// dropped table until it cannot. In a task of its own, so that its panic is an error here.
    async fn take_effect(&self, effect: Effect) -> Result<(), StorageError> {
        let Effect { index: _, command, before, changes, replaced, news, truncated, is_prepared } = effect;
        let storage = self.storage.get().expect("commands are followed once the storage is open").clone();
        let listener = self.on_schema.borrow().clone();
        let (shards, own) = (reactor::shard_count(), self.group.number());
        let applying = reactor::spawn(Group::ADMIN, async move {
            if !is_prepared {
                take_snapshots(&storage, &truncated).await;
            }
            let (come, gone) = news.split();
            tell_shards(&come, shards).await?;
            let tablets: BTreeMap<_, _> =
                come.maps.iter().map(|(table, map)| (*table, own_tablets(map, own))).collect();
            if changes.is_empty() && tablets.is_empty() {
                return Ok(());
            }
            let agreed = AgreedChanges { changes: changes.clone(), tablets, truncated };
            let applied = storage.apply_agreed(command, &agreed).await;
            // A durable change has happened, even if a shard could not apply it: everybody hears of it.
            if let Some(listener) = listener {
                listener(SchemaNews { before, changes, replaced }).await;
            }
            tell_shards(&gone, shards).await?;
            applied
        });
        let applied = applying.await;
        applied.unwrap_or_else(|panicked| Err(StorageError::Shard { shard: 0, reason: panicked.to_string() }))
    }
}

/// Tables of two states that were truncated between them.
fn truncated_between(before: &ClusterState, after: &ClusterState) -> Vec<TableId> {
    let is_truncated = |(table, map): &(&TableId, &Rc<ReplicaMap>)| {
        before.maps().get(table).is_some_and(|known| known.truncated() < map.truncated())
    };
    after.maps().iter().filter(is_truncated).map(|(table, _)| *table).collect()
}

/// Takes this node's snapshots of tables that are about to lose their rows. They lose them in any case, as
/// everywhere.
async fn take_snapshots(storage: &Storage, tables: &[TableId]) {
    for table in tables {
        if let Err(error) = storage.prepare_truncation(*table).await {
            reactor::error!("a table is truncated without a snapshot"; table = table, error = error);
        }
    }
}

/// Changes that put one schema in the place of another; what both have stays as it is.
fn replacing(before: &ClusterState, after: &ClusterState) -> Vec<SchemaChange> {
    let dropped = before.schema().keyspaces().map(|keyspace| keyspace.name.clone());
    dropped.map(|name| SchemaChange::DropKeyspace { name }).chain(after.history()).collect()
}

/// The tablets of a table that node `own` has, by the table's map.
pub(super) fn own_tablets(map: &MapParts, own: NodeNumber) -> OwnTablets {
    let of_tablet = |(number, replicas): (usize, &Vec<Placed>)| {
        let placed = replicas.iter().find(|placed| placed.node == own)?;
        Some((TabletId(number as u32), OwnTablet { shard: placed.shard, since: placed.since }))
    };
    let is_in_transition = |replicas: &[Placed]| replicas.iter().any(|placed| placed.step != Step::Whole);
    let in_transition = map.tablets.iter().enumerate().filter(|(_, replicas)| is_in_transition(replicas));
    OwnTablets::told(map.tablets.iter().enumerate().filter_map(of_tablet))
        .in_transition(in_transition.map(|(number, _)| TabletId(number as u32)))
}

fn schema_change(change: &Change) -> Option<SchemaChange> {
    match change {
        Change::Schema(change) => Some(change.clone()),
        Change::Found(_)
        | Change::AddNode(_)
        | Change::UpdateNode(..)
        | Change::Place(_)
        | Change::MoveTablet(_)
        | Change::SetNodeState(..)
        | Change::Truncate(_)
        | Change::Transition(_)
        | Change::Settled(_) => None,
    }
}

/// Has the views and transports of all shards learn what is new.
pub(super) async fn tell_shards(news: &News, shards: usize) -> Result<(), StorageError> {
    if news.is_empty() {
        return Ok(());
    }
    for shard in 0..shards {
        let news = news.clone();
        let called = mesh::call(shard, Group::ADMIN, move || async move {
            View::here().learn(&news);
            if let (Some(nodes), Ok(network)) = (&news.nodes, Network::here()) {
                network.set_members(members_of(nodes));
            }
        });
        called.await.map_err(|error| StorageError::Shard { shard, reason: error.to_string() })?;
    }
    Ok(())
}

/// The nodes as the transport needs them: those that left are banned.
fn members_of(nodes: &Nodes) -> Members {
    let member = |node: &NodeRecord| Member {
        node: node.number,
        host_id: node.host_id,
        address: node.listen,
        shards: node.shards,
        generation: node.generation,
        data_center: node.data_center.clone(),
        rack: node.rack.clone(),
    };
    let (left, there): (Vec<_>, Vec<_>) = nodes.values().partition(|node| node.state == NodeState::Left);
    let banned = left.into_iter().map(|node| node.host_id).collect();
    let mut members = Members::new(there.into_iter().map(member).collect(), banned, Vec::new());
    members.numbered_to = nodes.keys().last().copied().unwrap_or(0);
    members
}

impl News {
    /// Everything that a state says, for shards that know nothing yet.
    pub(super) fn of(state: &ClusterState, own: NodeNumber) -> Self {
        let maps = state.maps().iter().map(|(table, map)| (*table, map.to_parts())).collect();
        Self { own: Some(own), nodes: Some((**state.nodes()).clone()), maps, gone: Vec::new() }
    }

    /// The difference between two states.
    fn between(before: &ClusterState, after: &ClusterState) -> Self {
        let nodes = (!Rc::ptr_eq(before.nodes(), after.nodes())).then(|| (**after.nodes()).clone());
        let is_known = |(table, map): &(&_, &Rc<_>)| {
            before.maps().get(table).is_some_and(|known| Rc::ptr_eq(known, map))
        };
        let maps = after.maps().iter().filter(|map| !is_known(map));
        let tables = before.schema().tables().map(|table| table.id());
        let gone = tables.filter(|id| after.schema().table_by_id(*id).is_none()).collect();
        let maps = maps.map(|(table, map)| (*table, map.to_parts())).collect();
        Self { own: None, nodes, maps, gone }
    }

    /// News that come before a change takes effect, and those that come after it.
    fn split(self) -> (Self, Self) {
        let after = Self { gone: self.gone, ..Self::default() };
        (Self { gone: Vec::new(), ..self }, after)
    }
}
