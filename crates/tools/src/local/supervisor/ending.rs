//! The end of a cluster: nodes are drained one after the other, the last one first.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::super::console::{complain, tell};
use super::super::process;
use super::{Life, Supervisor};

/// How long a node may take to end by SIGTERM: longer than the server's own `shutdown_timeout`.
const DRAIN_TIME: Duration = Duration::from_secs(75);
/// How long a killed process may take to be gone: the kernel may wait for its disk.
const KILL_TIME: Duration = Duration::from_secs(10);

/// The cluster is ending.
#[derive(Debug)]
pub(super) struct Ending {
    /// Whether the nodes were killed.
    pub(super) is_at_once: bool,
    /// The node that was told to end, and when it is killed.
    node: Option<usize>,
    pub(super) deadline: Instant,
}

impl Supervisor {
    /// Begins to end the nodes in order, or, the second time, kills them.
    pub(super) fn end(&mut self, why: &str) {
        if let Some(ending) = &mut self.ending {
            if !ending.is_at_once {
                ending.is_at_once = true;
                ending.deadline = Instant::now() + KILL_TIME;
                tell(&format!("{why}: ends all nodes at once"));
                self.kill_all();
            }
            return;
        }
        tell(&format!(
            "{why}: drains and ends the nodes one after the other; a second one ends them at once"
        ));
        self.ending = Some(Ending { is_at_once: false, node: None, deadline: Instant::now() });
        self.refuse_all("it is ending");
    }

    /// Tells the next node to end once the one before it has, and kills one that takes too long.
    pub(super) fn advance_ending(&mut self) {
        let Some(ending) = &mut self.ending else { return };
        let running = self.members.iter().rev().find(|member| matches!(member.life, Life::Runs(_)));
        let Some(number) = running.map(|member| member.node.number) else { return };
        let now = Instant::now();
        if ending.is_at_once || ending.node == Some(number) {
            if now >= ending.deadline {
                ending.deadline = now + KILL_TIME;
                complain(&format!("node {number} has not ended in time: it is killed"));
                self.kill_all();
            }
            return;
        }
        ending.node = Some(number);
        ending.deadline = now + DRAIN_TIME;
        if let Err(error) = self.ask_to_end(number, Signal::TERM) {
            complain(&error.to_string());
        }
    }

    fn kill_all(&mut self) {
        for member in &mut self.members {
            if let Life::Runs(running) = &mut member.life {
                running.asked_to_end = Some(Signal::KILL);
                if let Err(error) = process::send(&running.child, Signal::KILL) {
                    complain(&error.to_string());
                }
            }
        }
    }
}
