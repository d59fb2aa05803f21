//! The right to change what is agreed upon: one holder at a time plans and proposes.

use std::rc::Rc;

use model::Table;
use model::schema::{Schema, SchemaChange, TableId};
use model::tablet::{NodeNumber, TabletId};
use reactor::{Deadline, Permit};

use super::founding::placed;
use super::{ClusterError, ControlPlane};
use crate::group0::{Change, ClusterState, Command, Move, Refusal, RequestId, Transition};
use crate::maps::ring::tokens_of_next;
use crate::maps::{ReplicaMap, TabletStep};
use crate::nodes::{NodeRecord, NodeState, OwnFacts};

/// How often a change is planned that others overtake.
const PLANS_MAX: u32 = 8;

/// Tablets of one table that take a step at once, at most.
const STEPS_MAX: usize = 1024;

/// The right to change what is agreed upon; nothing else changes it until this is dropped.
pub struct Turn {
    pub(super) control: Rc<ControlPlane>,
    pub(super) _permit: Permit,
}

/// Plans again what was overtaken: an earlier turn, or an earlier leader, may have left a command in the log
/// whose end it did not see. A node that starts is told no such thing.
async fn planned_again<T>(mut plan: impl AsyncFnMut() -> Result<T, ClusterError>) -> Result<T, ClusterError> {
    let mut plans = 1;
    loop {
        match plan().await {
            Err(ClusterError::Refused(Refusal::Overtaken)) if plans < PLANS_MAX => plans += 1,
            planned => return planned,
        }
    }
}

impl Turn {
    /// The schema at this moment.
    pub fn schema(&self) -> Rc<Schema> {
        Rc::clone(self.control.group.state().schema())
    }

    /// The number of the last command that the plan of this turn can see.
    pub fn index(&self) -> u64 {
        self.control.group.state().last_command()
    }

    /// Makes changes of the schema, all or none, and waits until every shard has applied them; the index of
    /// their command. New tables are placed on the nodes that there are.
    ///
    /// # Errors
    /// As [`super::change_schema`].
    pub async fn change(&self, changes: &[SchemaChange]) -> Result<u64, ClusterError> {
        self.change_as(self.next_id(), changes).await
    }

    /// As [`Turn::change`], as the command of that id.
    ///
    /// # Errors
    /// As [`super::change_schema`].
    pub async fn change_as(&self, id: RequestId, changes: &[SchemaChange]) -> Result<u64, ClusterError> {
        let control = &self.control;
        let state = control.group.state();
        let mut after = (**state.schema()).clone();
        changes.iter().try_for_each(|change| after.apply(change))?;
        let nodes: Vec<NodeRecord> = state.nodes().values().filter(|node| has_data(node)).cloned().collect();
        let mut all: Vec<Change> = changes.iter().cloned().map(Change::Schema).collect();
        // Without nodes there was no room for them at the start, and tables have no maps.
        if !nodes.is_empty() {
            let is_new = |table: &&Rc<Table>| {
                state.schema().table_by_id(table.id()).is_none() || dropped(changes, table)
            };
            all.extend(after.tables().filter(is_new).filter_map(|table| placed(&after, table, &nodes)));
        }
        let storage = control.storage.get().ok_or(ClusterError::NotOpen)?;
        storage.prepare_changes(changes).await?;
        let (schema, topology) = (Some(state.schema().version()), Some(state.topology_version()));
        self.make(Command { id, schema, changes: all, topology }).await
    }

    /// Removes all rows of a table on every node that has some, as the command of that id, after a snapshot
    /// on this node if it takes one automatically, and waits until this node has done it; the index of the
    /// command.
    ///
    /// # Errors
    /// [`ClusterError::Refused`] for a table without a map, [`ClusterError::Storage`] if there is no
    /// snapshot: nothing was done; otherwise as [`Turn::change`].
    pub(super) async fn truncate(&self, id: RequestId, table: TableId) -> Result<u64, ClusterError> {
        let control = &self.control;
        let state = control.group.state();
        if let Some(done) = state.requests().find(id) {
            done.outcome()?;
            return Ok(done.index);
        }
        if !state.maps().contains_key(&table) {
            return Err(Refusal::Misfit(format!("there is no map of table {table}")).into());
        }
        let storage = control.storage.get().ok_or(ClusterError::NotOpen)?;
        storage.prepare_truncation(table).await?;
        control.prepared.borrow_mut().insert(id);
        let changes = vec![Change::Truncate(table.0)];
        let made = self.make(Command { id, schema: None, changes, topology: None }).await;
        // Without an effect nobody else removes it.
        control.prepared.borrow_mut().remove(&id);
        made
    }

    /// Moves a node's replica of a tablet to another shard of the node, and waits until it is there.
    ///
    /// # Errors
    /// [`ClusterError::Refused`] for a table, tablet or shard that is not there; otherwise as
    /// [`Turn::change`].
    pub async fn move_tablet(
        &self,
        table: &Table,
        tablet: TabletId,
        (node, shard): (NodeNumber, u16),
    ) -> Result<u64, ClusterError> {
        let moved = Move { table: table.id().0, tablet: tablet.0, node, shard };
        self.make_topology(vec![Change::MoveTablet(moved)]).await
    }

    /// Takes the steps that `steps_of` finds for the tablets of a table, and waits until they have taken
    /// effect here; returns whether there were any. Of very many the first are taken.
    ///
    /// # Errors
    /// As [`Turn::change`].
    pub(super) async fn take_steps(
        &self,
        table: TableId,
        steps_of: impl FnOnce(&ClusterState, &ReplicaMap) -> Vec<(u32, TabletStep)>,
    ) -> Result<bool, ClusterError> {
        let state = self.control.group.state();
        let Some(map) = state.maps().get(&table) else { return Ok(false) };
        let mut steps = steps_of(&state, map);
        steps.truncate(STEPS_MAX);
        if steps.is_empty() {
            return Ok(false);
        }
        let transition = Transition { table: table.0, version: map.version(), steps };
        self.make_topology(vec![Change::Transition(transition)]).await?;
        Ok(true)
    }

    /// Notes that the replicas of a table are what its keyspace asks for, if `is_settled` still finds so;
    /// returns whether it does.
    ///
    /// # Errors
    /// As [`Turn::change`].
    pub(super) async fn settle(
        &self,
        table: TableId,
        is_settled: impl FnOnce(&ClusterState, &ReplicaMap) -> bool,
    ) -> Result<bool, ClusterError> {
        let state = self.control.group.state();
        let is_settled = state.maps().get(&table).is_some_and(|map| is_settled(&state, map));
        if !is_settled {
            return Ok(false);
        }
        let schema = Some(state.schema().version());
        let topology = Some(state.topology_version());
        let changes = vec![Change::Settled(table.0)];
        self.make(Command { id: self.next_id(), schema, changes, topology }).await.map(|_index| true)
    }

    /// Gives a node that joins a number, tokens and a place in the list of nodes; its number, and the index
    /// of the command. One that is known keeps what it has.
    ///
    /// # Errors
    /// [`ClusterError::Refused`] for a node that left, an address of another node, and a directory that is
    /// older than what the cluster has seen; otherwise as [`Turn::change`].
    pub(crate) async fn add_node(&self, facts: &OwnFacts) -> Result<(NodeNumber, u64), ClusterError> {
        planned_again(async || self.plan_node(facts).await).await
    }

    async fn plan_node(&self, facts: &OwnFacts) -> Result<(NodeNumber, u64), ClusterError> {
        let state = self.control.group.state();
        let refused = |reason: String| Err(Refusal::Misfit(reason).into());
        let known = state.nodes().values().find(|node| node.host_id == facts.host_id);
        if let Some(known) = known {
            if known.state == NodeState::Left {
                return refused(format!(
                    "node {} has left the cluster for ever: start with an empty directory",
                    known.number
                ));
            }
            let changes = vec![Change::UpdateNode(known.number, Box::new(facts.clone()))];
            let index = self.make_topology(changes).await?;
            return Ok((known.number, index));
        }
        let has_address = |node: &&NodeRecord| node.listen == facts.listen && node.state != NodeState::Left;
        if let Some(other) = state.nodes().values().find(has_address) {
            return refused(format!("node {} has the address {}", other.number, facts.listen));
        }
        let number = state.nodes().keys().last().copied().unwrap_or(0);
        let Some(number) = number.checked_add(1) else {
            return refused("all numbers of nodes were given".to_owned());
        };
        let taken: Vec<i64> = state.nodes().values().flat_map(|node| node.tokens.iter().copied()).collect();
        let mut record = NodeRecord {
            number,
            state: NodeState::Joining,
            tokens: tokens_of_next(&taken),
            ..NodeRecord::default()
        };
        record.update(facts);
        let index = self.make_topology(vec![Change::AddNode(Box::new(record))]).await?;
        Ok((number, index))
    }

    /// Notes the facts of a node that has started; one that joined has data from now on. The index of the
    /// command, or of the last one if nothing is new.
    ///
    /// # Errors
    /// [`ClusterError::Refused`] for a node that is not known, another data center or rack than before, and a
    /// directory that is older than what the cluster has seen.
    pub(crate) async fn announce(&self, facts: &OwnFacts) -> Result<u64, ClusterError> {
        planned_again(async || self.plan_announcement(facts).await).await
    }

    async fn plan_announcement(&self, facts: &OwnFacts) -> Result<u64, ClusterError> {
        let state = self.control.group.state();
        let Some(known) = state.nodes().values().find(|node| node.host_id == facts.host_id) else {
            return Err(Refusal::Misfit("the node is not known to the cluster".to_owned()).into());
        };
        let place = (&known.data_center, &known.rack);
        if state.nodes().len() > 1 && place != (&facts.data_center, &facts.rack) {
            return Err(Refusal::Misfit(format!(
                "node {} is of data center {} and rack {}, and says {} and {}: a node keeps them for ever",
                known.number, known.data_center, known.rack, facts.data_center, facts.rack
            ))
            .into());
        }
        let mut changes = Vec::new();
        if known.clone().update(facts) {
            changes.push(Change::UpdateNode(known.number, Box::new(facts.clone())));
        }
        if known.state == NodeState::Joining {
            changes.push(Change::SetNodeState(known.number, NodeState::Normal));
        }
        if changes.is_empty() {
            return Ok(self.control.effective.get());
        }
        self.make_topology(changes).await
    }

    fn next_id(&self) -> RequestId {
        let group = &self.control.group;
        RequestId { node: group.number(), life: group.term(), sequence: self.control.next_sequence() }
    }

    async fn make_topology(&self, changes: Vec<Change>) -> Result<u64, ClusterError> {
        let topology = Some(self.control.group.state().topology_version());
        self.make(Command { id: self.next_id(), schema: None, changes, topology }).await
    }

    /// Proposes a command and waits for its effects; its index.
    async fn make(&self, command: Command) -> Result<u64, ClusterError> {
        let (index, outcome) = self.control.group.propose(&command).await?;
        outcome?;
        self.control.wait_effective(index, Deadline::NEVER).await?;
        Ok(index)
    }
}

/// Whether tablets are placed on a node.
fn has_data(node: &NodeRecord) -> bool {
    node.state == NodeState::Normal
}

/// Whether a table's id is dropped by one of the changes, so that the table there is after them is a new one.
fn dropped(changes: &[SchemaChange], table: &Table) -> bool {
    changes.iter().any(|change| match change {
        SchemaChange::DropTable { id, .. } => *id == table.id(),
        SchemaChange::DropKeyspace { name } => name == table.keyspace(),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_is_overtaken_is_planned_again_and_not_for_ever() {
        reactor::sim::run_one(1, || async {
            for (overtaken, planned) in [(0, 1), (3, 4), (u32::MAX, PLANS_MAX)] {
                let mut plans = 0;
                let done = planned_again(async || {
                    plans += 1;
                    if plans > overtaken { Ok(()) } else { Err(Refusal::Overtaken.into()) }
                });
                assert_eq!(done.await.is_ok(), overtaken < PLANS_MAX);
                assert_eq!(plans, planned);
            }
            let mut plans = 0;
            let misfit = planned_again(async || -> Result<(), ClusterError> {
                plans += 1;
                Err(Refusal::Misfit("it does not fit".to_owned()).into())
            });
            assert!(misfit.await.is_err());
            assert_eq!(plans, 1, "what does not follow is refused at once");
        });
    }
}
