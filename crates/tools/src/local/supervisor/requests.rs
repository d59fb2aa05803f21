//! Requests of other terminals: answered at once, or when a node has ended or answers.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::super::control::{Asker, Request};
use super::super::status::{Line, table};
use super::super::{LocalError, process};
use super::{Life, Running, Supervisor};

/// How long a request waits for a node; it goes on all the same.
const WAIT_TIME: Duration = Duration::from_secs(120);
/// Most requests that wait; further ones are refused.
const WAITING_MAX: usize = 64;

/// A request that waits for a node.
#[derive(Debug)]
pub(super) struct Waiting {
    asker: Asker,
    node: usize,
    what: Awaited,
    pub(super) deadline: Instant,
}

/// The event that a request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Answer,
    End,
}

impl Waiting {
    /// Whether it waits for a node that was started.
    pub(super) fn is_start(&self) -> bool {
        self.what == Awaited::Answer
    }
}

impl Supervisor {
    /// Handles a request.
    pub(super) fn asked(&mut self, request: Request, asker: Asker) {
        if self.ending.is_some() {
            return asker.answer(Err("it is ending".to_owned()));
        }
        if self.waiting.len() + self.asked_for_look.len() + self.asked_for_next.len() >= WAITING_MAX {
            return asker.answer(Err(format!("{WAITING_MAX} requests wait already")));
        }
        let (node, outcome) = match request {
            Request::Status => {
                self.next_look = Instant::now();
                return self.asked_for_next.push(asker);
            }
            Request::Kill { node } => (node, self.end_one(node, Signal::KILL)),
            Request::Stop { node } => (node, self.end_one(node, Signal::TERM)),
            Request::Start { node } => (node, self.start_one(node)),
            Request::Pause { node } => return asker.answer(self.pause(node, true)),
            Request::Resume { node } => return asker.answer(self.pause(node, false)),
        };
        match outcome {
            Ok(what) => {
                let deadline = Instant::now() + WAIT_TIME;
                self.waiting.push(Waiting { asker, node, what, deadline });
            }
            Err(reason) => asker.answer(Err(reason)),
        }
    }

    /// The process of a node, or the reason why there is none.
    fn running(&mut self, number: usize) -> Result<&mut Running, String> {
        let (count, hint) = (self.members.len(), self.hint());
        let member = number.checked_sub(1).and_then(|index| self.members.get_mut(index));
        match member.map(|member| &mut member.life) {
            Some(Life::Runs(running)) => Ok(running),
            Some(Life::Ended { how, .. }) => Err(format!(
                "node {number} does not run: {how}; `ceto local start {number}{hint}` starts it again"
            )),
            None => Err(format!("there is no node {number}: the nodes are 1 to {count}")),
        }
    }

    fn end_one(&mut self, number: usize, signal: Signal) -> Result<Awaited, String> {
        self.running(number)?;
        self.ask_to_end(number, signal).map_err(|error| error.to_string())?;
        Ok(Awaited::End)
    }

    /// Sends a node that runs a signal that ends it; a paused one goes on, to be able to.
    pub(super) fn ask_to_end(&mut self, number: usize, signal: Signal) -> Result<(), LocalError> {
        let Life::Runs(running) = &mut self.member(number).life else { return Ok(()) };
        // A second SIGTERM would end the node without a drain, as its first end was asked for already.
        if running.asked_to_end.is_some_and(|earlier| earlier == signal || earlier == Signal::KILL) {
            return Ok(());
        }
        process::send(&running.child, signal)?;
        running.asked_to_end = Some(signal);
        if running.is_paused {
            running.is_paused = false;
            process::send(&running.child, Signal::CONT)?;
        }
        Ok(())
    }

    fn start_one(&mut self, number: usize) -> Result<Awaited, String> {
        if let Ok(running) = self.running(number) {
            return Err(format!("node {number} runs already, as process {}", running.child.id()));
        }
        if number == 0 || number > self.members.len() {
            return Err(format!("there is no node {number}: the nodes are 1 to {}", self.members.len()));
        }
        self.start(number).map_err(|error| error.to_string())?;
        self.next_look = Instant::now();
        Ok(Awaited::Answer)
    }

    fn pause(&mut self, number: usize, pauses: bool) -> Result<String, String> {
        let running = self.running(number)?;
        let (signal, done) = if pauses { (Signal::STOP, "is paused") } else { (Signal::CONT, "goes on") };
        match (running.is_paused, pauses) {
            (true, true) => return Err(format!("node {number} is paused already")),
            (false, false) => return Err(format!("node {number} is not paused")),
            _ => {}
        }
        if pauses && running.asked_to_end.is_some() {
            return Err(format!("node {number} is ending"));
        }
        process::send(&running.child, signal).map_err(|error| error.to_string())?;
        running.is_paused = pauses;
        Ok(format!("node {number} {done}\n"))
    }

    /// Answers requests that waited for the end of a node.
    pub(super) fn answer_ended(&mut self, number: usize, how: &str) {
        for waiting in self.waiting.extract_if(.., |waiting| waiting.node == number) {
            waiting.asker.answer(match waiting.what {
                Awaited::End => Ok(format!("node {number}: {how}\n")),
                Awaited::Answer => Err(format!("node {number} {how} before it answered: its log says why")),
            });
        }
    }

    /// Answers requests that waited for a look at the nodes.
    pub(super) fn answer_looks(&mut self) {
        let answers = &self.answers;
        let answered = |waiting: &mut Waiting| {
            waiting.is_start() && answers.get(&waiting.node).is_some_and(Result::is_ok)
        };
        for waiting in self.waiting.extract_if(.., answered).collect::<Vec<_>>() {
            let number = waiting.node;
            let Life::Runs(running) = &self.members[number - 1].life else {
                unreachable!("node {number} has an answer and does not run");
            };
            let (seconds, pid) = (running.since.elapsed().as_secs_f64(), running.child.id());
            waiting
                .asker
                .answer(Ok(format!("node {number} answers after {seconds:.1} s, as process {pid}\n")));
        }
        if self.asked_for_look.is_empty() {
            return;
        }
        let text = self.status();
        self.asked_for_look.drain(..).for_each(|asker| asker.answer(Ok(text.clone())));
    }

    fn status(&self) -> String {
        let lines: Vec<Line<'_>> = self
            .members
            .iter()
            .map(|member| {
                let (number, address) = (member.node.number, member.node.ip());
                let answer = self.answers.get(&number);
                let (pid, state, uptime) = match &member.life {
                    Life::Runs(running) => {
                        (Some(running.child.id()), running.state().to_owned(), Some(running.since.elapsed()))
                    }
                    Life::Ended { how, .. } => (None, how.clone(), None),
                };
                Line { number, address, pid, state, uptime, answer }
            })
            .collect();
        table(&lines)
    }

    /// Answers requests whose time is over.
    pub(super) fn give_up_waits(&mut self) {
        let now = Instant::now();
        let hint = self.hint();
        for waiting in self.waiting.extract_if(.., |waiting| now >= waiting.deadline) {
            let (number, seconds) = (waiting.node, WAIT_TIME.as_secs());
            waiting.asker.answer(Err(match waiting.what {
                Awaited::End => format!(
                    "node {number} has not ended after {seconds} s: `ceto local kill {number}{hint}` ends it at once"
                ),
                Awaited::Answer => {
                    format!("node {number} runs and does not answer after {seconds} s: its log says why")
                }
            }));
        }
    }

    /// Refuses all requests that wait.
    pub(super) fn refuse_all(&mut self, why: &str) {
        let looks = self.asked_for_look.drain(..).chain(self.asked_for_next.drain(..));
        let waiting = self.waiting.drain(..).map(|waiting| waiting.asker);
        looks.chain(waiting).for_each(|asker| asker.answer(Err(why.to_owned())));
    }
}

impl Running {
    /// How the node is, in a word.
    fn state(&self) -> &'static str {
        match (self.asked_to_end, self.is_paused, self.has_answered) {
            (Some(_), ..) => "ending",
            (None, true, _) => "paused",
            (None, false, true) => "runs",
            (None, false, false) => "starting",
        }
    }
}
