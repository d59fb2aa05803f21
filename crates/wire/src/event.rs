//! Messages that a server sends to clients unasked, and the same contents as the result of a schema statement
//! (native_protocol_v5.spec §4.2.5.5 and §4.2.6).

use std::net::SocketAddr;

use crate::version::ProtocolVersion;
use crate::writer::{append_inetaddr, append_int, append_string, append_string_list};

/// Kinds of schema changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaChangeKind {
    /// It was created.
    Created,
    /// It was altered.
    Updated,
    /// It was dropped.
    Dropped,
}

/// The piece of schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaTarget<'a> {
    /// The keyspace itself.
    Keyspace,
    /// A table or view in it.
    Table(&'a str),
    /// A user-defined type in it.
    Type(&'a str),
    /// A function in it, with its argument types as CQL.
    Function(&'a str, &'a [&'a str]),
    /// An aggregate in it, with its argument types as CQL.
    Aggregate(&'a str, &'a [&'a str]),
}

/// A change of schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaChange<'a> {
    /// The kind of change.
    pub kind: SchemaChangeKind,
    /// The keyspace.
    pub keyspace: &'a str,
    /// The thing that changed.
    pub target: SchemaTarget<'a>,
}

/// Something a client can register for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// A node joined.
    NewNode(SocketAddr),
    /// A node left.
    RemovedNode(SocketAddr),
    /// A node owns other tokens than before.
    MovedNode(SocketAddr),
    /// A node accepts requests.
    NodeUp(SocketAddr),
    /// A node does not accept requests.
    NodeDown(SocketAddr),
    /// The schema changed.
    Schema(SchemaChange<'a>),
}

/// Appends an event's type and body.
pub fn append_event(out: &mut Vec<u8>, version: ProtocolVersion, event: &Event<'_>) {
    let (event_type, change, address) = match event {
        Event::NewNode(address) => ("TOPOLOGY_CHANGE", "NEW_NODE", address),
        Event::RemovedNode(address) => ("TOPOLOGY_CHANGE", "REMOVED_NODE", address),
        Event::MovedNode(address) => ("TOPOLOGY_CHANGE", "MOVED_NODE", address),
        Event::NodeUp(address) => ("STATUS_CHANGE", "UP", address),
        Event::NodeDown(address) => ("STATUS_CHANGE", "DOWN", address),
        Event::Schema(change) => {
            append_string(out, "SCHEMA_CHANGE");
            append_schema_change(out, version, change);
            return;
        }
    };
    append_string(out, event_type);
    append_string(out, change);
    append_inetaddr(out, address.ip());
    append_int(out, i32::from(address.port()));
}

/// Appends the body that SCHEMA_CHANGE events and results share.
///
/// Version 3 has no functions: its clients hear that the keyspace was updated.
pub fn append_schema_change(out: &mut Vec<u8>, version: ProtocolVersion, change: &SchemaChange<'_>) {
    let kind = match change.kind {
        SchemaChangeKind::Created => "CREATED",
        SchemaChangeKind::Updated => "UPDATED",
        SchemaChangeKind::Dropped => "DROPPED",
    };
    let mut append = |kind, target, name: Option<&str>, arguments: Option<&[&str]>| {
        append_string(out, kind);
        append_string(out, target);
        append_string(out, change.keyspace);
        if let Some(name) = name {
            append_string(out, name);
        }
        if let Some(arguments) = arguments {
            append_string_list(out, arguments.iter().copied());
        }
    };
    match change.target {
        SchemaTarget::Keyspace => append(kind, "KEYSPACE", None, None),
        SchemaTarget::Table(name) => append(kind, "TABLE", Some(name), None),
        SchemaTarget::Type(name) => append(kind, "TYPE", Some(name), None),
        SchemaTarget::Function(..) | SchemaTarget::Aggregate(..) if version < ProtocolVersion::V4 => {
            append("UPDATED", "KEYSPACE", None, None);
        }
        SchemaTarget::Function(name, arguments) => append(kind, "FUNCTION", Some(name), Some(arguments)),
        SchemaTarget::Aggregate(name, arguments) => append(kind, "AGGREGATE", Some(name), Some(arguments)),
    }
}
