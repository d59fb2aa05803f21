//! A connection's state for the query engine: its keyspace, its protocol, and its answers.

use std::net::SocketAddr;
use std::rc::Rc;

use wire::version::ProtocolVersion;

use crate::tracing::Trace;

/// State of one connection that statements depend on.
#[derive(Debug, Clone)]
pub struct ClientState {
    /// Keyspace set by USE.
    pub keyspace: Option<Rc<str>>,
    /// Protocol version the connection speaks.
    pub version: ProtocolVersion,
    /// Whether the client asked for tablet routing (`TABLETS_ROUTING_V1`).
    pub tablets_routing: bool,
    /// Whether the client asked for result metadata ids on v4 (`SCYLLA_USE_METADATA_ID`).
    pub metadata_id: bool,
    /// Whether the client asked for the LWT mark in PREPARED (`SCYLLA_LWT_ADD_METADATA_MARK`).
    pub lwt_mark: bool,
    /// The client's address; `None` for the node's own statements.
    pub peer: Option<SocketAddr>,
    /// The user of this connection.
    pub user: Rc<str>,
}

impl ClientState {
    /// The state of a new connection: no options, the newest protocol.
    pub fn new(peer: Option<SocketAddr>, user: impl Into<Rc<str>>) -> Self {
        Self {
            keyspace: None,
            version: ProtocolVersion::LATEST,
            tablets_routing: false,
            metadata_id: false,
            lwt_mark: false,
            peer,
            user: user.into(),
        }
    }

    /// The node itself.
    pub fn internal() -> Self {
        Self::new(None, "system")
    }
}

/// The result of a statement: the body of a RESULT message, and the data that accompanies it.
#[derive(Debug, Default)]
pub struct Response {
    /// The body is appended here, behind the frame's header.
    pub body: Vec<u8>,
    /// Warnings for the client.
    pub warnings: Vec<String>,
    /// `tablets-routing-v1` payload, if the client sent the request to the wrong shard and negotiated the
    /// extension.
    pub tablet_payload: Option<Vec<u8>>,
    /// The keyspace that the connection uses from now on.
    pub set_keyspace: Option<Rc<str>>,
    /// Tombstones that the request's reads passed.
    pub tombstones: u64,
    /// The trace, if the request is traced.
    pub trace: Option<Trace>,
}
