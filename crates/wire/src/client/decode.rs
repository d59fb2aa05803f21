//! Reads responses (native_protocol_v5.spec §4.2), the mirror of `response`, `rows`, `error` and `event`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use model::CqlType;

use super::{ReceivedEvent, ReceivedSchemaChange, Response};
use crate::extensions::Extensions;
use crate::frame::{Flags, FrameHeader, Opcode};
use crate::protocol_error::ProtocolError;
use crate::reader::Reader;
use crate::rows::{GLOBAL_TABLES_SPEC, HAS_MORE_PAGES, METADATA_CHANGED, NO_METADATA};
use crate::types::read_option;
use crate::values::BytesMap;
use crate::version::ProtocolVersion;

/// A response.
#[derive(Debug)]
pub enum ResponseBody<'a> {
    /// ERROR.
    Error {
        /// Its number.
        code: i32,
        /// Its text.
        message: &'a str,
        /// The fields of its code, still encoded.
        fields: &'a [u8],
    },
    /// READY.
    Ready,
    /// AUTHENTICATE, with the class name of the authenticator.
    Authenticate(&'a str),
    /// AUTH_CHALLENGE.
    AuthChallenge(Option<&'a [u8]>),
    /// AUTH_SUCCESS.
    AuthSuccess(Option<&'a [u8]>),
    /// SUPPORTED.
    Supported(Vec<(&'a str, Vec<&'a str>)>),
    /// RESULT without content.
    Void,
    /// RESULT with rows.
    Rows(Rows<'a>),
    /// RESULT of USE.
    SetKeyspace(&'a str),
    /// RESULT of PREPARE.
    Prepared(Prepared<'a>),
    /// RESULT of a schema statement.
    SchemaChange(ReceivedSchemaChange<'a>),
    /// EVENT.
    Event(ReceivedEvent<'a>),
}

/// A column as a client reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column<'a> {
    /// Keyspace of the table.
    pub keyspace: &'a str,
    /// The table.
    pub table: &'a str,
    /// Name or alias.
    pub name: &'a str,
    /// Type, frozen wherever that is a choice.
    pub ty: CqlType,
}

/// Rows as a client reads them.
#[derive(Debug)]
pub struct Rows<'a> {
    /// The paging state of the next page, if there is one.
    pub paging_state: Option<&'a [u8]>,
    /// Id of the columns, if they changed.
    pub new_metadata_id: Option<&'a [u8]>,
    /// The columns; `None` if the request asked to skip them.
    pub columns: Option<Vec<Column<'a>>>,
    /// Number of values in a row.
    pub column_count: usize,
    /// Number of rows.
    pub row_count: usize,
    encoded: &'a [u8],
}

impl<'a> Rows<'a> {
    /// All values, row after row; `None` is null.
    pub fn values(&self) -> impl Iterator<Item = Option<&'a [u8]>> + use<'a> {
        let mut reader = Reader::new(self.encoded);
        (0..self.row_count * self.column_count).map_while(move |_| reader.bytes().ok())
    }
}

/// The result of PREPARE.
#[derive(Debug)]
pub struct Prepared<'a> {
    /// Id of the statement.
    pub id: &'a [u8],
    /// Id of the result columns, if the connection uses such ids.
    pub result_metadata_id: Option<&'a [u8]>,
    /// Flags of the bind metadata, for the LWT mark.
    pub bind_flags: u32,
    /// The bind markers.
    pub bind_columns: Vec<Column<'a>>,
    /// The marker that provides each column of the partition key.
    pub partition_key_indexes: Vec<u16>,
    /// Columns of the result's rows; `None` if there are no rows.
    pub result_columns: Option<Vec<Column<'a>>>,
}

/// Decodes the body of a response, already decompressed.
///
/// # Errors
/// [`ProtocolError`] for anything a server of this version does not send.
pub fn decode<'a>(
    header: &FrameHeader,
    body: &'a [u8],
    extensions: &Extensions,
) -> Result<Response<'a>, ProtocolError> {
    let mut reader = Reader::new(body);
    let reader = &mut reader;
    let flags = header.flags;
    let tracing_id = if flags.contains(Flags::TRACING) { Some(reader.uuid()?) } else { None };
    let warnings = if flags.contains(Flags::WARNING) { string_list(reader)? } else { Vec::new() };
    let custom_payload =
        if flags.contains(Flags::CUSTOM_PAYLOAD) { BytesMap::read(reader)? } else { BytesMap::EMPTY };
    let body = match header.opcode {
        Opcode::Error => {
            let (code, message) = (reader.int()?, reader.string()?);
            let fields = reader.rest();
            *reader = Reader::new(&[]);
            ResponseBody::Error { code, message, fields }
        }
        Opcode::Ready => ResponseBody::Ready,
        Opcode::Authenticate => ResponseBody::Authenticate(reader.string()?),
        Opcode::AuthChallenge => ResponseBody::AuthChallenge(reader.bytes()?),
        Opcode::AuthSuccess => ResponseBody::AuthSuccess(reader.bytes()?),
        Opcode::Supported => {
            let mut options = Vec::new();
            for _ in 0..reader.short()? {
                options.push((reader.string()?, string_list(reader)?));
            }
            ResponseBody::Supported(options)
        }
        Opcode::Event => ResponseBody::Event(event(reader)?),
        Opcode::Result => match reader.int()? {
            1 => ResponseBody::Void,
            2 => ResponseBody::Rows(rows(reader)?),
            3 => ResponseBody::SetKeyspace(reader.string()?),
            4 => ResponseBody::Prepared(prepared(reader, header.version, extensions)?),
            5 => ResponseBody::SchemaChange(schema_change(reader)?),
            _ => return invalid("unknown kind of RESULT"),
        },
        _ => return Err(ProtocolError::WrongDirection { opcode: header.opcode.code() }),
    };
    reader.finish("response")?;
    Ok(Response { tracing_id, warnings, custom_payload, body })
}

fn invalid<T>(reason: &'static str) -> Result<T, ProtocolError> {
    Err(ProtocolError::InvalidResponse { reason })
}

fn string_list<'a>(reader: &mut Reader<'a>) -> Result<Vec<&'a str>, ProtocolError> {
    let mut texts = Vec::new();
    for _ in 0..reader.short()? {
        texts.push(reader.string()?);
    }
    Ok(texts)
}

fn count(reader: &mut Reader<'_>) -> Result<usize, ProtocolError> {
    usize::try_from(reader.int()?).or_else(|_| invalid("a negative count"))
}

fn columns<'a>(
    reader: &mut Reader<'a>,
    flags: u32,
    column_count: usize,
) -> Result<Vec<Column<'a>>, ProtocolError> {
    let global =
        if flags & GLOBAL_TABLES_SPEC != 0 { Some((reader.string()?, reader.string()?)) } else { None };
    let mut columns = Vec::new();
    for _ in 0..column_count {
        let (keyspace, table) = match global {
            Some(names) => names,
            None => (reader.string()?, reader.string()?),
        };
        columns.push(Column { keyspace, table, name: reader.string()?, ty: read_option(reader)? });
    }
    Ok(columns)
}

fn rows<'a>(reader: &mut Reader<'a>) -> Result<Rows<'a>, ProtocolError> {
    let flags = reader.int()?.cast_unsigned();
    let column_count = count(reader)?;
    let paging_state = if flags & HAS_MORE_PAGES != 0 { reader.bytes()? } else { None };
    let new_metadata_id = if flags & METADATA_CHANGED != 0 { Some(reader.short_bytes()?) } else { None };
    let columns = if flags & NO_METADATA == 0 { Some(columns(reader, flags, column_count)?) } else { None };
    let row_count = count(reader)?;
    if column_count == 0 && row_count > 0 {
        return invalid("rows without columns");
    }
    let values = row_count.checked_mul(column_count);
    let Some(values) = values else { return invalid("more values than can be counted") };
    let encoded = reader.span(|reader| {
        for _ in 0..values {
            reader.bytes()?;
        }
        Ok(())
    })?;
    Ok(Rows { paging_state, new_metadata_id, columns, column_count, row_count, encoded })
}

fn prepared<'a>(
    reader: &mut Reader<'a>,
    version: ProtocolVersion,
    extensions: &Extensions,
) -> Result<Prepared<'a>, ProtocolError> {
    let id = reader.short_bytes()?;
    let result_metadata_id =
        if extensions.has_metadata_id(version) { Some(reader.short_bytes()?) } else { None };
    let bind_flags = reader.int()?.cast_unsigned();
    let bind_count = count(reader)?;
    let mut partition_key_indexes = Vec::new();
    if version >= ProtocolVersion::V4 {
        for _ in 0..count(reader)? {
            partition_key_indexes.push(reader.short()?);
        }
    }
    let bind_columns = columns(reader, bind_flags, bind_count)?;
    let flags = reader.int()?.cast_unsigned();
    let column_count = count(reader)?;
    let result_columns =
        if flags & NO_METADATA == 0 { Some(columns(reader, flags, column_count)?) } else { None };
    Ok(Prepared { id, result_metadata_id, bind_flags, bind_columns, partition_key_indexes, result_columns })
}

fn schema_change<'a>(reader: &mut Reader<'a>) -> Result<ReceivedSchemaChange<'a>, ProtocolError> {
    let (kind, target, keyspace) = (reader.string()?, reader.string()?, reader.string()?);
    let name = if target == "KEYSPACE" { None } else { Some(reader.string()?) };
    let has_arguments = matches!(target, "FUNCTION" | "AGGREGATE");
    let argument_types = if has_arguments { string_list(reader)? } else { Vec::new() };
    Ok(ReceivedSchemaChange { kind, target, keyspace, name, argument_types })
}

fn event<'a>(reader: &mut Reader<'a>) -> Result<ReceivedEvent<'a>, ProtocolError> {
    let event_type = reader.string()?;
    match event_type {
        "SCHEMA_CHANGE" => Ok(ReceivedEvent::Schema(schema_change(reader)?)),
        "TOPOLOGY_CHANGE" | "STATUS_CHANGE" => {
            let change = reader.string()?;
            let address = match reader.byte()? {
                4 => IpAddr::V4(Ipv4Addr::from_bits(reader.int()?.cast_unsigned())),
                16 => IpAddr::V6(Ipv6Addr::from(reader.uuid()?)),
                _ => return invalid("an address that is neither 4 nor 16 bytes long"),
            };
            let Ok(port) = u16::try_from(reader.int()?) else { return invalid("not a port") };
            Ok(ReceivedEvent::Node { event_type, change, address, port })
        }
        _ => invalid("unknown type of event"),
    }
}
