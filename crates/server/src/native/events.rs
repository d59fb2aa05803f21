//! Sends events to registered clients: changes of the schema, nodes that come and go, nodes that open and
//! close their port.
//!
//! Each shard sends to its own connections, on its own news: the schema listener of its engine, the nodes of
//! its `View`, its copy of the opinion of who is up. `nodes` decides what is news.

mod nodes;

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use cluster::View;
use cluster::liveness::Liveness;
use cluster::liveness::opinion::Change as Alive;
use query::{Change, SchemaEvent, Target};
use wire::event::{Event, SchemaChange, SchemaChangeKind, SchemaTarget};
use wire::response::EVENT_STREAM;

use super::connection::Connection;
use super::session::Session;
use super::{Native, dispatch};
use nodes::{NodeEvent, Shown};

/// Sends a schema event to every connection of this shard that registered for such events.
pub(super) fn schema_changed(native: &Native, event: &SchemaEvent) {
    // Every shard hears of it; one line is enough.
    if reactor::shard_id() == 0 {
        reactor::info!("the schema changed";
            change = event.change.as_str(), target = event.target.as_str(),
            keyspace = event.keyspace, name = event.name);
    }
    let arguments: Vec<&str> = event.arguments.iter().map(String::as_str).collect();
    let event = Event::Schema(SchemaChange {
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
    });
    send(native, &event, |session| session.events.get().schema_change);
}

/// Has this shard's connections hear of nodes from now on. Without a network there is nothing to hear.
pub(super) fn follow_nodes(native: &Rc<Native>) {
    let Some(liveness) = reactor::local::<Liveness>() else { return };
    let view = View::here();
    let own = native.engine.config().host_id;
    let shown =
        Rc::new(RefCell::new(Shown::at_start(&view.nodes(), own, |node| liveness.serves_clients(node))));
    let (native, opinion) = (Rc::downgrade(native), Rc::downgrade(&liveness));
    let look = Rc::new(move |nodes: &cluster::Nodes| {
        let (Some(native), Some(liveness)) = (native.upgrade(), opinion.upgrade()) else { return };
        let news = shown.borrow_mut().news(nodes, own, |node| liveness.serves_clients(node));
        news.into_iter().for_each(|event| node_changed(&native, event));
    });
    let looking = Rc::clone(&look);
    view.on_nodes(move |nodes| looking(nodes));
    liveness.on_change(move |change| match change {
        Alive::Up { .. } | Alive::Down { .. } | Alive::Clients { .. } => look(&View::here().nodes()),
        Alive::Stalled { .. } | Alive::Clock { .. } => {}
    });
}

fn node_changed(native: &Native, event: NodeEvent) {
    match event {
        NodeEvent::New(at) => send(native, &Event::NewNode(at), |s| s.events.get().topology_change),
        NodeEvent::Removed(at) => send(native, &Event::RemovedNode(at), |s| s.events.get().topology_change),
        NodeEvent::Up(at) => send(native, &Event::NodeUp(at), |s| s.events.get().status_change),
        NodeEvent::Down(at) => send(native, &Event::NodeDown(at), |s| s.events.get().status_change),
    }
}

/// Sends an event to the connections of this shard that `wants` it; one that does not read is given up.
fn send(native: &Native, event: &Event<'_>, wants: impl Fn(&Session) -> bool) {
    let open: Vec<Rc<Connection>> = native.connections.borrow().values().filter_map(Weak::upgrade).collect();
    for connection in open.iter().filter(|connection| wants(&connection.session)) {
        if connection.is_far_behind() {
            reactor::warn!("a client that asked for events does not read them and is given up");
            connection.stop_reading();
            connection.give_up();
            continue;
        }
        let version = connection.session.client.borrow().version;
        dispatch::write_frame(&connection.session, version, EVENT_STREAM, |builder| builder.event(event));
    }
}
