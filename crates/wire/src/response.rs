//! Writes responses at the end of a send buffer.
//!
//! ```text
//! header [tracing id: uuid] [warnings: string list] [custom payload: bytes map] body
//! ```
//! A builder is begun, given the parts before the body in that order, turned into one kind of body, and
//! finished, which patches the header's length and compresses if the connection does. Layouts:
//! native_protocol_v5.spec §4.2. Invariant: a builder that is dropped unfinished restores the buffer, so that
//! a request that fails or is cancelled half-way never leaves half a frame. Rows are in `rows`.

use crate::compression::{Compression, Compressor};
use crate::error::{ErrorBody, append_error};
use crate::event::{Event, SchemaChange, append_event, append_schema_change};
use crate::extensions::{Extensions, LWT_METADATA_MARK};
use crate::frame::{Direction, Flags, FrameHeader, HEADER_BYTES, Opcode};
use crate::protocol_error::ProtocolError;
use crate::rows::{
    ColumnSpec, GLOBAL_TABLES_SPEC, NO_METADATA, RowsMetadata, RowsMode, RowsWriter, all_in_one_table,
    append_columns,
};
use crate::version::ProtocolVersion;
use crate::writer::{
    append_bytes, append_int, append_int_length, append_short, append_short_bytes, append_short_length,
    append_string, append_string_list,
};

const RESULT_VOID: i32 = 1;
const RESULT_ROWS: i32 = 2;
const RESULT_SET_KEYSPACE: i32 = 3;
const RESULT_PREPARED: i32 = 4;
const RESULT_SCHEMA_CHANGE: i32 = 5;

/// Stream of events, which no request asked for.
pub const EVENT_STREAM: i16 = -1;

/// How a connection compresses the bodies of its responses; nothing in version 5, where segments are
/// compressed.
pub type BodyCompression<'c> = Option<(Compression, &'c mut Compressor)>;

/// Sections before the body, in the order they must be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Begun,
    Traced,
    Warned,
    CustomPayload,
    Body,
    Finished,
}

/// A response being written.
#[derive(Debug)]
#[must_use = "a response that is not finished is taken back"]
pub struct ResponseBuilder<'b> {
    pub(crate) out: &'b mut Vec<u8>,
    start: usize,
    header: FrameHeader,
    stage: Stage,
}

/// A response whose body is complete.
#[derive(Debug)]
#[must_use = "a response that is not finished is taken back"]
pub struct CompleteResponse<'b>(ResponseBuilder<'b>);

/// The results of PREPARE.
#[derive(Debug, Clone, Copy)]
pub struct Prepared<'a> {
    /// Id by which the statement is executed.
    pub id: &'a [u8],
    /// Id of `result`, sent in version 5 and with `SCYLLA_USE_METADATA_ID`.
    pub result_metadata_id: &'a [u8],
    /// The bind markers, in order.
    pub bind_columns: &'a [ColumnSpec<'a>],
    /// For each column of the partition key the bind marker it comes from; empty when not all come from
    /// markers.
    pub partition_key_indexes: &'a [u16],
    /// Whether the statement has conditions, marked for clients that negotiated it.
    pub is_conditional: bool,
    /// The columns of the rows it gives; `None` when it gives none.
    pub result: Option<&'a RowsMetadata>,
}

/// Bytes of a RESULT frame of kind Void.
pub const VOID_FRAME_BYTES: usize = HEADER_BYTES + 4;

/// A whole RESULT frame of kind Void (native_protocol_v5.spec §4.2.5.1), its body not compressed.
#[inline]
pub fn void_frame(version: ProtocolVersion, stream: i16) -> [u8; VOID_FRAME_BYTES] {
    let header =
        FrameHeader { version, flags: Flags::default(), stream, opcode: Opcode::Result, body_length: 4 };
    let mut frame = [0; VOID_FRAME_BYTES];
    frame[..HEADER_BYTES].copy_from_slice(&header.encode(Direction::Response));
    frame[HEADER_BYTES..].copy_from_slice(&RESULT_VOID.to_be_bytes());
    frame
}

impl<'b> ResponseBuilder<'b> {
    /// Begins a response at the end of `out`.
    #[inline]
    pub fn begin(out: &'b mut Vec<u8>, version: ProtocolVersion, stream: i16) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_BYTES]);
        let header =
            FrameHeader { version, flags: Flags::default(), stream, opcode: Opcode::Result, body_length: 0 };
        Self { out, start, header, stage: Stage::Begun }
    }

    /// Version of the response.
    pub fn version(&self) -> ProtocolVersion {
        self.header.version
    }

    fn enter(&mut self, stage: Stage) {
        assert!(self.stage < stage, "{stage:?} written after {:?}", self.stage);
        self.stage = stage;
    }

    /// Adds the id under which the request is traced.
    pub fn tracing_id(mut self, id: &[u8; 16]) -> Self {
        self.enter(Stage::Traced);
        self.header.flags.0 |= Flags::TRACING;
        self.out.extend_from_slice(id);
        self
    }

    /// Adds warnings; nothing when there are none, or in version 3, which has no place for them.
    pub fn warnings<'t>(mut self, warnings: impl ExactSizeIterator<Item = &'t str>) -> Self {
        self.enter(Stage::Warned);
        if warnings.len() > 0 && self.header.version >= ProtocolVersion::V4 {
            self.header.flags.0 |= Flags::WARNING;
            append_string_list(self.out, warnings);
        }
        self
    }

    /// Adds a custom payload; nothing when it is empty, or in version 3, which has no place for it.
    pub fn custom_payload<'t>(
        mut self,
        payload: impl ExactSizeIterator<Item = (&'t str, Option<&'t [u8]>)>,
    ) -> Self {
        self.enter(Stage::CustomPayload);
        if payload.len() > 0 && self.header.version >= ProtocolVersion::V4 {
            self.header.flags.0 |= Flags::CUSTOM_PAYLOAD;
            append_short_length(self.out, payload.len());
            for (key, value) in payload {
                append_string(self.out, key);
                append_bytes(self.out, value);
            }
        }
        self
    }

    #[inline]
    fn body(mut self, opcode: Opcode, write: impl FnOnce(&mut Vec<u8>)) -> CompleteResponse<'b> {
        self.enter(Stage::Body);
        self.header.opcode = opcode;
        write(self.out);
        CompleteResponse(self)
    }

    /// READY.
    pub fn ready(self) -> CompleteResponse<'b> {
        self.body(Opcode::Ready, |_| {})
    }

    /// AUTHENTICATE, with the class name of the authenticator.
    pub fn authenticate(self, authenticator: &str) -> CompleteResponse<'b> {
        self.body(Opcode::Authenticate, |out| append_string(out, authenticator))
    }

    /// AUTH_CHALLENGE.
    pub fn auth_challenge(self, token: Option<&[u8]>) -> CompleteResponse<'b> {
        self.body(Opcode::AuthChallenge, |out| append_bytes(out, token))
    }

    /// AUTH_SUCCESS.
    pub fn auth_success(self, token: Option<&[u8]>) -> CompleteResponse<'b> {
        self.body(Opcode::AuthSuccess, |out| append_bytes(out, token))
    }

    /// SUPPORTED: each option with its values.
    pub fn supported<'t>(
        self,
        options: impl ExactSizeIterator<Item = (&'t str, &'t [String])>,
    ) -> CompleteResponse<'b> {
        self.body(Opcode::Supported, |out| {
            append_short_length(out, options.len());
            for (key, values) in options {
                append_string(out, key);
                append_string_list(out, values.iter().map(String::as_str));
            }
        })
    }

    /// ERROR.
    pub fn error(self, extensions: &Extensions, error: &ErrorBody<'_>) -> CompleteResponse<'b> {
        let version = self.header.version;
        self.body(Opcode::Error, |out| append_error(out, version, extensions, error))
    }

    /// EVENT; the stream must be [`EVENT_STREAM`].
    pub fn event(self, event: &Event<'_>) -> CompleteResponse<'b> {
        assert!(self.header.stream == EVENT_STREAM, "an event on stream {}", self.header.stream);
        let version = self.header.version;
        self.body(Opcode::Event, |out| append_event(out, version, event))
    }

    #[inline]
    fn result(self, kind: i32, write: impl FnOnce(&mut Vec<u8>)) -> CompleteResponse<'b> {
        self.body(Opcode::Result, |out| {
            append_int(out, kind);
            write(out);
        })
    }

    /// RESULT without content: the statement was executed.
    #[inline]
    pub fn void(self) -> CompleteResponse<'b> {
        self.result(RESULT_VOID, |_| {})
    }

    /// RESULT of USE.
    pub fn set_keyspace(self, keyspace: &str) -> CompleteResponse<'b> {
        self.result(RESULT_SET_KEYSPACE, |out| append_string(out, keyspace))
    }

    /// RESULT of a schema statement.
    pub fn schema_change(self, change: &SchemaChange<'_>) -> CompleteResponse<'b> {
        let version = self.header.version;
        self.result(RESULT_SCHEMA_CHANGE, |out| append_schema_change(out, version, change))
    }

    /// RESULT whose body, its kind included, was encoded before for this version.
    #[inline]
    pub fn result_encoded(self, body: &[u8]) -> CompleteResponse<'b> {
        self.body(Opcode::Result, |out| out.extend_from_slice(body))
    }

    /// RESULT of PREPARE. `prepared.result` must have been made for this version.
    pub fn prepared(self, extensions: &Extensions, prepared: &Prepared<'_>) -> CompleteResponse<'b> {
        let version = self.header.version;
        self.result(RESULT_PREPARED, |out| {
            append_short_bytes(out, prepared.id);
            if extensions.has_metadata_id(version) {
                append_short_bytes(out, prepared.result_metadata_id);
            }
            append_bind_metadata(out, version, extensions, prepared);
            match prepared.result {
                Some(metadata) => metadata.append_full(out, version),
                None => {
                    append_int(out, NO_METADATA.cast_signed());
                    append_int(out, 0);
                }
            }
        })
    }

    /// RESULT with rows. `metadata` must have been made for this version.
    #[inline]
    pub fn rows(mut self, metadata: &RowsMetadata, mode: RowsMode<'_>) -> RowsWriter<'b> {
        self.enter(Stage::Body);
        append_int(self.out, RESULT_ROWS);
        RowsWriter::begin(self, metadata, mode)
    }

    #[inline]
    pub(crate) fn finish(mut self, compression: BodyCompression<'_>) -> Result<(), ProtocolError> {
        let body_start = self.start + HEADER_BYTES;
        if let Some((algorithm, compressor)) = compression
            && self.header.version < ProtocolVersion::V5
        {
            compressor.compress_body(algorithm, self.out, body_start)?;
            self.header.flags.0 |= Flags::COMPRESSED;
        }
        let length = self.out.len() - body_start;
        // A negative length to clients that read it as signed; dropping `self` takes the frame back.
        let too_large = ProtocolError::TooLarge { length: length as u64, limit: i32::MAX as usize };
        self.header.body_length = i32::try_from(length).map_err(|_| too_large)?.cast_unsigned();
        let header = self.header.encode(Direction::Response);
        self.out[self.start..body_start].copy_from_slice(&header);
        self.stage = Stage::Finished;
        Ok(())
    }
}

impl Drop for ResponseBuilder<'_> {
    fn drop(&mut self) {
        if self.stage != Stage::Finished {
            self.out.truncate(self.start);
        }
    }
}

impl CompleteResponse<'_> {
    /// Makes the frame final.
    ///
    /// # Errors
    /// [`ProtocolError::TooLarge`] for a body that no length can express; the buffer is then as before
    /// `begin`.
    #[inline]
    pub fn finish(self, compression: BodyCompression<'_>) -> Result<(), ProtocolError> {
        self.0.finish(compression)
    }
}

fn append_bind_metadata(
    out: &mut Vec<u8>,
    version: ProtocolVersion,
    extensions: &Extensions,
    prepared: &Prepared<'_>,
) {
    let columns = prepared.bind_columns;
    let one_table = all_in_one_table(columns);
    let mut flags = if one_table { GLOBAL_TABLES_SPEC } else { 0 };
    if extensions.lwt_mark && prepared.is_conditional {
        flags |= LWT_METADATA_MARK;
    }
    append_int(out, flags.cast_signed());
    append_int_length(out, columns.len());
    if version >= ProtocolVersion::V4 {
        // Markers of several tables name no one partition, as in Cassandra.
        let indexes = if one_table { prepared.partition_key_indexes } else { &[] };
        append_int_length(out, indexes.len());
        for index in indexes {
            append_short(out, *index);
        }
    }
    append_columns(out, version, columns);
}

/// Appends the answer to a first byte with an unsupported protocol version.
///
/// Clients of versions 1 and 2 get it in their own shorter header, all others in our latest version, so that
/// they can try that one next.
pub fn append_unsupported_version(out: &mut Vec<u8>, requested: u8, error: &ErrorBody<'_>) {
    let version = ProtocolVersion::LATEST;
    if matches!(requested, 1 | 2) {
        // version, flags, one byte of stream, opcode
        out.extend_from_slice(&[requested | 0x80, 0, 0, Opcode::Error.code()]);
        let length_at = out.len();
        append_int(out, 0);
        append_error(out, version, &Extensions::default(), error);
        let length = out.len() - length_at - 4;
        assert!(length < 1 << 17, "an error text is cut at 64 KiB, got {length} bytes");
        out[length_at..length_at + 4].copy_from_slice(&(length as u32).to_be_bytes());
    } else {
        let response = ResponseBuilder::begin(out, version, 0).error(&Extensions::default(), error);
        response.finish(None).expect("an error text is cut at 64 KiB");
    }
}
