//! One connection during set-up: hello, credentials, prepared statements, created tables; one request at a
//! time.
//!
//! Afterwards its stream and its remaining bytes become a `pipe`, which reads in its own way.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use reactor::Deadline;
use reactor::net::Stream;
use wire::client::{ClientConnection, ClientRequest, Parameters, RequestOptions, ResponseBody, decode};
use wire::extensions::{NR_SHARDS, SHARD, SHARDING_IGNORE_MSB, TABLETS_ROUTING_V1};
use wire::frame::{Direction, Frame};
use wire::segment::{Decoded, SegmentDecoder, SegmentEncoder, SegmentFormat};
use wire::{Compression, Compressor, Consistency, Flags, ProtocolVersion};

use super::StressError;
use super::settings::Mode;

/// Longest answer that is taken.
pub(super) const FRAME_BYTES_MAX: usize = 256 << 20;
/// How long one step of setting up may take.
const STEP_TIME_MAX: Duration = Duration::from_secs(30);

/// The shard of a connection, as reported by the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Landed {
    pub(super) shard: u32,
    pub(super) shards: u32,
    pub(super) ignore_msb: u8,
}

/// The result of PREPARE, owned.
#[derive(Debug, Clone, Default)]
pub(super) struct Prepared {
    pub(super) id: Vec<u8>,
    pub(super) result_metadata_id: Vec<u8>,
    /// Names and types of the bind markers.
    pub(super) markers: Vec<(String, model::CqlType)>,
    /// Names and types of the result columns.
    pub(super) columns: Vec<(String, model::CqlType)>,
}

/// A row of a small answer: text of each column, as bytes.
pub(super) type Row = Vec<Option<Vec<u8>>>;

/// A connection that is being set up.
pub(super) struct Client {
    pub(super) stream: Rc<Stream>,
    pub(super) connection: ClientConnection,
    /// How version 5 packs its frames, once STARTUP is through.
    pub(super) segments: Option<SegmentFormat>,
    encoder: Option<SegmentEncoder>,
    decoder: Option<SegmentDecoder>,
    compressor: Compressor,
    /// Bytes received and not yet looked at.
    raw: Vec<u8>,
    /// Frames.
    received: Vec<u8>,
    pub(super) address: SocketAddr,
    /// Statements prepared here.
    pub(super) statements: Vec<String>,
}

impl Client {
    /// Connects in the newest version that both sides speak, or in the one asked for.
    ///
    /// # Errors
    /// [`StressError::Server`] and its kind.
    pub(super) async fn open(
        address: SocketAddr,
        mode: &Mode,
    ) -> Result<(Self, Option<Landed>), StressError> {
        let wanted = mode.version.map_or_else(
            || vec![ProtocolVersion::V5, ProtocolVersion::V4, ProtocolVersion::V3],
            |version| vec![version],
        );
        let mut refused = None;
        for version in wanted {
            match Self::open_version(address, mode, version).await {
                // PROTOCOL_ERROR: the server does not speak it.
                Err(StressError::Server { code: 0x000A, what, message }) => {
                    refused = Some(StressError::Server { code: 0x000A, what, message });
                }
                other => return other,
            }
        }
        Err(refused.unwrap_or(StressError::Closed { what: format!("connecting to {address}") }))
    }

    async fn open_version(
        address: SocketAddr,
        mode: &Mode,
        version: ProtocolVersion,
    ) -> Result<(Self, Option<Landed>), StressError> {
        let what = format!("connecting to {address}");
        let stream = reactor::timeout(Deadline::after(STEP_TIME_MAX), Stream::connect(address))
            .await
            .map_err(|_| StressError::TimedOut { what: what.clone() })?
            .map_err(StressError::io(&what))?;
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
        client.start(mode, has_tablets).await?;
        Ok((client, landed))
    }

    async fn start(&mut self, mode: &Mode, has_tablets: bool) -> Result<(), StressError> {
        let is_v5 = self.connection.version >= ProtocolVersion::V5;
        // Version 5 has no snappy.
        let compression = mode.compression.filter(|kind| !is_v5 || *kind == Compression::Lz4);
        let mut options = vec![("CQL_VERSION", "3.0.0"), ("DRIVER_NAME", "ceto stress")];
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
            let (user, password) = (mode.user.as_deref(), mode.password.as_deref());
            let token = format!("\0{}\0{}", user.unwrap_or_default(), password.unwrap_or_default());
            let request = ClientRequest::AuthResponse(Some(token.as_bytes()));
            let accept = |body: ResponseBody<'_>| matches!(body, ResponseBody::AuthSuccess(_)).then_some(());
            self.ask("AUTH_RESPONSE", &request, accept).await?;
        }
        Ok(())
    }

    /// Executes a statement without result rows.
    pub(super) async fn execute(&mut self, statement: &str) -> Result<(), StressError> {
        let parameters = Parameters::at(Consistency::One);
        let accept = |body: ResponseBody<'_>| match body {
            ResponseBody::Void | ResponseBody::SchemaChange(_) | ResponseBody::SetKeyspace(_) => Some(()),
            _ => None,
        };
        self.ask(statement, &ClientRequest::Query(statement, &parameters), accept).await
    }

    /// Executes a statement and returns its rows, one page of them.
    pub(super) async fn rows(&mut self, statement: &str) -> Result<Vec<Row>, StressError> {
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
    pub(super) async fn prepare(&mut self, statement: &str) -> Result<Prepared, StressError> {
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
    ) -> Result<T, StressError> {
        let mut out = Vec::new();
        let start = self.encoder.as_ref().map(|encoder| encoder.begin(&mut out));
        let options = RequestOptions::default();
        self.connection.append_request(&mut out, 0, request, &options, &mut self.compressor)?;
        if let (Some(encoder), Some(start)) = (&mut self.encoder, start) {
            encoder.finish(&mut out, start);
        }
        let (sent, _) = self.stream.send(out).await;
        sent.map_err(StressError::io(what))?;
        let deadline = Deadline::after(STEP_TIME_MAX);
        loop {
            self.unpack()?;
            let frame = Frame::cut_direction(&self.received, FRAME_BYTES_MAX, Direction::Response)
                .map_err(|error| error.error)?;
            if let Some(frame) = frame {
                let mut plain = Vec::new();
                let mut header = frame.header;
                let mut body = frame.body;
                if let Some(kind) = self.connection.compression
                    && header.flags.contains(Flags::COMPRESSED)
                {
                    kind.decompress(body, FRAME_BYTES_MAX, &mut plain)?;
                    header.flags.0 &= !Flags::COMPRESSED;
                    body = &plain;
                }
                let answer = match decode(&header, body, &self.connection.extensions)?.body {
                    ResponseBody::Error { code, message, .. } => {
                        let message = message.to_owned();
                        Err(StressError::Server { what: what.to_owned(), code, message })
                    }
                    body => accept(body).ok_or_else(|| StressError::Unexpected { what: what.to_owned() }),
                };
                let length = frame.header.frame_bytes();
                self.received.drain(..length);
                return answer;
            }
            let received = reactor::timeout(deadline, self.stream.recv())
                .await
                .map_err(|_| StressError::TimedOut { what: what.to_owned() })?;
            match received.map_err(StressError::io(what))? {
                Some(chunk) => self.raw.extend_from_slice(&chunk),
                None => return Err(StressError::Closed { what: what.to_owned() }),
            }
        }
    }

    /// Turns raw bytes into frames.
    fn unpack(&mut self) -> Result<(), StressError> {
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
