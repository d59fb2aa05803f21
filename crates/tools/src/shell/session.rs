//! The shell's connection: statements with the session's levels, pages and keyspace, one at a time.
//!
//! A connection that failed, or whose answer nobody waits for any more, is replaced at the next statement.
//! Ctrl-C ends the wait for an answer, not the shell.

use std::future::poll_fn;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use model::type_parser::quote_identifier;
use reactor::Deadline;
use wire::Consistency;
use wire::client::{ClientRequest, Parameters, RequestOptions, ResponseBody};

use super::error::{ServerError, ShellError};
use crate::client::{Answer, Client, ClientError, Options};

/// Rows of a page.
pub(super) const PAGE_ROWS_DEFAULT: i32 = 100;
/// How often a wait looks whether it was interrupted.
const INTERRUPT_TICK: Duration = Duration::from_millis(50);

/// Set by the thread that takes signals.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Notes an interruption.
pub(super) fn interrupt() {
    INTERRUPTED.store(true, Ordering::SeqCst);
}

/// A row of a small answer.
pub(super) type Row = Vec<Option<Vec<u8>>>;

/// A session.
pub(super) struct Session {
    /// The server as it was given.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) address: SocketAddr,
    pub(super) options: Options,
    /// How long a statement may take.
    pub(super) request_time: Duration,
    client: Option<Client>,
    /// The keyspace of names without one.
    pub(super) keyspace: Option<String>,
    pub(super) consistency: Consistency,
    pub(super) serial_consistency: Consistency,
    /// Rows of a page; `None` for all at once.
    pub(super) page_rows: Option<i32>,
    pub(super) is_traced: bool,
    /// The server of the last connection.
    pub(super) server: Server,
}

/// A server, as it describes itself.
#[derive(Debug, Clone, Default)]
pub(super) struct Server {
    pub(super) cluster: String,
    pub(super) release: String,
    pub(super) cql: String,
    pub(super) protocol: String,
    /// Whether it asked for a user.
    pub(super) has_users: bool,
}

impl Session {
    /// Connects.
    ///
    /// # Errors
    /// If no connection can be made, the server refuses the user, or there is no such keyspace.
    pub(super) async fn open(
        host: String,
        port: u16,
        options: Options,
        request_time: Duration,
        keyspace: Option<String>,
    ) -> Result<Self, ShellError> {
        let address = resolve(&host, port)?;
        let mut session = Self {
            host,
            port,
            address,
            options,
            request_time,
            client: None,
            keyspace,
            consistency: Consistency::One,
            serial_consistency: Consistency::Serial,
            page_rows: Some(PAGE_ROWS_DEFAULT),
            is_traced: false,
            server: Server::default(),
        };
        session.connect().await?;
        Ok(session)
    }

    /// Makes the connection, if there is none.
    async fn connect(&mut self) -> Result<(), ShellError> {
        if self.client.is_some() {
            return Ok(());
        }
        let opening = interruptible(Client::open(self.address, &self.options)).await;
        let (client, _) = opening.ok_or(ShellError::Interrupted)??;
        self.server.has_users = client.has_user;
        let version = client.connection.version;
        // It names itself 5/v5.
        self.server.protocol = version.to_string().split('/').next().unwrap_or_default().to_owned();
        self.client = Some(client);
        let read = Box::pin(self.greet()).await;
        if read.is_err() {
            self.client = None;
        }
        read
    }

    async fn greet(&mut self) -> Result<(), ShellError> {
        let about = "SELECT cluster_name, release_version, cql_version FROM system.local WHERE key = 'local'";
        let row = self.small_rows(about).await?.into_iter().next().unwrap_or_default();
        let text = |at: usize| {
            let bytes = row.get(at).cloned().flatten().unwrap_or_default();
            super::style::harmless(&String::from_utf8_lossy(&bytes))
        };
        (self.server.cluster, self.server.release, self.server.cql) = (text(0), text(1), text(2));
        if let Some(keyspace) = self.keyspace.clone() {
            self.query(&format!("USE {}", quote_identifier(&keyspace)), None).await?;
        }
        Ok(())
    }

    /// Connects anew, as another user; as before if that one is refused.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(super) async fn login(
        &mut self,
        user: Option<String>,
        password: Option<String>,
    ) -> Result<(), ShellError> {
        let options = Options { user, password, ..self.options.clone() };
        let (options, client) = (std::mem::replace(&mut self.options, options), self.client.take());
        let connected = Box::pin(self.connect()).await;
        if connected.is_err() {
            (self.options, self.client) = (options, client);
        }
        connected
    }

    /// Sends a statement with the session's settings; returns the answer, or the server's error.
    ///
    /// # Errors
    /// [`ShellError`], the server's own included.
    pub(super) async fn query(
        &mut self,
        text: &str,
        paging_state: Option<&[u8]>,
    ) -> Result<Answer, ShellError> {
        let parameters = Parameters {
            page_size: self.page_rows,
            paging_state,
            serial_consistency: Some(self.serial_consistency),
            ..Parameters::at(self.consistency)
        };
        self.send(&ClientRequest::Query(text, &parameters), self.is_traced).await
    }

    /// Sends a statement of the shell's own, without tracing, and returns all of its rows.
    ///
    /// # Errors
    /// As [`Self::query`].
    pub(super) async fn small_rows(&mut self, text: &str) -> Result<Vec<Row>, ShellError> {
        const PAGE_ROWS: i32 = 5000;
        let mut all = Vec::new();
        let mut state: Option<Vec<u8>> = None;
        loop {
            let parameters = Parameters {
                page_size: Some(PAGE_ROWS),
                paging_state: state.as_deref(),
                ..Parameters::at(Consistency::LocalOne)
            };
            let answer = self.send(&ClientRequest::Query(text, &parameters), false).await?;
            let ResponseBody::Rows(rows) = answer.read()?.body else { return Ok(all) };
            let values: Vec<_> = rows.values().map(|value| value.map(<[u8]>::to_vec)).collect();
            all.extend(values.chunks(rows.column_count.max(1)).map(<[_]>::to_vec));
            state = rows.paging_state.map(<[u8]>::to_vec);
            if state.is_none() {
                return Ok(all);
            }
        }
    }

    /// Sends a request, on a new connection if the last one is lost.
    ///
    /// # Errors
    /// As [`Self::query`].
    pub(super) async fn send(
        &mut self,
        request: &ClientRequest<'_>,
        tracing: bool,
    ) -> Result<Answer, ShellError> {
        let connected = Box::pin(self.connect()).await;
        if connected.as_ref().is_err_and(|error| matches!(error, ShellError::Server(_)))
            && self.keyspace.is_some()
        {
            // The keyspace went while there was no connection: names have to say where they belong then.
            self.keyspace = None;
            Box::pin(self.connect()).await?;
        } else {
            connected?;
        }
        let result = self.exchange(request, tracing).await;
        if result.as_ref().is_err_and(ShellError::ends_connection) {
            self.client = None;
        }
        result
    }

    async fn exchange(&mut self, request: &ClientRequest<'_>, tracing: bool) -> Result<Answer, ShellError> {
        let options = RequestOptions { tracing, ..RequestOptions::default() };
        let seconds = self.request_time.as_secs_f64();
        let deadline = Deadline::after(self.request_time);
        let Some(client) = &mut self.client else { return Err(ShellError::Interrupted) };
        let waiting = interruptible(client.exchange("statement", request, &options, deadline)).await;
        let answer = waiting.ok_or(ShellError::Interrupted)?.map_err(|error| match error {
            ClientError::TimedOut { .. } => ShellError::TimedOut { seconds },
            other => ShellError::Client(other),
        })?;
        if let ResponseBody::Error { code, message, fields } = answer.read()?.body {
            return Err(ShellError::Server(ServerError::new(code, message, fields)));
        }
        Ok(answer)
    }
}

/// The address of a host, version 4 first, as servers listen by default.
fn resolve(host: &str, port: u16) -> Result<SocketAddr, ShellError> {
    let unknown = |reason: String| ShellError::command(format!("'{host}' cannot be found: {reason}"));
    let found = (host, port).to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
    let mut addresses: Vec<SocketAddr> = found.collect();
    addresses.sort_by_key(SocketAddr::is_ipv6);
    addresses.first().copied().ok_or_else(|| unknown("it has no address".to_owned()))
}

/// The outcome of a future; `None` if it was interrupted first.
pub(super) async fn interruptible<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    INTERRUPTED.store(false, Ordering::SeqCst);
    loop {
        let mut tick = pin!(reactor::sleep(INTERRUPT_TICK));
        let outcome = poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => tick.as_mut().poll(context).map(|()| None),
        });
        match outcome.await {
            None if INTERRUPTED.load(Ordering::SeqCst) => return None,
            None => {}
            done => return done,
        }
    }
}
