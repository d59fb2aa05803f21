//! Looks at the nodes: whether they answer, and whether all of them agree yet.
//!
//! Nodes are asked only while somebody waits for their answers: until they are ready, for a status request,
//! or for a node that was started. One look runs at a time, on a thread of its own.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::super::CQL_PORT;
use super::super::agreement::missing;
use super::super::console::{complain, tell};
use super::super::event::Event;
use super::super::watch::{self, Answer};
use super::requests::Waiting;
use super::{Life, Supervisor};

/// Pause between two looks at the nodes.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Time between two lines about what is missing.
pub(super) const TELL_EVERY: Duration = Duration::from_secs(3);

impl Supervisor {
    /// Whether the nodes have not agreed yet and may still do so.
    pub(super) fn is_starting(&self) -> bool {
        !self.is_ready && self.ending.is_none()
    }

    /// Whether somebody waits for the nodes' answers.
    pub(super) fn wants_look(&self) -> bool {
        self.ending.is_none()
            && (!self.is_ready
                || !self.asked_for_next.is_empty()
                || self.waiting.iter().any(Waiting::is_start))
    }

    /// Asks all nodes that run how they see the cluster, on a thread of its own.
    pub(super) fn look_if_due(&mut self) {
        let began = Instant::now();
        if self.is_looking || !self.wants_look() || began < self.next_look {
            return;
        }
        let running = self.members.iter().filter(|member| matches!(member.life, Life::Runs(_)));
        let nodes: Vec<(usize, IpAddr)> =
            running.map(|member| (member.node.number, member.node.ip())).collect();
        let events = self.events.clone();
        let look = move || {
            let answers = watch::look(nodes);
            // The supervisor has ended: so does its process.
            let _ = events.send(Event::Looked { began, answers });
        };
        match std::thread::Builder::new().name("local-watch".to_owned()).spawn(look) {
            Ok(_) => {
                self.is_looking = true;
                self.asked_for_look.append(&mut self.asked_for_next);
            }
            Err(error) => {
                complain(&format!("cannot look at the nodes: {error}"));
                self.next_look = began + TELL_EVERY;
            }
        }
    }

    /// Takes note of the answers of a look that began at `began`.
    pub(super) fn looked(&mut self, began: Instant, answers: Vec<(usize, Answer)>) {
        self.is_looking = false;
        self.next_look = Instant::now() + LOOK_EVERY;
        let is_starting = self.is_starting();
        for (number, answer) in answers {
            // A node that was started since was not the one asked.
            let Life::Runs(running) = &mut self.member(number).life else { continue };
            if running.since > began {
                continue;
            }
            if answer.is_ok() && !running.has_answered {
                running.has_answered = true;
                if is_starting {
                    let seconds = running.since.elapsed().as_secs_f64();
                    tell(&format!("node {number} answers after {seconds:.1} s"));
                }
            }
            self.answers.insert(number, answer);
        }
        self.answer_looks();
        if !is_starting {
            return;
        }
        let nodes: Vec<(usize, IpAddr)> =
            self.members.iter().map(|member| (member.node.number, member.node.ip())).collect();
        self.missing = missing(&nodes, &self.answers);
        if self.missing.is_empty() {
            self.is_ready = true;
            self.tell_ready();
        }
    }

    fn tell_ready(&self) {
        let seconds = self.began.elapsed().as_secs_f64();
        let (count, hint) = (self.members.len(), self.hint());
        let agree = if count == 1 { "1 node answers".to_owned() } else { format!("{count} nodes agree") };
        let first = self.members[0].node.address;
        tell(&format!(
            "ready: {agree} after {seconds:.1} s; connect with: cqlsh {first} {CQL_PORT}; from another terminal: \
             ceto local status{hint}, and kill, stop, start, pause or resume with the number of a node; Ctrl-C ends all"
        ));
    }

    /// Says every few seconds why the nodes are not ready.
    pub(super) fn tell_what_is_missing(&mut self) {
        if !self.is_starting() || self.told_missing.elapsed() < TELL_EVERY {
            return;
        }
        self.told_missing = Instant::now();
        let seconds = self.began.elapsed().as_secs_f64();
        let ended = self.members.iter().filter_map(|member| match &member.life {
            Life::Ended { how, .. } => Some(format!("node {} is not there: {how}", member.node.number)),
            Life::Runs(_) => None,
        });
        let said: Vec<String> = ended.chain(self.missing.iter().cloned()).collect();
        tell(&format!("not ready after {seconds:.0} s: {}", said.join("; ")));
    }
}
