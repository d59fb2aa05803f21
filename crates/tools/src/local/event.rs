//! Events that other threads send to the supervisor.

use std::time::Instant;

use reactor::signal::Received;

use super::control::{Asker, Request};
use super::watch::Answer;

/// Most events that wait for the supervisor; threads with further ones wait.
pub(super) const EVENTS_MAX: usize = 64;

/// One event.
pub(super) enum Event {
    /// A signal came.
    Signal(Received),
    /// A node's process has ended and waits to be taken off the system's table.
    Exited {
        /// The node.
        number: usize,
        /// The last lines that it printed.
        last_lines: Vec<String>,
    },
    /// Another terminal asks.
    Asked(Request, Asker),
    /// Nodes were asked how they see the cluster.
    Looked {
        /// When the first of them was asked.
        began: Instant,
        /// Node and answer.
        answers: Vec<(usize, Answer)>,
    },
}
