//! Truncation of a table on all nodes: any shard asks shard 0, which asks the leader.
//!
//! The leader commits one command, which gives every replica of the table another tenancy. A node forgets its
//! rows when the command takes effect there; the client is answered once all nodes have done it. All of them
//! have to be up before anything is done, as in Cassandra. One that goes down meanwhile does it at its start.

use model::TableId;
use reactor::{Deadline, Group, mesh};

use super::ControlPlane;
use super::leader::{self, Ask};

/// Why a table was not truncated, or not everywhere yet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TruncateFailure {
    /// The nodes have not agreed on this table's replicas: each node has its own.
    #[error("each node has its own rows of the table")]
    NotAgreed,
    /// Not all nodes are up; nothing was done.
    #[error("{alive} of {required} nodes are up")]
    Unavailable {
        /// Nodes that there are.
        required: u32,
        /// Those that are up.
        alive: u32,
    },
    /// Not all nodes have done it in time. They will.
    #[error("{received} of {required} nodes have done it in time")]
    TimedOut {
        /// Nodes that have.
        received: u32,
        /// Nodes that there are.
        required: u32,
    },
    /// Another error, of the control plane or of the snapshot.
    #[error("{reason}")]
    Failed {
        /// Its text.
        reason: String,
    },
}

/// Removes all rows of a table from every node. May be called on any shard of any node.
///
/// # Errors
/// [`TruncateFailure`]; except for `NotAgreed` and `Unavailable`, nodes may have lost their rows, or may
/// still lose them.
pub async fn truncate(table: TableId, deadline: Deadline) -> Result<(), TruncateFailure> {
    let failed = |reason: String| TruncateFailure::Failed { reason };
    let called = mesh::call(0, Group::ADMIN, move || async move {
        // A storage without a control plane is one of tests and tools, which have no other nodes.
        let control = ControlPlane::here().ok_or(TruncateFailure::NotAgreed)?;
        control.truncate(table, deadline).await
    });
    called.await.map_err(|error| failed(error.to_string()))?
}

impl ControlPlane {
    async fn truncate(&self, table: TableId, deadline: Deadline) -> Result<(), TruncateFailure> {
        if !self.group.state().maps().contains_key(&table) {
            return Err(TruncateFailure::NotAgreed);
        }
        let (nodes, live) = (self.nodes_with_a_part(), self.live_nodes());
        let required = nodes.len() as u32;
        if live.len() < nodes.len() {
            return Err(TruncateFailure::Unavailable { required, alive: live.len() as u32 });
        }
        let asked = leader::ask(self, Ask::Truncate(self.next_request(), table.0), deadline).await;
        let index = asked.map_err(|error| TruncateFailure::Failed { reason: error.to_string() })?.index;
        let Some(membership) = self.membership() else { return Ok(()) };
        let others: Vec<_> = nodes.into_iter().filter(|node| *node != self.group.number()).collect();
        let all = others.len();
        let done = leader::wait_for_nodes(&membership, others, index, deadline).await;
        if done < all {
            return Err(TruncateFailure::TimedOut { received: done as u32 + 1, required });
        }
        Ok(())
    }
}
