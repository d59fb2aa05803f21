//! Bytes between machines: the CQL native protocol v3 to v5, and messages between nodes; no sockets.
//!
//! A server reads with `segment` (version 5) and [`frame::Frame::cut`], decodes with [`request::decode`] and
//! answers with [`response::ResponseBuilder`], which appends to the send buffer. Requests borrow from the
//! receive buffer, responses are written once: on the path of a prepared point read nothing is allocated.
//! Invariant: no function panics or takes memory out of proportion to its input, whatever bytes a client
//! sends.

pub mod client;
pub mod compression;
pub mod consistency;
pub mod error;
pub mod error_code;
pub mod event;
pub mod extensions;
pub mod frame;
#[doc(hidden)]
pub mod fuzzing;
pub mod node;
pub mod protocol_error;
pub mod reader;
pub mod request;
pub mod response;
pub mod rows;
pub mod segment;
pub mod startup;
pub mod types;
pub mod values;
pub mod version;
pub mod writer;

pub use compression::{Compression, Compressor};
pub use consistency::Consistency;
pub use error::{ErrorBody, ErrorKind};
pub use error_code::ErrorCode;
pub use extensions::Extensions;
pub use frame::{Flags, Frame, FrameError, FrameHeader, Opcode};
pub use protocol_error::ProtocolError;
pub use request::{QueryParameters, Request, RequestEnvelope};
pub use response::ResponseBuilder;
pub use rows::{ColumnSpec, RowsMetadata, RowsWriter};
pub use values::{ValueRef, Values};
pub use version::ProtocolVersion;
