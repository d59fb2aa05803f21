//! Who is a member of the cluster, and with what part: founding and joining, and which nodes vote.
//!
//! `founding` decides what a node without a cluster does; `voters` chooses the nodes that vote in group 0. Both
//! are pure.

pub mod founding;
pub mod voters;
