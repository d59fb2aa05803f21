//! The tasks of one shard by index; a generation per slot makes stale wakes harmless.
//!
//! Invariant: a slot's task is valid until it is taken out, and a slot is in at most one run queue, once.

use std::cell::{Cell, RefCell};

use super::TaskRef;

pub(crate) const INDEX_BITS: u32 = 24;
pub(crate) const GENERATION_BITS: u32 = 24;
/// Tasks that may exist on a shard at once.
pub(crate) const TASKS_MAX: usize = 1 << INDEX_BITS;

struct Slot {
    generation: u32,
    task: Option<TaskRef>,
    queued: bool,
    next_free: u32,
}

pub(crate) struct Slab {
    slots: RefCell<Vec<Slot>>,
    free: Cell<u32>,
    count: Cell<usize>,
}

const NONE: u32 = u32::MAX;

impl Slab {
    pub(crate) fn new() -> Self {
        Self { slots: RefCell::new(Vec::new()), free: Cell::new(NONE), count: Cell::new(0) }
    }

    pub(crate) fn len(&self) -> usize {
        self.count.get()
    }

    /// Puts a task in, marked as queued; its index and generation.
    pub(crate) fn insert(&self, task: TaskRef) -> (u32, u32) {
        let mut slots = self.slots.borrow_mut();
        self.count.set(self.count.get() + 1);
        let free = self.free.get();
        if free != NONE {
            let slot = &mut slots[free as usize];
            self.free.set(slot.next_free);
            slot.task = Some(task);
            slot.queued = true;
            return (free, slot.generation);
        }
        assert!(slots.len() < TASKS_MAX, "more than {TASKS_MAX} tasks on one shard");
        let index = slots.len() as u32;
        slots.push(Slot { generation: 0, task: Some(task), queued: true, next_free: NONE });
        (index, 0)
    }

    /// Marks the task as queued; its task when it was not queued yet and the generation is right.
    pub(crate) fn queue(&self, index: u32, generation: u32) -> Option<TaskRef> {
        let mut slots = self.slots.borrow_mut();
        let slot = slots.get_mut(index as usize)?;
        if slot.generation != generation || slot.queued {
            return None;
        }
        let task = slot.task?;
        slot.queued = true;
        Some(task)
    }

    /// The task about to be polled; from here on it may be queued again.
    pub(crate) fn begin(&self, index: u32) -> Option<(TaskRef, u32)> {
        let mut slots = self.slots.borrow_mut();
        let slot = slots.get_mut(index as usize)?;
        slot.queued = false;
        slot.task.map(|task| (task, slot.generation))
    }

    pub(crate) fn remove(&self, index: u32) -> Option<TaskRef> {
        let mut slots = self.slots.borrow_mut();
        let slot = slots.get_mut(index as usize)?;
        let task = slot.task.take()?;
        slot.generation = (slot.generation + 1) & ((1 << GENERATION_BITS) - 1);
        // A wake between the task's end and here may have queued the slot: `begin` will find it empty, or
        // find the next task in it, for which one needless poll is harmless.
        slot.queued = false;
        slot.next_free = self.free.get();
        self.free.set(index);
        self.count.set(self.count.get() - 1);
        Some(task)
    }

    /// Any task that is still there.
    pub(crate) fn any(&self) -> Option<u32> {
        self.slots.borrow().iter().position(|slot| slot.task.is_some()).map(|index| index as u32)
    }
}
