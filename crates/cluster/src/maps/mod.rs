//! Who has each tablet: maps as agreed upon, how a new table is placed, and what a shard routes requests by.
//!
//! `map` is the agreed value, with versions; `ring` the tokens of nodes; `placement` cuts a new table over
//! the nodes that there are, a pure function; `routing` is what one shard needs of a map for its requests.
//! Replicas join and leave a tablet one after the other, each in two steps (`map::TabletStep`); `steps` says
//! which are next.
//! Tables of keyspaces that every node keeps for itself (`LocalStrategy`) have no map.

pub mod map;
pub mod placement;
pub mod ring;
pub mod routing;
pub(crate) mod steps;

pub use map::{Placed, ReplicaMap, Step, TabletStep};
pub use placement::place;
pub use routing::{Routing, Run};
