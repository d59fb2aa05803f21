//! The right to change what is agreed upon: one holder at a time plans and proposes.

use std::rc::Rc;

use model::Table;
use model::schema::{Schema, SchemaChange};
use model::tablet::{NodeNumber, TabletId};
use reactor::Permit;

use super::founding::placed;
use super::{ClusterError, ControlPlane};
use crate::group0::{Change, Command, Move, RequestId};
use crate::nodes::NodeRecord;

/// The right to change what is agreed upon; nothing else changes it until this is dropped.
pub struct Turn {
    pub(super) control: Rc<ControlPlane>,
    pub(super) _permit: Permit,
}

impl Turn {
    /// The schema at this moment.
    pub fn schema(&self) -> Rc<Schema> {
        Rc::clone(self.control.group.state().schema())
    }

    /// Makes changes of the schema, all or none, and waits until every shard has applied them. New tables are
    /// placed on the nodes that there are.
    ///
    /// # Errors
    /// As [`super::change_schema`].
    pub async fn change(&self, changes: &[SchemaChange]) -> Result<(), ClusterError> {
        let control = &self.control;
        let state = control.group.state();
        let mut after = (**state.schema()).clone();
        changes.iter().try_for_each(|change| after.apply(change))?;
        let nodes: Vec<NodeRecord> = state.nodes().values().cloned().collect();
        let mut all: Vec<Change> = changes.iter().cloned().map(Change::Schema).collect();
        // Without nodes there was no room for them at the start, and tables have no maps.
        if !nodes.is_empty() {
            let is_new = |table: &&Rc<Table>| {
                state.schema().table_by_id(table.id()).is_none() || dropped(changes, table)
            };
            all.extend(
                after.tables().filter(is_new).filter_map(|table| placed(&after, table, &nodes, false)),
            );
        }
        let storage = control.storage.get().ok_or(ClusterError::NotOpen)?;
        storage.prepare_changes(changes).await?;
        self.make(Command {
            id: self.next_id(),
            schema: Some(state.schema().version()),
            changes: all,
            topology: Some(state.topology_version()),
        })
        .await
    }

    /// Moves a node's replica of a tablet to another shard of the node, and waits until it is there.
    ///
    /// # Errors
    /// [`ClusterError::Refused`] for a table, tablet or shard that is not there; otherwise as [`Turn::change`].
    pub async fn move_tablet(
        &self,
        table: &Table,
        tablet: TabletId,
        (node, shard): (NodeNumber, u16),
    ) -> Result<(), ClusterError> {
        let moved = Move { table: table.id().0, tablet: tablet.0, node, shard };
        self.make(Command {
            id: self.next_id(),
            schema: None,
            changes: vec![Change::MoveTablet(moved)],
            topology: None,
        })
        .await
    }

    fn next_id(&self) -> RequestId {
        let sequence = self.control.sequence.get() + 1;
        self.control.sequence.set(sequence);
        RequestId { node: self.control.group.number(), life: self.control.group.term(), sequence }
    }

    /// Proposes a command and waits for its effects.
    async fn make(&self, command: Command) -> Result<(), ClusterError> {
        let control = &self.control;
        let (index, outcome) = control.group.propose(&command).await?;
        outcome?;
        control.progress.wait_until(|| control.effective.get() >= index).await;
        match control.failure.borrow_mut().take_if(|(failed, _)| *failed == index) {
            Some((_, error)) => Err(ClusterError::Effect(error)),
            None => Ok(()),
        }
    }
}

/// Whether a table's id is dropped by one of the changes, so that the table there is after them is a new one.
fn dropped(changes: &[SchemaChange], table: &Table) -> bool {
    changes.iter().any(|change| match change {
        SchemaChange::DropTable { id, .. } => *id == table.id(),
        SchemaChange::DropKeyspace { name } => name == table.keyspace(),
        _ => false,
    })
}
