//! The state of a node's moves of tablets, on shard 0: which tablets are not where they should be, and who
//! keeps a table's moves away.

use std::cell::RefCell;
use std::collections::BTreeMap;

use model::TableId;
use model::tablet::TabletId;
use reactor::{Event, Semaphore};

use crate::agreed::OwnTablet;

/// Steps of moves side by side on a node.
const STEPS_AT_ONCE: usize = 4;

/// Who is at work on a table.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    /// Operations that keep its moves away.
    pub(crate) holds: u32,
    /// Steps of its moves that are being taken.
    pub(crate) steps: u32,
}

/// The moves of a node.
pub(crate) struct Moves {
    /// Tablets that are not where they should be, and where they are.
    pub(crate) moving: RefCell<BTreeMap<(TableId, TabletId), Option<OwnTablet>>>,
    pub(crate) tables: RefCell<BTreeMap<TableId, Counts>>,
    pub(crate) turns: Semaphore,
    /// Notified when one of the above has changed.
    pub(crate) changed: Event,
}

impl Default for Moves {
    fn default() -> Self {
        Self {
            moving: RefCell::default(),
            tables: RefCell::default(),
            turns: Semaphore::new(STEPS_AT_ONCE),
            changed: Event::new(),
        }
    }
}
