//! Handles missing answers: late ones, connections that end, servers that come back.
//!
//! A connection that ended is replaced, with as many attempts as necessary, and with the keyspace and the
//! statements of the old one; until then its work goes elsewhere. Without any connection a try fails after a
//! pause, so that a run that ignores errors waits for a server instead of spinning. A server that no longer
//! has a statement, because its table changed or its cache was full, gets all of them again.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use reactor::{Deadline, Group, Instant, now};

use super::{LoadEngine, Run};
use crate::client::Client;
use crate::client::pipe::Pipe;
use crate::stress::StressError;
use crate::stress::settings::Mode;

/// How long an answer may take before its try has failed, as in the Java driver.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(12);
/// Time between two attempts to connect again, and before a try without any connection has failed.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);
/// Statements that are prepared again on a new connection.
const STATEMENTS_MAX: usize = 1024;

/// The data needed for a new connection.
pub(in crate::stress) struct Recovery {
    mode: Mode,
    keyspace: String,
    /// The server of each connection.
    addresses: Vec<SocketAddr>,
    statements: RefCell<Vec<String>>,
    stopped: Cell<bool>,
}

impl Recovery {
    /// For connections to `addresses`; `keyspace` is the statement that chooses it.
    pub(in crate::stress) fn new(mode: Mode, keyspace: String, addresses: Vec<SocketAddr>) -> Self {
        let statements = RefCell::new(Vec::new());
        Self { mode, keyspace, addresses, statements, stopped: Cell::new(false) }
    }

    pub(super) fn stop(&self) {
        self.stopped.set(true);
    }

    async fn connect(&self, index: usize) -> Result<Pipe, StressError> {
        Ok(Pipe::new(&self.prepare(index).await?, self.mode.requests_per_connection))
    }

    /// Prepares the statements on a new connection to the server of `index`, for all connections to it.
    async fn prepare(&self, index: usize) -> Result<Client, StressError> {
        let (mut client, _) = Client::open(self.addresses[index], &self.mode.client()).await?;
        client.execute(&self.keyspace).await?;
        let statements = self.statements.borrow().clone();
        for statement in statements {
            client.prepare(&statement).await?;
        }
        Ok(client)
    }
}

impl LoadEngine {
    /// Remembers statements for future connections.
    pub(in crate::stress) fn remember(&self, statements: impl IntoIterator<Item = String>) {
        let mut known = self.recovery.statements.borrow_mut();
        for statement in statements {
            if !known.contains(&statement) && known.len() < STATEMENTS_MAX {
                known.push(statement);
            }
        }
    }

    /// Fails the tries whose answers are late.
    pub(in crate::stress) fn give_up_late(&self) {
        let mut run = self.run.borrow_mut();
        let Some(run) = run.as_mut() else { return };
        let at = now();
        for worker in 0..run.workers.len() {
            let state = &run.workers[worker];
            let is_late = state.sent.is_some_and(|sent| at.since(sent) > ANSWER_TIME_MAX);
            if let Some((pipe, stream)) = state.at.filter(|_| is_late) {
                self.pipe(pipe).abandon(stream);
                let error =
                    ("OperationTimedOutException", "Timed out waiting for server response".to_owned());
                self.try_failed(run, worker as u32, error, at);
            }
        }
    }

    /// Sends a worker's operation again as soon as its server, that of connection `index`, has the
    /// statements. A second time in a row its try has failed.
    #[cold]
    pub(super) fn unprepared(self: &Rc<Self>, run: &mut Run, worker: u32, index: usize, at: Instant) {
        let state = &mut run.workers[worker as usize];
        if std::mem::replace(&mut state.is_prepared_again, true) {
            let message = "The server does not keep its prepared statements".to_owned();
            return self.try_failed(run, worker, ("UnpreparedException", message), at);
        }
        state.at = None;
        let is_first = !run.unprepared.contains_key(&index);
        run.unprepared.entry(index).or_default().push(worker);
        if is_first {
            let engine = Rc::clone(self);
            reactor::spawn(Group::STATEMENT, async move { engine.prepare_again(index).await }).detach();
        }
    }

    async fn prepare_again(&self, index: usize) {
        let deadline = Deadline::after(ANSWER_TIME_MAX);
        let prepared = match reactor::timeout(deadline, self.recovery.prepare(index)).await {
            Ok(prepared) => prepared.map(drop).map_err(|error| error.to_string()),
            Err(late) => Err(late.to_string()),
        };
        let mut run = self.run.borrow_mut();
        let Some(run) = run.as_mut() else { return };
        let at = now();
        for worker in run.unprepared.remove(&index).unwrap_or_default() {
            match &prepared {
                Ok(()) => self.dispatch(run, worker, at),
                Err(error) => self.try_failed(run, worker, ("UnpreparedException", error.clone()), at),
            }
        }
    }

    /// Handles the end of a connection: workers that waited on it try elsewhere.
    pub(super) fn lost(&self, pipe: &Pipe) {
        let waited = pipe.close();
        let mut run = self.run.borrow_mut();
        let Some(run) = run.as_mut() else { return };
        let at = now();
        for worker in waited {
            let error = ("ConnectionException", "Connection has been closed".to_owned());
            self.try_failed(run, worker, error, at);
        }
        self.unpark(run, at);
    }

    /// Replaces a connection: tries until it is connected or the engine is closed.
    pub(super) async fn recover(self: Rc<Self>, index: usize) {
        while !self.recovery.stopped.get() {
            reactor::sleep(RECONNECT_PAUSE).await;
            let Ok(pipe) = self.recovery.connect(index).await else { continue };
            if self.recovery.stopped.get() {
                return;
            }
            self.pipes.borrow_mut()[index] = Rc::new(pipe);
            self.spawn_pipe(index);
            if let Some(run) = self.run.borrow_mut().as_mut() {
                self.unpark(run, now());
            }
            return;
        }
    }

    fn unpark(&self, run: &mut Run, at: Instant) {
        for worker in std::mem::take(&mut run.parked) {
            self.dispatch(run, worker, at);
        }
    }

    /// There is no connection to send by: a try fails, but not before a pause.
    pub(super) fn without_connection(&self, run: &mut Run, worker: u32, at: Instant) {
        let state = &mut run.workers[worker as usize];
        if state.tries < self.errors.tries && !run.is_failed {
            state.tries += 1;
            let message = "All host(s) tried for query failed (no connection is left)";
            state.last_error = Some(format!("(NoHostAvailableException): {message}"));
            self.wait(run, worker, at + RECONNECT_PAUSE);
        } else {
            (state.job.partitions, state.job.rows) = (0, 0);
            self.finish(run, worker, false, at);
        }
    }
}
