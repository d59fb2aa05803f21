//! The two decisions from which a second cluster or a lost majority could come, as pure functions: what a
//! node without a cluster does (`founding`), and which nodes vote in group 0 (`voters`). `control` acts on
//! them.

pub mod founding;
pub mod voters;
