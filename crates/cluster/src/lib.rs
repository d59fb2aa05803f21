//! The control plane of a node: the state on which all nodes of a cluster agree, and its effects here.
//!
//! `consensus` orders commands (Raft, its log and snapshots on disk). `group0` applies them, in that order,
//! to one value, [`group0::ClusterState`]. `control` opens both on shard 0, below the node's storage, and
//! lets each change of the state take effect on every shard. Changes begin with [`Turn`] or
//! [`change_schema`]. Invariant: a command is answered only after its log entry is durable, and commands are
//! applied in the order of their indexes, each once. `group0::apply` is a pure function, so equal logs make
//! equal states.

pub mod consensus;
mod control;
#[doc(hidden)]
pub mod fuzzing;
pub mod group0;
pub mod handshake;
pub mod liveness;
pub mod maps;
pub mod membership;
pub mod net;
pub mod nodes;
mod view;

pub use control::leader::Answered;
pub use control::leave::leave;
pub use control::service::ClusterOptions;
pub use control::{
    ClusterError, ControlPlane, Measured, Meter, OnSchema, Planner, SchemaNews, SyncTablet, Syncer,
    TruncateFailure, Turn, change_schema, open_node, open_storage, truncate,
};
pub use model::tablet::NodeNumber;
pub use view::{Nodes, View};
