//! The client's half of the protocol: writes requests, reads responses.
//!
//! For in-process benchmarks, `ceto`'s own tools and tests; it is not a driver: no pool, no policy, no retry.
//! Responses come from our own server or a test's, and are still not trusted: no panic, no memory reserved by
//! a count.

mod decode;

use std::net::IpAddr;

use crate::compression::{Compression, Compressor};
use crate::consistency::Consistency;
use crate::extensions::Extensions;
use crate::frame::{Direction, Flags, FrameHeader, HEADER_BYTES, Opcode};
use crate::protocol_error::ProtocolError;
use crate::request::{BatchKind, BatchStatementKind, EventTypes, QueryParameters};
use crate::values::{BytesMap, ValueRef};
use crate::version::ProtocolVersion;
use crate::writer::{
    append_bytes, append_int, append_long, append_long_string, append_short, append_short_bytes,
    append_short_length, append_string,
};

pub use decode::{Column, Prepared, ResponseBody, Rows, decode};

/// Options of QUERY, EXECUTE and BATCH to be sent.
#[derive(Debug, Clone, Copy)]
pub struct Parameters<'a> {
    /// Consistency level.
    pub consistency: Consistency,
    /// Bound values by position.
    pub values: &'a [ValueRef<'a>],
    /// Names of the values' markers, as many as values; empty for values by position.
    pub names: &'a [&'a str],
    /// Ask for rows without metadata.
    pub skip_metadata: bool,
    /// Rows per page.
    pub page_size: Option<i32>,
    /// The paging state of the last page.
    pub paging_state: Option<&'a [u8]>,
    /// Consistency of the Paxos phase.
    pub serial_consistency: Option<Consistency>,
    /// Write timestamp in microseconds.
    pub default_timestamp_us: Option<i64>,
    /// Keyspace of unqualified names; version 5 only.
    pub keyspace: Option<&'a str>,
    /// The present, in seconds; version 5 only.
    pub now_in_seconds: Option<u32>,
}

impl Parameters<'_> {
    /// Nothing but a consistency level.
    pub const fn at(consistency: Consistency) -> Self {
        Self {
            consistency,
            values: &[],
            names: &[],
            skip_metadata: false,
            page_size: None,
            paging_state: None,
            serial_consistency: None,
            default_timestamp_us: None,
            keyspace: None,
            now_in_seconds: None,
        }
    }
}

/// A request to be sent.
#[derive(Debug, Clone, Copy)]
pub enum ClientRequest<'a> {
    /// STARTUP with these options.
    Startup(&'a [(&'a str, &'a str)]),
    /// OPTIONS.
    Options,
    /// QUERY.
    Query(&'a str, &'a Parameters<'a>),
    /// PREPARE; the keyspace in version 5 only.
    Prepare(&'a str, Option<&'a str>),
    /// EXECUTE.
    Execute {
        /// Id of the prepared statement.
        id: &'a [u8],
        /// Id of the known result metadata, sent if the connection uses such ids.
        result_metadata_id: &'a [u8],
        /// Values and options.
        parameters: &'a Parameters<'a>,
    },
    /// BATCH of statements with their values.
    Batch(BatchKind, &'a [(BatchStatementKind<'a>, &'a [ValueRef<'a>])], &'a Parameters<'a>),
    /// REGISTER.
    Register(EventTypes),
    /// AUTH_RESPONSE.
    AuthResponse(Option<&'a [u8]>),
}

/// The options of a client's connection.
#[derive(Debug, Clone, Copy)]
pub struct ClientConnection {
    /// Version of every frame.
    pub version: ProtocolVersion,
    /// Compression of bodies; none in version 5.
    pub compression: Option<Compression>,
    /// Extensions named in STARTUP.
    pub extensions: Extensions,
}

/// Optional parts of a request.
#[derive(Debug, Clone, Copy, Default)]
pub struct RequestOptions<'a> {
    /// Ask for tracing.
    pub tracing: bool,
    /// A custom payload; since version 4.
    pub custom_payload: &'a [(&'a str, Option<&'a [u8]>)],
}

impl ClientConnection {
    /// A connection without compression and extensions.
    pub fn new(version: ProtocolVersion) -> Self {
        Self { version, compression: None, extensions: Extensions::default() }
    }

    /// Appends a whole frame to `out`.
    ///
    /// # Errors
    /// [`ProtocolError::TooLarge`] for a body that no length can express; `out` is then as it was.
    pub fn append_request(
        &self,
        out: &mut Vec<u8>,
        stream: i16,
        request: &ClientRequest<'_>,
        options: &RequestOptions<'_>,
        compressor: &mut Compressor,
    ) -> Result<(), ProtocolError> {
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_BYTES]);
        let mut flags = Flags::default();
        if options.tracing {
            flags.0 |= Flags::TRACING;
        }
        if !options.custom_payload.is_empty() {
            flags.0 |= Flags::CUSTOM_PAYLOAD;
            append_short_length(out, options.custom_payload.len());
            for (key, value) in options.custom_payload {
                append_string(out, key);
                append_bytes(out, *value);
            }
        }
        let opcode = self.append_body(out, request);
        if let Some(algorithm) = self.compression
            && opcode != Opcode::Startup
            && self.version < ProtocolVersion::V5
        {
            compressor.compress_body(algorithm, out, start + HEADER_BYTES)?;
            flags.0 |= Flags::COMPRESSED;
        }
        let length = out.len() - start - HEADER_BYTES;
        let Ok(body_length) = i32::try_from(length) else {
            out.truncate(start);
            return Err(ProtocolError::TooLarge { length: length as u64, limit: i32::MAX as usize });
        };
        let body_length = body_length.cast_unsigned();
        let header = FrameHeader { version: self.version, flags, stream, opcode, body_length };
        out[start..start + HEADER_BYTES].copy_from_slice(&header.encode(Direction::Request));
        Ok(())
    }

    fn append_body(&self, out: &mut Vec<u8>, request: &ClientRequest<'_>) -> Opcode {
        let version = self.version;
        match request {
            ClientRequest::Startup(options) => {
                append_short_length(out, options.len());
                for (key, value) in *options {
                    append_string(out, key);
                    append_string(out, value);
                }
                Opcode::Startup
            }
            ClientRequest::Options => Opcode::Options,
            ClientRequest::Query(query, parameters) => {
                append_long_string(out, query);
                append_parameters(out, version, parameters);
                Opcode::Query
            }
            ClientRequest::Prepare(query, keyspace) => {
                append_long_string(out, query);
                if version >= ProtocolVersion::V5 {
                    append_int(out, i32::from(keyspace.is_some()));
                    if let Some(keyspace) = keyspace {
                        append_string(out, keyspace);
                    }
                }
                Opcode::Prepare
            }
            ClientRequest::Execute { id, result_metadata_id, parameters } => {
                append_short_bytes(out, id);
                if self.extensions.has_metadata_id(version) {
                    append_short_bytes(out, result_metadata_id);
                }
                append_parameters(out, version, parameters);
                Opcode::Execute
            }
            ClientRequest::Batch(kind, statements, parameters) => {
                out.push(match kind {
                    BatchKind::Logged => 0,
                    BatchKind::Unlogged => 1,
                    BatchKind::Counter => 2,
                });
                append_short_length(out, statements.len());
                for (statement, values) in *statements {
                    match statement {
                        BatchStatementKind::Text(query) => {
                            out.push(0);
                            append_long_string(out, query);
                        }
                        BatchStatementKind::Prepared(id) => {
                            out.push(1);
                            append_short_bytes(out, id);
                        }
                    }
                    append_values(out, values, &[]);
                }
                append_parameters(out, version, parameters);
                Opcode::Batch
            }
            ClientRequest::Register(types) => {
                let wanted = [
                    ("TOPOLOGY_CHANGE", types.topology_change),
                    ("STATUS_CHANGE", types.status_change),
                    ("SCHEMA_CHANGE", types.schema_change),
                ];
                append_short_length(out, wanted.iter().filter(|(_, is_wanted)| *is_wanted).count());
                for (name, _) in wanted.iter().filter(|(_, is_wanted)| *is_wanted) {
                    append_string(out, name);
                }
                Opcode::Register
            }
            ClientRequest::AuthResponse(token) => {
                append_bytes(out, *token);
                Opcode::AuthResponse
            }
        }
    }
}

fn append_values(out: &mut Vec<u8>, values: &[ValueRef<'_>], names: &[&str]) {
    append_short_length(out, values.len());
    for (index, value) in values.iter().enumerate() {
        if let Some(name) = names.get(index) {
            append_string(out, name);
        }
        match value {
            ValueRef::Null => append_int(out, -1),
            ValueRef::Unset => append_int(out, -2),
            ValueRef::Bytes(bytes) => append_bytes(out, Some(bytes)),
        }
    }
}

fn append_parameters(out: &mut Vec<u8>, version: ProtocolVersion, parameters: &Parameters<'_>) {
    assert!(
        parameters.names.is_empty() || parameters.names.len() == parameters.values.len(),
        "{} names for {} values",
        parameters.names.len(),
        parameters.values.len()
    );
    let flags = [
        (QueryParameters::VALUES, !parameters.values.is_empty()),
        (QueryParameters::SKIP_METADATA, parameters.skip_metadata),
        (QueryParameters::PAGE_SIZE, parameters.page_size.is_some()),
        (QueryParameters::PAGING_STATE, parameters.paging_state.is_some()),
        (QueryParameters::SERIAL_CONSISTENCY, parameters.serial_consistency.is_some()),
        (QueryParameters::DEFAULT_TIMESTAMP, parameters.default_timestamp_us.is_some()),
        (QueryParameters::NAMES_FOR_VALUES, !parameters.names.is_empty()),
        (QueryParameters::KEYSPACE, parameters.keyspace.is_some()),
        (QueryParameters::NOW_IN_SECONDS, parameters.now_in_seconds.is_some()),
    ];
    let flags = flags.iter().filter(|(_, is_set)| *is_set).fold(0, |bits, (flag, _)| bits | flag);
    append_short(out, parameters.consistency.code());
    if version >= ProtocolVersion::V5 {
        append_int(out, flags.cast_signed());
    } else {
        let flags = u8::try_from(flags);
        out.push(flags.unwrap_or_else(|_| panic!("options of version 5 in a frame of {version}")));
    }
    if !parameters.values.is_empty() {
        append_values(out, parameters.values, parameters.names);
    }
    if let Some(page_size) = parameters.page_size {
        append_int(out, page_size);
    }
    if parameters.paging_state.is_some() {
        append_bytes(out, parameters.paging_state);
    }
    if let Some(consistency) = parameters.serial_consistency {
        append_short(out, consistency.code());
    }
    if let Some(timestamp_us) = parameters.default_timestamp_us {
        append_long(out, timestamp_us);
    }
    if let Some(keyspace) = parameters.keyspace {
        append_string(out, keyspace);
    }
    if let Some(seconds) = parameters.now_in_seconds {
        append_int(out, seconds.cast_signed());
    }
}

/// A decoded response with its optional parts.
#[derive(Debug)]
pub struct Response<'a> {
    /// The trace's id, if the request was traced.
    pub tracing_id: Option<[u8; 16]>,
    /// Warnings of the server.
    pub warnings: Vec<&'a str>,
    /// The server's custom payload.
    pub custom_payload: BytesMap<'a>,
    /// The message itself.
    pub body: ResponseBody<'a>,
}

/// A schema change in the form a client reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedSchemaChange<'a> {
    /// `CREATED`, `UPDATED` or `DROPPED`.
    pub kind: &'a str,
    /// `KEYSPACE`, `TABLE`, `TYPE`, `FUNCTION` or `AGGREGATE`.
    pub target: &'a str,
    /// The keyspace.
    pub keyspace: &'a str,
    /// Name of the target; `None` for a keyspace.
    pub name: Option<&'a str>,
    /// Argument types of a function or aggregate.
    pub argument_types: Vec<&'a str>,
}

/// An event as a client reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceivedEvent<'a> {
    /// A node changed.
    Node {
        /// `TOPOLOGY_CHANGE` or `STATUS_CHANGE`.
        event_type: &'a str,
        /// `NEW_NODE`, `UP` and so on.
        change: &'a str,
        /// Its address.
        address: IpAddr,
        /// Its port.
        port: u16,
    },
    /// The schema changed.
    Schema(ReceivedSchemaChange<'a>),
}
