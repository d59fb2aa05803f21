//! Sends events to registered clients.

use std::rc::{Rc, Weak};

use query::{Change, SchemaEvent, Target};
use wire::event::{Event, SchemaChange, SchemaChangeKind, SchemaTarget};
use wire::response::EVENT_STREAM;

use super::{Native, dispatch};

/// Sends a schema event to every connection of this shard that registered for such events.
pub(super) fn schema_changed(native: &Rc<Native>, event: &SchemaEvent) {
    let open: Vec<_> = native.connections.borrow().values().filter_map(Weak::upgrade).collect();
    let arguments: Vec<&str> = event.arguments.iter().map(String::as_str).collect();
    for connection in open.iter().filter(|connection| connection.session.events.get().schema_change) {
        if connection.is_far_behind() {
            reactor::warn!("a client that asked for events does not read them and is given up");
            connection.stop_reading();
            connection.give_up();
            continue;
        }
        let version = connection.session.client.borrow().version;
        dispatch::write_frame(&connection.session, version, EVENT_STREAM, |builder| {
            builder.event(&Event::Schema(SchemaChange {
                kind: match event.change {
                    Change::Created => SchemaChangeKind::Created,
                    Change::Updated => SchemaChangeKind::Updated,
                    Change::Dropped => SchemaChangeKind::Dropped,
                },
                keyspace: &event.keyspace,
                target: match event.target {
                    Target::Keyspace => SchemaTarget::Keyspace,
                    Target::Table => SchemaTarget::Table(&event.name),
                    Target::Type => SchemaTarget::Type(&event.name),
                    Target::Function => SchemaTarget::Function(&event.name, &arguments),
                    Target::Aggregate => SchemaTarget::Aggregate(&event.name, &arguments),
                },
            }))
        });
    }
}
