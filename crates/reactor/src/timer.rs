//! A hierarchical timer wheel: insert, cancel and fire in constant time.
//!
//! Six levels of 64 slots over ticks of 2^14 ns (16 µs) cover 13 days. A later timer waits in the last slot
//! and is placed again when the wheel reaches that slot. Entries of a slot are a doubly linked list threaded
//! through one slab, so a cancelled timer leaves nothing behind.
//! Invariant: a timer never fires before its instant, and at most one tick after the wheel is advanced to it.
//! `time::sleep` uses it; the shard loop calls `next` to find out how long it may sleep.

use std::task::Waker;

use crate::time::Instant;

const TICK_BITS: u32 = 14;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const LEVELS: usize = 6;
/// The pseudo-level whose only slot lists the timers that are due.
const DUE: usize = LEVELS;
const NONE: u32 = u32::MAX;
const TICKS_AHEAD_MAX: u64 = (1 << (SLOT_BITS * LEVELS as u32)) - 1;

/// Names one inserted timer; stale keys are recognised by their generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimerKey {
    index: u32,
    generation: u32,
}

struct Entry {
    tick: u64,
    waker: Option<Waker>,
    generation: u32,
    home: u32,
    previous: u32,
    next: u32,
}

struct Level {
    occupied: u64,
    heads: [u32; SLOTS],
}

/// The wheel of one shard.
pub(crate) struct Wheel {
    entries: Vec<Entry>,
    free: u32,
    /// The wheel's levels, and behind them a list of one slot: timers that are due but not yet fired.
    levels: [Level; LEVELS + 1],
    /// Last of the due list, which fires in the order of the timers' ticks.
    due_last: u32,
    /// Every tick up to and including this one has been fired.
    current: u64,
    /// No slot that has timers begins before this tick: each turn of the loop asks, and few find anything.
    quiet: u64,
    count: usize,
}

impl Wheel {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            entries: Vec::new(),
            free: NONE,
            levels: std::array::from_fn(|_| Level { occupied: 0, heads: [NONE; SLOTS] }),
            due_last: NONE,
            current: now.0 >> TICK_BITS,
            quiet: 0,
            count: 0,
        }
    }

    /// Timers waiting.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn insert(&mut self, at: Instant, waker: Waker) -> TimerKey {
        let tick = (at.0.saturating_add((1 << TICK_BITS) - 1) >> TICK_BITS).max(self.current + 1);
        let index = if self.free == NONE {
            let index = u32::try_from(self.entries.len()).expect("fewer than 2^32 timers on one shard");
            self.entries.push(Entry {
                tick,
                waker: None,
                generation: 0,
                home: NONE,
                previous: NONE,
                next: NONE,
            });
            index
        } else {
            let index = self.free;
            self.free = self.entries[index as usize].next;
            index
        };
        let entry = &mut self.entries[index as usize];
        entry.tick = tick;
        entry.waker = Some(waker);
        let generation = entry.generation;
        self.place(index);
        self.count += 1;
        TimerKey { index, generation }
    }

    /// Replaces the waker of a timer that has not fired; false when it has.
    pub(crate) fn set_waker(&mut self, key: TimerKey, waker: &Waker) -> bool {
        match self.entries.get_mut(key.index as usize) {
            Some(entry) if entry.generation == key.generation && entry.waker.is_some() => {
                entry.waker.as_mut().expect("checked above").clone_from(waker);
                true
            }
            _ => false,
        }
    }

    pub(crate) fn remove(&mut self, key: TimerKey) {
        let live = self
            .entries
            .get(key.index as usize)
            .is_some_and(|entry| entry.generation == key.generation && entry.waker.is_some());
        if live {
            self.unlink(key.index);
            self.release(key.index);
        }
    }

    /// The moment by which `advance` should be called next; exact for near timers, early for far ones.
    pub(crate) fn next(&self) -> Option<Instant> {
        let tick = if self.levels[DUE].occupied != 0 { Some(self.current) } else { self.next_tick() };
        tick.map(|tick| Instant(tick.saturating_mul(1 << TICK_BITS)))
    }

    fn next_tick(&self) -> Option<u64> {
        let mut best: Option<u64> = None;
        for (level, slots) in self.levels[..LEVELS].iter().enumerate() {
            if slots.occupied == 0 {
                continue;
            }
            let shift = SLOT_BITS * level as u32;
            let position = (self.current >> shift) & (SLOTS as u64 - 1);
            // Slots after the present position come first, then those of the next round. The present slot of
            // an upper level is always empty: its entries have been spread to lower levels.
            let ahead =
                u64::from(slots.occupied.rotate_right((position as u32 + 1) % 64).trailing_zeros()) + 1;
            let tick = ((self.current >> shift) + ahead) << shift;
            best = Some(best.map_or(tick, |found| found.min(tick)));
        }
        best
    }

    /// Whether [`Wheel::advance`] would fire anything.
    #[inline]
    pub(crate) fn has_due(&mut self, now: Instant) -> bool {
        self.collect(now.0 >> TICK_BITS);
        self.levels[DUE].heads[0] != NONE
    }

    /// Fires timers whose instant is `now` or earlier, at most `limit`: their wakers go to `fire`. Returns
    /// how many; call again while it is `limit`.
    pub(crate) fn advance(&mut self, now: Instant, limit: usize, mut fire: impl FnMut(Waker)) -> usize {
        self.collect(now.0 >> TICK_BITS);
        let mut fired = 0;
        while fired < limit && self.levels[DUE].heads[0] != NONE {
            let index = self.levels[DUE].heads[0];
            self.unlink(index);
            fired += 1;
            fire(self.expire(index));
        }
        fired
    }

    /// Moves every timer of a tick up to `target` to the list of those due.
    #[inline]
    fn collect(&mut self, target: u64) {
        if target < self.quiet {
            self.current = self.current.max(target);
        } else {
            self.spread(target);
        }
    }

    fn spread(&mut self, target: u64) {
        while self.current < target {
            let next = if self.count == 0 { None } else { self.next_tick() };
            let Some(at) = next.filter(|next| *next <= target) else {
                self.current = target;
                self.quiet = next.unwrap_or(u64::MAX);
                break;
            };
            self.current = at;
            // Spread the slots of upper levels that begin at this tick, highest first, then take this tick's
            // own.
            for level in (0..LEVELS).rev() {
                let shift = SLOT_BITS * level as u32;
                if self.current & ((1 << shift) - 1) != 0 {
                    continue;
                }
                let slot = ((self.current >> shift) & (SLOTS as u64 - 1)) as usize;
                self.levels[level].occupied &= !(1 << slot);
                let mut index = std::mem::replace(&mut self.levels[level].heads[slot], NONE);
                while index != NONE {
                    let next = self.entries[index as usize].next;
                    if self.entries[index as usize].tick <= self.current {
                        self.append_due(index);
                    } else {
                        self.place(index);
                    }
                    index = next;
                }
            }
        }
    }

    fn expire(&mut self, index: u32) -> Waker {
        let waker = self.entries[index as usize].waker.take().expect("a placed timer has a waker");
        self.release(index);
        waker
    }

    fn release(&mut self, index: u32) {
        let free = self.free;
        let entry = &mut self.entries[index as usize];
        entry.waker = None;
        entry.generation = entry.generation.wrapping_add(1);
        entry.next = free;
        self.free = index;
        self.count -= 1;
    }

    fn place(&mut self, index: u32) {
        let tick = self.entries[index as usize].tick.min(self.current + TICKS_AHEAD_MAX);
        // The level is that of the highest bit in which the tick differs from the present.
        let differing = 63 - ((tick ^ self.current) | 1).leading_zeros();
        let level = ((differing / SLOT_BITS) as usize).min(LEVELS - 1);
        let slot = ((tick >> (SLOT_BITS * level as u32)) & (SLOTS as u64 - 1)) as usize;
        self.link(index, level, slot);
    }

    fn link(&mut self, index: u32, level: usize, slot: usize) {
        let head = self.levels[level].heads[slot];
        let entry = &mut self.entries[index as usize];
        entry.home = (level * SLOTS + slot) as u32;
        entry.previous = NONE;
        entry.next = head;
        if head != NONE {
            self.entries[head as usize].previous = index;
        }
        self.levels[level].heads[slot] = index;
        self.levels[level].occupied |= 1 << slot;
        self.quiet = 0;
    }

    fn append_due(&mut self, index: u32) {
        if self.levels[DUE].heads[0] == NONE {
            self.link(index, DUE, 0);
        } else {
            let last = self.due_last;
            self.entries[last as usize].next = index;
            let entry = &mut self.entries[index as usize];
            entry.home = (DUE * SLOTS) as u32;
            entry.previous = last;
            entry.next = NONE;
        }
        self.due_last = index;
    }

    fn unlink(&mut self, index: u32) {
        if index == self.due_last {
            self.due_last = self.entries[index as usize].previous;
        }
        let (home, previous, next) = {
            let entry = &self.entries[index as usize];
            (entry.home as usize, entry.previous, entry.next)
        };
        let (level, slot) = (home / SLOTS, home % SLOTS);
        if previous == NONE {
            self.levels[level].heads[slot] = next;
            if next == NONE {
                self.levels[level].occupied &= !(1 << slot);
            }
        } else {
            self.entries[previous as usize].next = next;
        }
        if next != NONE {
            self.entries[next as usize].previous = previous;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn xorshift(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    #[test]
    fn a_timer_fires_never_early_and_at_most_a_tick_late() {
        let mut state = 0x1234_5678_9abc_def1;
        for round in 0..if cfg!(miri) { 3 } else { 200 } {
            let start = xorshift(&mut state) >> (round % 40 + 8);
            let mut wheel = Wheel::new(Instant(start));
            let count = Arc::new(Count(AtomicUsize::new(0)));
            let mut expected: BTreeSet<(u64, usize)> = BTreeSet::new();
            for number in 0..50 {
                let ahead = xorshift(&mut state) >> (xorshift(&mut state) % 50 + 13);
                wheel.insert(Instant(start + ahead), Waker::from(count.clone()));
                expected.insert((start + ahead, number));
            }
            let mut now = start;
            let mut steps = 0;
            while wheel.len() > 0 {
                steps += 1;
                assert!(steps < 10_000, "the wheel must empty itself");
                let next = wheel.next().expect("timers wait").0;
                assert!(next > now >> TICK_BITS << TICK_BITS, "next moves forward");
                now = next;
                let mut fired = 0;
                wheel.advance(Instant(now), usize::MAX, |waker| {
                    waker.wake();
                    fired += 1;
                });
                let due: Vec<_> = expected
                    .iter()
                    .copied()
                    .take_while(|(at, _)| at + (1 << TICK_BITS) - 1 < now + (1 << TICK_BITS))
                    .collect();
                assert_eq!(fired, due.len(), "round {round} at {now}");
                for entry in due {
                    expected.remove(&entry);
                }
            }
            assert!(expected.is_empty());
        }
    }

    #[test]
    fn late_timers_fire_in_the_order_of_their_deadlines_also_in_small_batches() {
        struct Note(u64, std::sync::mpsc::Sender<u64>);
        impl Wake for Note {
            fn wake(self: Arc<Self>) {
                self.1.send(self.0).expect("the test listens");
            }
        }
        let (sender, order) = std::sync::mpsc::channel();
        let mut wheel = Wheel::new(Instant(0));
        let mut keys = Vec::new();
        for ms in [30u64, 10, 500, 20, 40_000] {
            let note = Waker::from(Arc::new(Note(ms, sender.clone())));
            keys.push(wheel.insert(Instant(ms * 1_000_000), note));
        }
        let late = Instant(60_000_000_000);
        assert_eq!(wheel.advance(late, 1, Waker::wake), 1);
        wheel.remove(keys[4]); // the last of those that are due
        wheel.remove(keys[3]); // the first
        let next = wheel.insert(Instant(60_500_000_000), Waker::from(Arc::new(Note(60_500, sender.clone()))));
        assert_eq!(wheel.advance(Instant(61_000_000_000), 8, Waker::wake), 3);
        wheel.remove(next);
        assert_eq!(order.try_iter().collect::<Vec<_>>(), [10, 30, 500, 60_500]);
        assert_eq!((wheel.len(), wheel.next()), (0, None));
    }

    #[test]
    fn a_removed_timer_does_not_fire_and_its_key_is_harmless() {
        let mut wheel = Wheel::new(Instant(0));
        let key = wheel.insert(Instant(1_000_000), Waker::noop().clone());
        wheel.remove(key);
        wheel.remove(key);
        let other = wheel.insert(Instant(2_000_000), Waker::noop().clone());
        wheel.remove(key);
        assert_eq!(wheel.len(), 1, "a stale key must not remove its successor");
        assert_ne!(key, other);
        assert!(!wheel.set_waker(key, Waker::noop()));
        let mut fired = 0;
        wheel.advance(Instant(10_000_000), usize::MAX, |_| fired += 1);
        assert_eq!((fired, wheel.len()), (1, 0));
    }
}
