//! What a connection is to the language: its keyspace, its protocol, and where answers go.

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
    /// The other end; `None` for the node's own statements.
    pub peer: Option<SocketAddr>,
    /// Who is logged in.
    pub user: Rc<str>,
}

impl ClientState {
    /// A connection that has just begun: nothing asked for, the newest protocol.
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

/// What a statement produced: the body of a RESULT message and what travels beside it.
#[derive(Debug, Default)]
pub struct Response {
    /// The body is appended here; the caller has put the frame's header before it.
    pub body: Vec<u8>,
    /// Warnings for the client.
    pub warnings: Vec<String>,
    /// `tablets-routing-v1` payload, where the client sent the request to the wrong shard and asked to be told.
    pub tablet_payload: Option<Vec<u8>>,
    /// The keyspace that the connection uses from now on.
    pub set_keyspace: Option<Rc<str>>,
    /// What happened on the way, where the client asked for it.
    pub trace: Option<Trace>,
}
