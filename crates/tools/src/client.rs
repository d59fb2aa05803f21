//! One connection of a tool to a server that speaks CQL: hello, credentials, and one request at a time.
//!
//! `ceto stress` and `ceto shell` use it. Its stream and its remaining bytes can become a [`pipe`], which has
//! many requests in flight and reads in its own way.

pub(crate) mod pipe;

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use reactor::Deadline;
use reactor::net::Stream;
use wire::client::{
    ClientConnection, ClientRequest, Parameters, RequestOptions, Response, ResponseBody, decode,
};
use wire::extensions::{Extensions, NR_SHARDS, SHARD, SHARDING_IGNORE_MSB, TABLETS_ROUTING_V1};
use wire::frame::{Direction, Frame, FrameHeader};
use wire::segment::{Decoded, SegmentDecoder, SegmentEncoder, SegmentFormat};
use wire::{Compression, Compressor, Consistency, Flags, ProtocolError, ProtocolVersion};

/// Longest answer that is taken.
pub(crate) const FRAME_BYTES_MAX: usize = 256 << 20;
/// PROTOCOL_ERROR: the server does not speak the version.
const PROTOCOL_ERROR: i32 = 0x000A;

/// Why a request got no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// The network failed.
    #[error("{what}: {source}")]
    Io {
        /// The action that failed.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// The server ended the connection.
    #[error("{what}: the server closed the connection")]
    Closed {
        /// The action that failed.
        what: String,
    },
    /// No answer in time.
    #[error("{what}: no answer in time")]
    TimedOut {
        /// The awaited event.
        what: String,
    },
    /// Bytes that are not a response.
    #[error("the server does not speak the protocol: {0}")]
    Protocol(#[from] wire::ProtocolError),
    /// The server asks for a user, and none was given.
    #[error("{what}: the server asks for a user and a password")]
    NoUser {
        /// The action that failed.
        what: String,
    },
    /// The server returned an error.
    #[error("{message} (error {code:#06x}: {what})")]
    Server {
        /// The request.
        what: String,
        /// The protocol's error code.
        code: i32,
        /// Its text.
        message: String,
    },
    /// An answer of another kind than expected.
    #[error("{what}: not the answer expected")]
    Unexpected {
        /// The request.
        what: String,
    },
}

impl ClientError {
    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

/// How to connect.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// The name in STARTUP.
    pub(crate) driver: &'static str,
    /// The version; `None` for the newest that the server supports.
    pub(crate) version: Option<ProtocolVersion>,
    /// Compression of bodies.
    pub(crate) compression: Option<Compression>,
    /// Whether to ask for the owners of tablets.
    pub(crate) wants_tablets: bool,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    /// Whether a server that asks for a user gets an empty one if none was given.
    pub(crate) may_be_nobody: bool,
    /// How long one step of setting up, or a request of [`Client::execute`] and its kind, may take.
    pub(crate) step_time: Duration,
}

/// A response as it came.
pub(crate) struct Answer {
    header: FrameHeader,
    body: Vec<u8>,
    extensions: Extensions,
}

impl Answer {
    /// The answer with this header and body, already decompressed.
    pub(crate) fn new(header: FrameHeader, body: Vec<u8>, extensions: Extensions) -> Self {
        Self { header, body, extensions }
    }

    /// Reads it.
    ///
    /// # Errors
    /// As [`decode`].
    pub(crate) fn read(&self) -> Result<Response<'_>, ProtocolError> {
        decode(&self.header, &self.body, &self.extensions)
    }
}

/// The shard of a connection, as reported by the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Landed {
    pub(crate) shard: u32,
    pub(crate) shards: u32,
    pub(crate) ignore_msb: u8,
}

/// The result of PREPARE, owned.
#[derive(Debug, Clone, Default)]
pub(crate) struct Prepared {
    pub(crate) id: Vec<u8>,
    pub(crate) result_metadata_id: Vec<u8>,
    /// Names and types of the bind markers.
    pub(crate) markers: Vec<(String, model::CqlType)>,
    /// Names and types of the result columns.
    pub(crate) columns: Vec<(String, model::CqlType)>,
}

/// A row of a small answer: text of each column, as bytes.
pub(crate) type Row = Vec<Option<Vec<u8>>>;

/// A connection that is being set up.
pub(crate) struct Client {
    pub(crate) stream: Rc<Stream>,
    pub(crate) connection: ClientConnection,
    /// How version 5 packs its frames, once STARTUP is through.
    pub(crate) segments: Option<SegmentFormat>,
    encoder: Option<SegmentEncoder>,
    decoder: Option<SegmentDecoder>,
    compressor: Compressor,
    /// Bytes received and not yet looked at.
    raw: Vec<u8>,
    /// Frames.
    received: Vec<u8>,
    pub(crate) address: SocketAddr,
    /// Statements prepared here.
    pub(crate) statements: Vec<String>,
    /// Whether the server asked for a user.
    pub(crate) has_user: bool,
    options: Options,
    /// The stream id of the last request: answers on others come late, to requests that were given up.
    stream_id: i16,
}

impl Client {
    /// Connects in the newest version that both sides speak, or in the one asked for.
    ///
    /// # Errors
    /// [`ClientError::Server`] and its kind.
    pub(crate) async fn open(
        address: SocketAddr,
        options: &Options,
    ) -> Result<(Self, Option<Landed>), ClientError> {
        let wanted = options.version.map_or_else(
            || vec![ProtocolVersion::V5, ProtocolVersion::V4, ProtocolVersion::V3],
            |version| vec![version],
        );
        let mut refused = None;
        for version in wanted {
            match Self::open_version(address, options, version).await {
                Err(error @ ClientError::Server { code: PROTOCOL_ERROR, .. }) => refused = Some(error),
                other => return other,
            }
        }
        Err(refused.unwrap_or(ClientError::Closed { what: format!("connecting to {address}") }))
    }

    async fn open_version(
        address: SocketAddr,
        options: &Options,
        version: ProtocolVersion,
    ) -> Result<(Self, Option<Landed>), ClientError> {
        let what = format!("connecting to {address}");
        let stream = reactor::timeout(Deadline::after(options.step_time), Stream::connect(address))
            .await
            .map_err(|_| ClientError::TimedOut { what: what.clone() })?
            .map_err(ClientError::io(&what))?;
        let mut client = Self {
            stream: Rc::new(stream),
            connection: ClientConnection::new(version),
            segments: None,
            encoder: None,
            decoder: None,
            compressor: Compressor::default(),
            raw: Vec::new(),
            received: Vec::new(),
            address,
            statements: Vec::new(),
            has_user: false,
            options: options.clone(),
            stream_id: 0,
        };
        let (landed, has_tablets) = client
            .ask("OPTIONS", &ClientRequest::Options, |body| match body {
                ResponseBody::Supported(options) => {
                    let has_tablets = options.iter().any(|(name, _)| *name == TABLETS_ROUTING_V1);
                    Some((landed(&options), has_tablets))
                }
                _ => None,
            })
            .await?;
        client.start(has_tablets && options.wants_tablets).await?;
        Ok((client, landed))
    }

    async fn start(&mut self, has_tablets: bool) -> Result<(), ClientError> {
        let is_v5 = self.connection.version >= ProtocolVersion::V5;
        // Version 5 has no snappy.
        let compression = self.options.compression.filter(|kind| !is_v5 || *kind == Compression::Lz4);
        let mut options = vec![("CQL_VERSION", "3.0.0"), ("DRIVER_NAME", self.options.driver)];
        if let Some(kind) = compression {
            options.push(("COMPRESSION", kind.name()));
        }
        if has_tablets {
            options.push((TABLETS_ROUTING_V1, ""));
        }
        enum Next {
            Ready,
            Authenticate,
        }
        let answer = self
            .ask("STARTUP", &ClientRequest::Startup(&options), |body| match body {
                ResponseBody::Ready => Some(Next::Ready),
                ResponseBody::Authenticate(_) => Some(Next::Authenticate),
                _ => None,
            })
            .await?;
        if is_v5 {
            let format = if compression.is_some() { SegmentFormat::Lz4 } else { SegmentFormat::Plain };
            self.segments = Some(format);
            self.encoder = Some(SegmentEncoder::new(format));
            self.decoder = Some(SegmentDecoder::new(format, Direction::Response, FRAME_BYTES_MAX));
        } else {
            self.connection.compression = compression;
        }
        if matches!(answer, Next::Authenticate) {
            self.has_user = true;
            let (user, password) = (self.options.user.as_deref(), self.options.password.as_deref());
            if user.is_none() && !self.options.may_be_nobody {
                return Err(ClientError::NoUser { what: format!("connecting to {}", self.address) });
            }
            let token = format!("\0{}\0{}", user.unwrap_or_default(), password.unwrap_or_default());
            let request = ClientRequest::AuthResponse(Some(token.as_bytes()));
            let accept = |body: ResponseBody<'_>| matches!(body, ResponseBody::AuthSuccess(_)).then_some(());
            self.ask("AUTH_RESPONSE", &request, accept).await?;
        }
        Ok(())
    }

    /// Executes a statement without result rows.
    pub(crate) async fn execute(&mut self, statement: &str) -> Result<(), ClientError> {
        let parameters = Parameters::at(Consistency::One);
        let accept = |body: ResponseBody<'_>| match body {
            ResponseBody::Void | ResponseBody::SchemaChange(_) | ResponseBody::SetKeyspace(_) => Some(()),
            _ => None,
        };
        self.ask(statement, &ClientRequest::Query(statement, &parameters), accept).await
    }

    /// Executes a statement and returns its rows, one page of them.
    pub(crate) async fn rows(&mut self, statement: &str) -> Result<Vec<Row>, ClientError> {
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

    /// Prepares a statement.
    pub(crate) async fn prepare(&mut self, statement: &str) -> Result<Prepared, ClientError> {
        let accept = |body: ResponseBody<'_>| match body {
            ResponseBody::Prepared(prepared) => Some(Prepared {
                id: prepared.id.to_vec(),
                result_metadata_id: prepared.result_metadata_id.unwrap_or_default().to_vec(),
                markers: prepared
                    .bind_columns
                    .into_iter()
                    .map(|column| (column.name.to_owned(), column.ty))
                    .collect(),
                columns: prepared
                    .result_columns
                    .into_iter()
                    .flatten()
                    .map(|column| (column.name.to_owned(), column.ty))
                    .collect(),
            }),
            _ => None,
        };
        let prepared = self.ask(statement, &ClientRequest::Prepare(statement, None), accept).await?;
        self.statements.push(statement.to_owned());
        Ok(prepared)
    }

    /// Sends one request, and returns the result of `accept` for the answer.
    async fn ask<T>(
        &mut self,
        what: &str,
        request: &ClientRequest<'_>,
        accept: impl FnOnce(ResponseBody<'_>) -> Option<T>,
    ) -> Result<T, ClientError> {
        let deadline = Deadline::after(self.options.step_time);
        let answer = self.exchange(what, request, &RequestOptions::default(), deadline).await?;
        match answer.read()?.body {
            ResponseBody::Error { code, message, .. } => {
                Err(ClientError::Server { what: what.to_owned(), code, message: message.to_owned() })
            }
            body => accept(body).ok_or_else(|| ClientError::Unexpected { what: what.to_owned() }),
        }
    }

    /// Sends one request, and returns its answer, which may be an error of the server.
    ///
    /// # Errors
    /// All but [`ClientError::Server`]. A request that timed out may be answered later: the next one ignores
    /// that answer.
    pub(crate) async fn exchange(
        &mut self,
        what: &str,
        request: &ClientRequest<'_>,
        options: &RequestOptions<'_>,
        deadline: Deadline,
    ) -> Result<Answer, ClientError> {
        self.stream_id = self.stream_id.wrapping_add(1) & i16::MAX;
        let mut out = Vec::new();
        let start = self.encoder.as_ref().map(|encoder| encoder.begin(&mut out));
        self.connection.append_request(&mut out, self.stream_id, request, options, &mut self.compressor)?;
        if let (Some(encoder), Some(start)) = (&mut self.encoder, start) {
            encoder.finish(&mut out, start);
        }
        let (sent, _) = self.stream.send(out).await;
        sent.map_err(ClientError::io(what))?;
        loop {
            self.unpack()?;
            while let Some(answer) = self.next_answer()? {
                if answer.header.stream == self.stream_id {
                    return Ok(answer);
                }
            }
            let received = reactor::timeout(deadline, self.stream.recv())
                .await
                .map_err(|_| ClientError::TimedOut { what: what.to_owned() })?;
            match received.map_err(ClientError::io(what))? {
                Some(chunk) => self.raw.extend_from_slice(&chunk),
                None => return Err(ClientError::Closed { what: what.to_owned() }),
            }
        }
    }

    /// Takes the next whole frame out of the received bytes.
    fn next_answer(&mut self) -> Result<Option<Answer>, ClientError> {
        let frame = Frame::cut_direction(&self.received, FRAME_BYTES_MAX, Direction::Response)
            .map_err(|error| error.error)?;
        let Some(frame) = frame else { return Ok(None) };
        let mut header = frame.header;
        let mut body = Vec::new();
        match self.connection.compression {
            Some(kind) if header.flags.contains(Flags::COMPRESSED) => {
                kind.decompress(frame.body, FRAME_BYTES_MAX, &mut body)?;
                header.flags.0 &= !Flags::COMPRESSED;
            }
            _ => body.extend_from_slice(frame.body),
        }
        let length = frame.header.frame_bytes();
        self.received.drain(..length);
        Ok(Some(Answer { header, body, extensions: self.connection.extensions }))
    }

    /// Turns raw bytes into frames.
    fn unpack(&mut self) -> Result<(), ClientError> {
        let Some(decoder) = &mut self.decoder else {
            self.received.append(&mut self.raw);
            return Ok(());
        };
        let mut at = 0;
        loop {
            match decoder.decode(&self.raw[at..]).map_err(|error| error.error)? {
                Decoded::NeedMore => break,
                Decoded::Partial { consumed } => at += consumed,
                Decoded::Envelopes { consumed, envelopes } => {
                    self.received.extend_from_slice(envelopes);
                    at += consumed;
                }
                Decoded::Refused { error, .. } => return Err(error.error.into()),
            }
        }
        self.raw.drain(..at);
        Ok(())
    }
}

/// The shards in SUPPORTED; `None` if the server has none, or reports them in an invalid form.
fn landed(options: &[(&str, Vec<&str>)]) -> Option<Landed> {
    let option = |name| {
        let values = &options.iter().find(|(key, _)| *key == name)?.1;
        values.first()?.parse::<u32>().ok()
    };
    let (shard, shards) = (option(SHARD)?, option(NR_SHARDS)?);
    let ignore_msb = u8::try_from(option(SHARDING_IGNORE_MSB).unwrap_or(0)).ok()?;
    (shard < shards && shards <= u32::from(u16::MAX)).then_some(Landed { shard, shards, ignore_msb })
}
