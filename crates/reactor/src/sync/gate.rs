//! A gate that work passes through and that can be closed: closing waits until all holds are dropped.
//!
//! Every task belongs to one, so that the code that stops a service notices when its last task is gone.

use std::cell::Cell;
use std::rc::Rc;

use super::event::Event;

/// The gate is closed: the service is stopping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("gate closed")]
pub struct GateClosed;

struct State {
    inside: Cell<usize>,
    closed: Cell<bool>,
    left: Event,
}

/// Counts its holds. Clones are the same gate.
#[derive(Clone)]
pub struct Gate(Rc<State>);

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// An open gate without holds.
    pub fn new() -> Self {
        Self(Rc::new(State { inside: Cell::new(0), closed: Cell::new(false), left: Event::new() }))
    }

    /// Enters the gate until the hold is dropped.
    ///
    /// # Errors
    /// [`GateClosed`] after `close` was called.
    pub fn enter(&self) -> Result<GateHold, GateClosed> {
        if self.0.closed.get() {
            return Err(GateClosed);
        }
        self.0.inside.set(self.0.inside.get() + 1);
        Ok(GateHold(self.0.clone()))
    }

    /// Refuses new holds and completes when all holds are dropped. May be called more than once.
    pub async fn close(&self) {
        self.0.closed.set(true);
        self.0.left.wait_until(|| self.0.inside.get() == 0).await;
    }

    /// Whether `close` was called.
    pub fn is_closed(&self) -> bool {
        self.0.closed.get()
    }

    /// How many are inside.
    pub fn inside(&self) -> usize {
        self.0.inside.get()
    }
}

/// A place inside the gate; dropping it leaves the gate.
pub struct GateHold(Rc<State>);

impl Clone for GateHold {
    /// A second hold, also while the gate is closing: a task inside may start helpers of its own.
    fn clone(&self) -> Self {
        self.0.inside.set(self.0.inside.get() + 1);
        Self(self.0.clone())
    }
}

impl Drop for GateHold {
    fn drop(&mut self) {
        self.0.inside.set(self.0.inside.get() - 1);
        if self.0.closed.get() && self.0.inside.get() == 0 {
            self.0.left.notify_all();
        }
    }
}
