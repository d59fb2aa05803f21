//! One CQL connection during set-up: one request, one answer, version 4 without compression.
//!
//! Afterwards its stream is handed to the closed loop, which reads in its own way.

use std::net::SocketAddr;
use std::rc::Rc;

use reactor::Deadline;
use reactor::net::Stream;
use wire::client::{ClientConnection, ClientRequest, Parameters, RequestOptions, ResponseBody, decode};
use wire::extensions::{NR_SHARDS, SHARD};
use wire::frame::{Direction, Frame};
use wire::{Compressor, Consistency, ProtocolVersion};

use super::PerfError;

/// Longest answer that is taken.
pub(super) const FRAME_BYTES_MAX: usize = 16 << 20;

/// The shard of a connection, as reported by the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Landed {
    /// The shard.
    pub(super) shard: u32,
    /// Number of shards.
    pub(super) shards: u32,
}

/// A row of a small answer.
pub(crate) type Row = Vec<Option<Vec<u8>>>;

/// A connection that is being set up.
pub(crate) struct Connection {
    stream: Rc<Stream>,
    client: ClientConnection,
    compressor: Compressor,
    received: Vec<u8>,
    timeout_seconds: u32,
}

impl Connection {
    /// Connects and requests the supported options; then the connection is ready for statements.
    pub(crate) async fn open(
        address: SocketAddr,
        timeout_seconds: u32,
    ) -> Result<(Self, Option<Landed>), PerfError> {
        let connecting = Stream::connect(address);
        let deadline = Deadline::after(std::time::Duration::from_secs(u64::from(timeout_seconds)));
        let stream = reactor::timeout(deadline, connecting)
            .await
            .map_err(|_| PerfError::TimedOut {
                what: format!("connecting to {address}"),
                seconds: timeout_seconds,
            })?
            .map_err(PerfError::io(format!("connecting to {address}")))?;
        let mut connection = Self {
            stream: Rc::new(stream),
            client: ClientConnection::new(ProtocolVersion::V4),
            compressor: Compressor::default(),
            received: Vec::new(),
            timeout_seconds,
        };
        let landed = connection
            .ask("OPTIONS", &ClientRequest::Options, |body| match body {
                ResponseBody::Supported(options) => Some(landed(&options)),
                _ => None,
            })
            .await?;
        let startup = ClientRequest::Startup(&[("CQL_VERSION", "3.0.0")]);
        connection.ask("STARTUP", &startup, |body| matches!(body, ResponseBody::Ready).then_some(())).await?;
        Ok((connection, landed))
    }

    /// Executes a statement without result rows.
    pub(super) async fn execute(&mut self, statement: &str) -> Result<(), PerfError> {
        let parameters = Parameters::at(Consistency::One);
        let accept = |body: ResponseBody<'_>| match body {
            ResponseBody::Void | ResponseBody::SchemaChange(_) | ResponseBody::SetKeyspace(_) => Some(()),
            _ => None,
        };
        self.ask(statement, &ClientRequest::Query(statement, &parameters), accept).await
    }

    /// Executes a statement and returns its rows, one page of them: the bytes of each column.
    pub(crate) async fn rows(&mut self, statement: &str) -> Result<Vec<Row>, PerfError> {
        let parameters = Parameters::at(Consistency::One);
        let accept = |body: ResponseBody<'_>| match body {
            ResponseBody::Rows(rows) => {
                let values: Vec<_> = rows.values().map(|value| value.map(<[u8]>::to_vec)).collect();
                Some(values.chunks(rows.column_count.max(1)).map(<[_]>::to_vec).collect())
            }
            _ => None,
        };
        self.ask(statement, &ClientRequest::Query(statement, &parameters), accept).await
    }

    /// Prepares a statement; its id.
    pub(super) async fn prepare(&mut self, statement: &str) -> Result<Vec<u8>, PerfError> {
        let accept = |body: ResponseBody<'_>| match body {
            ResponseBody::Prepared(prepared) => Some(prepared.id.to_vec()),
            _ => None,
        };
        self.ask(statement, &ClientRequest::Prepare(statement, None), accept).await
    }

    /// The stream, for the closed loop.
    pub(super) fn stream(&self) -> Rc<Stream> {
        self.stream.clone()
    }

    /// Sends one request, and returns the result of `accept` for the answer.
    async fn ask<T>(
        &mut self,
        what: &str,
        request: &ClientRequest<'_>,
        accept: impl FnOnce(ResponseBody<'_>) -> Option<T>,
    ) -> Result<T, PerfError> {
        let mut out = Vec::new();
        self.client.append_request(&mut out, 0, request, &RequestOptions::default(), &mut self.compressor)?;
        let (sent, _) = self.stream.send(out).await;
        sent.map_err(PerfError::io(what))?;
        self.receive(what).await?;
        let frame = Frame::cut_direction(&self.received, FRAME_BYTES_MAX, Direction::Response)
            .map_err(|error| error.error)?
            .expect("a whole frame was received");
        let response = decode(&frame.header, frame.body, &self.client.extensions)?;
        let answer = match response.body {
            ResponseBody::Error { code, message, .. } => {
                Err(PerfError::Server { what: what.to_owned(), code, message: message.to_owned() })
            }
            body => {
                let answer = format!("{:?}", frame.header.opcode);
                accept(body).ok_or_else(|| PerfError::Unexpected { what: what.to_owned(), answer })
            }
        };
        let length = frame.header.frame_bytes();
        self.received.drain(..length);
        answer
    }

    /// Receives until a whole frame has arrived.
    async fn receive(&mut self, what: &str) -> Result<(), PerfError> {
        let deadline = Deadline::after(std::time::Duration::from_secs(u64::from(self.timeout_seconds)));
        loop {
            let frame = Frame::cut_direction(&self.received, FRAME_BYTES_MAX, Direction::Response);
            if frame.map_err(|error| error.error)?.is_some() {
                return Ok(());
            }
            let received = reactor::timeout(deadline, self.stream.recv())
                .await
                .map_err(|_| PerfError::TimedOut { what: what.to_owned(), seconds: self.timeout_seconds })?;
            match received.map_err(PerfError::io(what))? {
                Some(chunk) => self.received.extend_from_slice(&chunk),
                None => return Err(PerfError::Closed { outstanding: 1 }),
            }
        }
    }
}

/// The shards in SUPPORTED; `None` if the server has none, or reports them in an invalid form.
fn landed(options: &[(&str, Vec<&str>)]) -> Option<Landed> {
    let option = |name| {
        let values = &options.iter().find(|(key, _)| *key == name)?.1;
        values.first()?.parse::<u32>().ok()
    };
    let (shard, shards) = (option(SHARD)?, option(NR_SHARDS)?);
    (shard < shards).then_some(Landed { shard, shards })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_read_from_what_the_server_supports() {
        let check = |options: &[(&str, &str)], expected: Option<(u32, u32)>| {
            let options: Vec<_> = options.iter().map(|(key, value)| (*key, vec![*value])).collect();
            let found = landed(&options).map(|l| (l.shard, l.shards));
            assert_eq!(found, expected, "{options:?}");
        };
        check(&[("COMPRESSION", "lz4")], None);
        check(&[(SHARD, "1"), (NR_SHARDS, "2")], Some((1, 2)));
        check(&[(SHARD, "0"), (NR_SHARDS, "1")], Some((0, 1)));
        check(&[(SHARD, "2"), (NR_SHARDS, "2")], None);
        check(&[(SHARD, "x"), (NR_SHARDS, "2")], None);
    }
}
