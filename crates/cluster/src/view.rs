//! What one shard sees of the agreed state: the nodes, and each table's routing at its present version.
//!
//! Each shard has one [`View`], found by [`View::here`]. The control plane on shard 0 sends it every change
//! before the change takes effect in the storage, so that a request for a new table finds its replicas.
//! Requests that hold a [`Routing`] keep the one they were planned with. Invariant: the version of a table's
//! routing only grows.

use std::cell::{Cell, Ref, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::{Rc, Weak};

use model::Table;
use model::schema::TableId;
use model::tablet::{FIRST_NODE, NodeNumber, Replica};
use reactor::{Deadline, Event};

use crate::maps::Routing;
use crate::maps::map::MapParts;
use crate::nodes::{NodeRecord, NodeState};

/// Nodes by number.
pub type Nodes = BTreeMap<NodeNumber, NodeRecord>;

/// News of the agreed state, as they go to every shard.
#[derive(Debug, Clone, Default)]
pub(crate) struct News {
    /// The number of this node, at a start.
    pub(crate) own: Option<NodeNumber>,
    /// All nodes, if any changed.
    pub(crate) nodes: Option<Nodes>,
    /// Maps that are new or changed.
    pub(crate) maps: Vec<(TableId, MapParts)>,
    /// Tables that are gone.
    pub(crate) gone: Vec<TableId>,
}

impl News {
    pub(crate) fn is_empty(&self) -> bool {
        self.own.is_none() && self.nodes.is_none() && self.maps.is_empty() && self.gone.is_empty()
    }
}

/// The routings in use, by table.
#[derive(Debug, Default)]
struct Routings {
    /// The one that was found last.
    last: Option<(TableId, Rc<Routing>)>,
    known: BTreeMap<TableId, Rc<Routing>>,
    /// Those that requests may still hold, of earlier versions.
    replaced: Vec<(TableId, Weak<Routing>)>,
}

type NodesListener = Rc<dyn Fn(&Nodes)>;

/// The agreed state on one shard.
pub struct View {
    own: Cell<NodeNumber>,
    is_shared: Cell<bool>,
    nodes: RefCell<Rc<Nodes>>,
    routings: RefCell<Routings>,
    changed: Event,
    listeners: RefCell<Vec<NodesListener>>,
}

impl Default for View {
    fn default() -> Self {
        Self {
            own: Cell::new(FIRST_NODE),
            is_shared: Cell::new(false),
            nodes: RefCell::default(),
            routings: RefCell::default(),
            changed: Event::new(),
            listeners: RefCell::default(),
        }
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("own", &self.own).field("nodes", &self.nodes).finish_non_exhaustive()
    }
}

impl View {
    /// The view of this shard, made at its first use.
    pub fn here() -> Rc<Self> {
        reactor::local::<Self>().unwrap_or_else(|| {
            let view = Rc::new(Self::default());
            reactor::set_local(Rc::clone(&view));
            view
        })
    }

    /// This shard, as a replica.
    pub fn own(&self) -> Replica {
        Replica { node: self.own.get(), shard: reactor::shard_id() as u16 }
    }

    /// Whether there are other nodes that have data or may get some.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.is_shared.get()
    }

    /// The nodes.
    pub fn nodes(&self) -> Rc<Nodes> {
        Rc::clone(&self.nodes.borrow())
    }

    /// Tells `listener` the nodes after each change of them from now on, on this shard.
    pub fn on_nodes(&self, listener: impl Fn(&Nodes) + 'static) {
        self.listeners.borrow_mut().push(Rc::new(listener));
    }

    /// Looks at the routing of a table at its present version.
    #[inline]
    pub fn with_routing<T>(&self, table: &Table, look: impl FnOnce(&Rc<Routing>) -> T) -> T {
        if let Some(routing) = self.last(table) {
            return look(&routing);
        }
        look(&self.find(table))
    }

    #[inline]
    fn last(&self, table: &Table) -> Option<Ref<'_, Rc<Routing>>> {
        Ref::filter_map(self.routings.borrow(), |routings| {
            let (id, routing) = routings.last.as_ref()?;
            (*id == table.id() && routing.tablets() == table.tablets()).then_some(routing)
        })
        .ok()
    }

    /// The routing of a table, also of one that has no map: this node alone has it then.
    #[inline(never)]
    fn find(&self, table: &Table) -> Rc<Routing> {
        let (id, tablets) = (table.id(), table.tablets());
        let mut routings = self.routings.borrow_mut();
        let known = routings.known.get(&id).filter(|known| known.tablets() == tablets).cloned();
        let routing = known.unwrap_or_else(|| {
            let made = Rc::new(Routing::alone(tablets, self.own.get(), reactor::shard_count()));
            routings.known.insert(id, Rc::clone(&made));
            made
        });
        routings.last = Some((id, Rc::clone(&routing)));
        routing
    }

    /// The routing of a table by the agreed state; `None` for one that is not known.
    pub fn known_routing(&self, table: TableId) -> Option<Rc<Routing>> {
        self.routings.borrow().known.get(&table).cloned()
    }

    /// Whether no request of this shard goes on that was planned with an earlier routing of a table.
    pub(crate) fn is_drained(&self, table: TableId) -> bool {
        let routings = self.routings.borrow();
        !routings.replaced.iter().any(|(of, routing)| *of == table && routing.strong_count() > 0)
    }

    /// Waits until a table has a routing of a later version than `version`; returns whether that came before
    /// the deadline.
    pub async fn wait_for_later(&self, table: &Table, version: u64, deadline: Deadline) -> bool {
        let is_later = || self.with_routing(table, |routing| routing.version() > version);
        reactor::timeout(deadline, self.changed.wait_until(is_later)).await.is_ok()
    }

    /// Waits until a table has a routing of `version` or a later one; returns whether that came before the
    /// deadline. A replica waits so for what the coordinator of a request knows already.
    pub async fn wait_for_version(&self, table: TableId, version: u64, deadline: Deadline) -> bool {
        let is_there = || {
            let routings = self.routings.borrow();
            version == 0 || routings.known.get(&table).is_some_and(|known| known.version() >= version)
        };
        reactor::timeout(deadline, self.changed.wait_until(is_there)).await.is_ok()
    }

    /// Takes in nodes and the map of a table on which nobody agreed: for tests of the layers above.
    #[doc(hidden)]
    pub fn pretend(&self, nodes: Nodes, table: TableId, map: MapParts) {
        self.learn(&News { own: None, nodes: Some(nodes), maps: vec![(table, map)], gone: Vec::new() });
    }

    /// As [`View::pretend`], as a node of that number.
    #[doc(hidden)]
    pub fn pretend_to_be(&self, own: NodeNumber, nodes: Nodes, table: TableId, map: MapParts) {
        self.learn(&News { own: Some(own), nodes: Some(nodes), maps: vec![(table, map)], gone: Vec::new() });
    }

    /// Takes in what is new.
    pub(crate) fn learn(&self, news: &News) {
        if let Some(own) = news.own {
            self.own.set(own);
        }
        if let Some(nodes) = &news.nodes {
            let takes_part = |node: &&NodeRecord| node.state != NodeState::Left;
            self.is_shared.set(nodes.values().filter(takes_part).count() > 1);
            self.nodes.replace(Rc::new(nodes.clone()));
        }
        let mut routings = self.routings.borrow_mut();
        for (table, map) in &news.maps {
            let routing = Rc::new(Routing::of_map(map, self.own.get(), reactor::shard_count()));
            let Some(before) = routings.known.insert(*table, routing) else { continue };
            let version = before.version();
            assert!(version <= map.version, "routing {} of {table} comes behind {version}", map.version);
            routings.replaced.push((*table, Rc::downgrade(&before)));
        }
        for table in &news.gone {
            routings.known.remove(table);
        }
        routings.last = None;
        routings.replaced.retain(|(_, routing)| routing.strong_count() > 0);
        drop(routings);
        self.changed.notify_all();
        if let Some(nodes) = &news.nodes {
            let listeners = self.listeners.borrow().clone();
            listeners.iter().for_each(|listener| listener(nodes));
        }
    }
}

#[cfg(test)]
mod tests;
