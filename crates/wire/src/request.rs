//! Requests of clients, decoded in place.
//!
//! Layouts: native_protocol_v5.spec §4.1 and the v3 and v4 specs for differences. One walk over the body
//! checks every length, every string and every enumeration; the result borrows from the body, and reading it
//! cannot fail later. `server` dispatches on [`Request`]. Invariant: decoding allocates nothing unless it
//! fails.

use crate::consistency::Consistency;
use crate::extensions::Extensions;
use crate::frame::{Flags, FrameHeader, Opcode};
use crate::protocol_error::ProtocolError;
use crate::reader::Reader;
use crate::startup::Startup;
use crate::values::{BytesMap, StringMap, ValueRef, Values};
use crate::version::ProtocolVersion;

/// A request with its optional parts.
#[derive(Debug, Clone, Copy)]
pub struct RequestEnvelope<'a> {
    /// Whether the client wants the request traced.
    pub tracing: bool,
    /// Whatever the client attached; empty before version 4.
    pub custom_payload: BytesMap<'a>,
    /// The message itself.
    pub request: Request<'a>,
}

/// A request.
#[derive(Debug, Clone, Copy)]
pub enum Request<'a> {
    /// Opens the connection.
    Startup(Startup<'a>),
    /// Requests the server's supported options.
    Options,
    /// Executes a statement given as text.
    Query {
        /// The statement.
        query: &'a str,
        /// Values and options.
        parameters: QueryParameters<'a>,
    },
    /// Asks for a prepared statement.
    Prepare {
        /// The statement.
        query: &'a str,
        /// Keyspace for unqualified names instead of the connection's; version 5 only.
        keyspace: Option<&'a str>,
    },
    /// Executes a prepared statement.
    Execute {
        /// Id the server gave when it was prepared.
        id: &'a [u8],
        /// Id of the result metadata the client has; version 5, or with `SCYLLA_USE_METADATA_ID`.
        result_metadata_id: Option<&'a [u8]>,
        /// Values and options.
        parameters: QueryParameters<'a>,
    },
    /// Executes several modifications.
    Batch {
        /// How the batch holds together.
        kind: BatchKind,
        /// The statements with their values.
        statements: BatchStatements<'a>,
        /// Options of the whole batch; its own values are always empty in practice.
        parameters: QueryParameters<'a>,
    },
    /// Asks for events.
    Register(EventTypes),
    /// Answers the authenticator; `None` is a null token.
    AuthResponse(Option<&'a [u8]>),
}

/// Options of QUERY, EXECUTE and BATCH (native_protocol_v5.spec §4.1.4).
#[derive(Debug, Clone, Copy)]
pub struct QueryParameters<'a> {
    /// Consistency level; any level, even one that the statement cannot use.
    pub consistency: Consistency,
    /// Bound values.
    pub values: Values<'a>,
    /// The client has the result metadata and wants rows without it.
    pub skip_metadata: bool,
    /// Rows per page; `None` means all in one.
    pub page_size: Option<u32>,
    /// The paging state of the previous page: bytes made by this server, not checked here.
    pub paging_state: Option<&'a [u8]>,
    /// Consistency of the Paxos phase; `None` means SERIAL. Any level, even one that is not serial.
    pub serial_consistency: Option<Consistency>,
    /// Write timestamp in microseconds for statements that name none.
    pub default_timestamp_us: Option<i64>,
    /// Keyspace for unqualified names instead of the connection's.
    pub keyspace: Option<&'a str>,
    /// Time in seconds since the epoch that the statement uses as the present.
    pub now_in_seconds: Option<u32>,
}

/// How the statements of a batch hold together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchKind {
    /// All or nothing, by way of the batch log.
    Logged,
    /// Only sent together.
    Unlogged,
    /// Counter updates.
    Counter,
}

/// The statements of a BATCH, in the order sent.
#[derive(Debug, Clone, Copy)]
pub struct BatchStatements<'a> {
    version: ProtocolVersion,
    count: u16,
    encoded: &'a [u8],
}

/// One statement of a BATCH.
#[derive(Debug, Clone, Copy)]
pub struct BatchStatement<'a> {
    /// The statement to execute.
    pub statement: BatchStatementKind<'a>,
    /// Its values, by position.
    pub values: Values<'a>,
}

/// The form in which a BATCH names a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchStatementKind<'a> {
    /// As text.
    Text(&'a str),
    /// By the id of a prepared statement.
    Prepared(&'a [u8]),
}

/// The kinds of events a client wants (native_protocol_v5.spec §4.1.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventTypes {
    /// Nodes that come, go or move.
    pub topology_change: bool,
    /// Nodes that go up or down.
    pub status_change: bool,
    /// Keyspaces, tables, types, functions and aggregates.
    pub schema_change: bool,
}

/// Decodes the body of a request, already decompressed.
///
/// # Errors
/// [`ProtocolError`] for bytes that the version's specification does not allow. Bytes after the message are
/// accepted: Cassandra ignores them, and some drivers send them.
#[inline]
pub fn decode<'a>(
    header: &FrameHeader,
    body: &'a [u8],
    extensions: &Extensions,
) -> Result<RequestEnvelope<'a>, ProtocolError> {
    let version = header.version;
    let mut reader = Reader::new(body);
    let mut custom_payload = BytesMap::EMPTY;
    if header.flags.contains(Flags::CUSTOM_PAYLOAD) {
        if version < ProtocolVersion::V4 {
            return Err(ProtocolError::CustomPayloadBeforeV4);
        }
        custom_payload = BytesMap::read(&mut reader)?;
    }
    let request = match header.opcode {
        Opcode::Execute => {
            let values = |reader: &mut Reader<'a>, named| Values::read(reader, version, named);
            let Execute { id, result_metadata_id, parameters } =
                read_execute(&mut reader, version, extensions, values)?;
            Request::Execute { id, result_metadata_id, parameters }
        }
        Opcode::Query => read_query(&mut reader, version)?,
        Opcode::Batch => read_batch(&mut reader, version)?,
        Opcode::Prepare => read_prepare(&mut reader, version)?,
        Opcode::Startup => Request::Startup(Startup::new(StringMap::read(&mut reader)?)),
        Opcode::Options => Request::Options,
        Opcode::Register => Request::Register(read_event_types(&mut reader)?),
        Opcode::AuthResponse => Request::AuthResponse(reader.bytes()?),
        Opcode::Credentials => return Err(ProtocolError::UnsupportedMessage),
        Opcode::Error
        | Opcode::Ready
        | Opcode::Authenticate
        | Opcode::Supported
        | Opcode::Result
        | Opcode::Event
        | Opcode::AuthChallenge
        | Opcode::AuthSuccess => {
            return Err(ProtocolError::WrongDirection { opcode: header.opcode.code() });
        }
    };
    Ok(RequestEnvelope { tracing: header.flags.contains(Flags::TRACING), custom_payload, request })
}

/// An EXECUTE.
#[derive(Debug, Clone, Copy)]
pub struct Execute<'a> {
    /// As in [`Request::Execute`].
    pub id: &'a [u8],
    /// As in [`Request::Execute`].
    pub result_metadata_id: Option<&'a [u8]>,
    /// As in [`Request::Execute`].
    pub parameters: QueryParameters<'a>,
}

/// As [`decode`], for the body of an EXECUTE without a custom payload: the result is not moved into a value
/// of type [`Request`]. Values without names are handed to `take` where they are decoded.
///
/// # Errors
/// As [`decode`]; values may have been handed to `take` before.
#[inline]
pub fn decode_execute<'a>(
    header: &FrameHeader,
    body: &'a [u8],
    extensions: &Extensions,
    take: impl FnMut(ValueRef<'a>),
) -> Result<Execute<'a>, ProtocolError> {
    let mut reader = Reader::new(body);
    let version = header.version;
    let values = |reader: &mut Reader<'a>, named| Values::read_each(reader, version, named, take);
    read_execute(&mut reader, version, extensions, values)
}

/// The statement's id in the body of an EXECUTE without a custom payload; `None` if there is none.
#[inline]
pub fn execute_id(body: &[u8]) -> Option<&[u8]> {
    Reader::new(body).short_bytes().ok()
}

fn read_query<'a>(reader: &mut Reader<'a>, version: ProtocolVersion) -> Result<Request<'a>, ProtocolError> {
    let query = reader.long_string()?;
    Ok(Request::Query { query, parameters: QueryParameters::read(reader, version)? })
}

#[inline]
fn read_execute<'a>(
    reader: &mut Reader<'a>,
    version: ProtocolVersion,
    extensions: &Extensions,
    values: impl FnOnce(&mut Reader<'a>, bool) -> Result<Values<'a>, ProtocolError>,
) -> Result<Execute<'a>, ProtocolError> {
    let id = reader.short_bytes()?;
    let result_metadata_id =
        if extensions.has_metadata_id(version) { Some(reader.short_bytes()?) } else { None };
    let parameters = QueryParameters::read_with(reader, version, values)?;
    Ok(Execute { id, result_metadata_id, parameters })
}

fn read_prepare<'a>(reader: &mut Reader<'a>, version: ProtocolVersion) -> Result<Request<'a>, ProtocolError> {
    const WITH_KEYSPACE: i32 = 0x01;
    let query = reader.long_string()?;
    let mut keyspace = None;
    if version >= ProtocolVersion::V5 && reader.int()? & WITH_KEYSPACE != 0 {
        keyspace = Some(reader.string()?);
    }
    Ok(Request::Prepare { query, keyspace })
}

fn read_batch<'a>(reader: &mut Reader<'a>, version: ProtocolVersion) -> Result<Request<'a>, ProtocolError> {
    let kind = match reader.byte()? {
        0 => BatchKind::Logged,
        1 => BatchKind::Unlogged,
        2 => BatchKind::Counter,
        kind => return Err(ProtocolError::InvalidBatchType { kind }),
    };
    let count = reader.short()?;
    let encoded = reader.span(|reader| {
        for _ in 0..count {
            BatchStatement::read(reader, version)?;
        }
        Ok(())
    })?;
    let statements = BatchStatements { version, count, encoded };
    Ok(Request::Batch { kind, statements, parameters: QueryParameters::read(reader, version)? })
}

fn read_event_types(reader: &mut Reader<'_>) -> Result<EventTypes, ProtocolError> {
    let mut types = EventTypes::default();
    for _ in 0..reader.short()? {
        let name = reader.string()?;
        let wanted = [
            ("TOPOLOGY_CHANGE", &mut types.topology_change),
            ("STATUS_CHANGE", &mut types.status_change),
            ("SCHEMA_CHANGE", &mut types.schema_change),
        ];
        match wanted.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            Some((_, flag)) => *flag = true,
            None => return Err(ProtocolError::unknown_name(name, "Type")),
        }
    }
    Ok(types)
}

impl<'a> QueryParameters<'a> {
    /// Nothing but a consistency level, of a client of `version`.
    pub const fn at(consistency: Consistency, version: ProtocolVersion) -> Self {
        Self {
            consistency,
            values: Values::empty(version),
            skip_metadata: false,
            page_size: None,
            paging_state: None,
            serial_consistency: None,
            default_timestamp_us: None,
            keyspace: None,
            now_in_seconds: None,
        }
    }

    pub(crate) const VALUES: u32 = 0x001;
    pub(crate) const SKIP_METADATA: u32 = 0x002;
    pub(crate) const PAGE_SIZE: u32 = 0x004;
    pub(crate) const PAGING_STATE: u32 = 0x008;
    pub(crate) const SERIAL_CONSISTENCY: u32 = 0x010;
    pub(crate) const DEFAULT_TIMESTAMP: u32 = 0x020;
    pub(crate) const NAMES_FOR_VALUES: u32 = 0x040;
    pub(crate) const KEYSPACE: u32 = 0x080;
    pub(crate) const NOW_IN_SECONDS: u32 = 0x100;

    /// Reads consistency, flags and the fields that the flags announce. Cassandra reads BATCH with the same
    /// routine, so that a batch may carry flags that its specification does not list; this does too.
    fn read(reader: &mut Reader<'a>, version: ProtocolVersion) -> Result<Self, ProtocolError> {
        Self::read_with(reader, version, |reader, named| Values::read(reader, version, named))
    }

    /// As `read`; `values` reads the values, and its argument is whether they have names.
    #[inline]
    fn read_with(
        reader: &mut Reader<'a>,
        version: ProtocolVersion,
        values: impl FnOnce(&mut Reader<'a>, bool) -> Result<Values<'a>, ProtocolError>,
    ) -> Result<Self, ProtocolError> {
        let consistency = Consistency::from_code(reader.short()?)?;
        let flags = if version >= ProtocolVersion::V5 {
            reader.int()?.cast_unsigned()
        } else {
            u32::from(reader.byte()?)
        };
        let has = |flag| flags & flag != 0;
        let mut parameters = Self::at(consistency, version);
        parameters.skip_metadata = has(Self::SKIP_METADATA);
        if has(Self::VALUES) {
            parameters.values = values(reader, has(Self::NAMES_FOR_VALUES))?;
        }
        if has(Self::PAGE_SIZE) {
            parameters.page_size = match reader.int()? {
                0 => return Err(ProtocolError::ZeroPageSize),
                rows => u32::try_from(rows).ok(),
            };
        }
        if has(Self::PAGING_STATE) {
            parameters.paging_state = reader.bytes()?;
        }
        if has(Self::SERIAL_CONSISTENCY) {
            parameters.serial_consistency = Some(Consistency::from_code(reader.short()?)?);
        }
        if has(Self::DEFAULT_TIMESTAMP) {
            parameters.default_timestamp_us = match reader.long()? {
                i64::MIN => return Err(ProtocolError::TimestampOutOfBounds),
                timestamp_us => Some(timestamp_us),
            };
        }
        if has(Self::KEYSPACE) {
            parameters.keyspace = Some(reader.string()?);
        }
        if has(Self::NOW_IN_SECONDS) {
            parameters.now_in_seconds = Some(reader.int()?.cast_unsigned());
        }
        Ok(parameters)
    }
}

impl<'a> BatchStatement<'a> {
    fn read(reader: &mut Reader<'a>, version: ProtocolVersion) -> Result<Self, ProtocolError> {
        let statement = match reader.byte()? {
            0 => BatchStatementKind::Text(reader.long_string()?),
            1 => BatchStatementKind::Prepared(reader.short_bytes()?),
            kind => return Err(ProtocolError::InvalidBatchQueryKind { kind }),
        };
        Ok(Self { statement, values: Values::read(reader, version, false)? })
    }
}

impl<'a> BatchStatements<'a> {
    /// How many statements there are.
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The statements in the order sent.
    pub fn iter(&self) -> impl Iterator<Item = BatchStatement<'a>> + use<'a> {
        let mut reader = Reader::new(self.encoded);
        let version = self.version;
        (0..self.count).map_while(move |_| BatchStatement::read(&mut reader, version).ok())
    }
}
