//! This node's word about itself in answers to pings: its state, its data, and whether clients reach it.
//!
//! The process above says when the port for clients opens and closes ([`ControlPlane::set_serves_clients`])
//! and measures its data ([`ControlPlane::measure_with`]). Invariant: nothing is measured while nobody asks,
//! so a node that is alone has no timer here.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use reactor::{Group, Instant};
use wire::node::control::NodeState;

use super::ControlPlane;
use crate::liveness::OwnFacts;

/// A measurement is repeated when a ping finds it older than this.
const MEASURE_EVERY: Duration = Duration::from_secs(10);

/// The data of this node and the room for more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measured {
    /// Bytes of table files.
    pub load_bytes: u64,
    /// Bytes free on the disk.
    pub free_bytes: u64,
}

/// Measures this node's data.
pub type Meter = Rc<dyn Fn() -> Pin<Box<dyn Future<Output = Measured>>>>;

/// What the process above has said so far.
#[derive(Default)]
pub(super) struct OwnWord {
    serves_clients: Cell<bool>,
    meter: RefCell<Option<Meter>>,
    measured: Cell<Measured>,
    /// When the last measurement began.
    measured_at: Cell<Option<Instant>>,
}

impl OwnWord {
    /// The last measurement; an old one is replaced in the background.
    fn measured(self: &Rc<Self>) -> Measured {
        let is_old = self.measured_at.get().is_none_or(|at| at.elapsed() >= MEASURE_EVERY);
        if let Some(meter) = self.meter.borrow().clone().filter(|_| is_old) {
            self.measured_at.set(Some(reactor::now()));
            let word = Rc::clone(self);
            reactor::spawn(Group::ADMIN, async move { word.measured.set(meter().await) }).detach();
        }
        self.measured.get()
    }
}

impl ControlPlane {
    /// Has the other nodes learn, with their next pings, whether this node's port for clients is open.
    pub fn set_serves_clients(&self, serves: bool) {
        self.own_word.serves_clients.set(serves);
    }

    /// Has `meter` measure this node's data for other nodes that ask.
    pub fn measure_with(&self, meter: Meter) {
        self.own_word.meter.replace(Some(meter));
    }
}

/// The facts for the answer to a ping, on shard 0.
pub(super) fn facts() -> OwnFacts {
    let Some(control) = ControlPlane::here() else {
        return OwnFacts {
            state: NodeState::Starting,
            applied: 0,
            hash: None,
            load_bytes: 0,
            free_bytes: 0,
            serves_clients: false,
        };
    };
    let is_ending = control.membership.as_ref().is_some_and(|membership| membership.ending.get());
    let Measured { load_bytes, free_bytes } = control.own_word.measured();
    OwnFacts {
        state: if is_ending { NodeState::Draining } else { NodeState::Normal },
        applied: control.effective(),
        hash: None,
        load_bytes,
        free_bytes,
        serves_clients: control.own_word.serves_clients.get(),
    }
}
