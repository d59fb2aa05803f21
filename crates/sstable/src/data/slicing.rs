//! Cuts a partition's stream to slices, in either direction.
//!
//! A range deletion that reaches into a slice from outside is opened at the slice's near end and closed at
//! its far end, so that each slice is a stream of its own that ends without a deletion in force.

use std::cmp::Ordering;

use model::clustering::{ClusteringOrder, Position, Slice};
use model::deletion::DeletionTime;

/// The action for the item at a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Skip the item.
    Skip,
    /// Return the item.
    Emit,
    /// First report that this deletion is in force from the near end of this slice on; then ask again.
    Open(usize, DeletionTime),
    /// First report that no deletion is in force from the far end of this slice on; then ask again.
    Close(usize),
    /// All slices are done.
    Done,
}

/// Slices in reading order, and the progress of reading.
#[derive(Debug)]
pub(crate) struct Slicer {
    slices: Vec<Slice>,
    /// Whether the only slice is the whole partition, so that no position is outside.
    whole: bool,
    reversed: bool,
    at: usize,
    entered: bool,
    /// The deletion in force in reading order.
    pub(crate) open: DeletionTime,
}

impl Slicer {
    /// For disjoint ascending slices.
    pub(crate) fn new(slices: &[Slice], reversed: bool) -> Self {
        let whole = matches!(slices, [only] if *only == Slice::all());
        let mut slices = slices.to_vec();
        if reversed {
            slices.reverse();
        }
        Self { slices, whole, reversed, at: 0, entered: false, open: DeletionTime::LIVE }
    }

    /// Starts again, for another partition.
    pub(crate) fn restart(&mut self) {
        (self.at, self.entered, self.open) = (0, false, DeletionTime::LIVE);
    }

    /// Number of the slice that is read, in reading order.
    pub(crate) fn current(&self) -> usize {
        self.at
    }

    /// First bound of a slice in reading order.
    pub(crate) fn near(&self, slice: usize) -> Option<Position<'_>> {
        let slice = self.slices.get(slice)?;
        Some(if self.reversed { slice.end.as_ref() } else { slice.start.as_ref() })
    }

    /// Last bound of a slice in reading order.
    pub(crate) fn far(&self, slice: usize) -> Option<Position<'_>> {
        let slice = self.slices.get(slice)?;
        Some(if self.reversed { slice.start.as_ref() } else { slice.end.as_ref() })
    }

    fn before(&self, a: Position<'_>, b: Position<'_>, orders: &[ClusteringOrder]) -> bool {
        a.compare(b, orders) == if self.reversed { Ordering::Greater } else { Ordering::Less }
    }

    /// The action for the item at `position`. After `Skip` and `Emit` of a change, the caller sets `open`.
    pub(crate) fn step(&mut self, position: Position<'_>, orders: &[ClusteringOrder]) -> Step {
        if self.whole && self.entered {
            return Step::Emit;
        }
        loop {
            let (Some(near), Some(far)) = (self.near(self.at), self.far(self.at)) else { return Step::Done };
            if !self.before(near, position, orders) {
                return Step::Skip;
            }
            let inside = self.before(position, far, orders);
            if !self.entered && (inside || !self.open.is_live()) {
                self.entered = true;
                if !self.open.is_live() {
                    return Step::Open(self.at, self.open);
                }
            }
            if inside {
                return Step::Emit;
            }
            if let Some(close) = self.leave() {
                return close;
            }
        }
    }

    /// The action at the end of the partition: `Close` or `Done`.
    pub(crate) fn end(&mut self) -> Step {
        while self.at < self.slices.len() {
            if let Some(close) = self.leave() {
                return close;
            }
        }
        Step::Done
    }

    fn leave(&mut self) -> Option<Step> {
        let close = self.entered && !self.open.is_live();
        self.at += 1;
        self.entered = false;
        close.then_some(Step::Close(self.at - 1))
    }
}
