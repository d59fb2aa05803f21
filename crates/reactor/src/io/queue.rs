//! One shard's requests to one disk: a queue per scheduling group, served by shares.
//!
//! A group's virtual time is the device time it has had, divided by its shares; the waiting group with the
//! least virtual time is next. The present is the least virtual time of the active groups. A group that was
//! idle comes back at its own virtual time or at the present less a small credit, whichever is more. When a
//! background group is next but has no room, a group of the foreground may pass it as long as it is not too
//! far ahead: bursts of reads do not wait for background room, and a foreground that saturates the disk still
//! leaves the others their shares. Invariant: a group is `waiting` while its queue holds an entry. The entry
//! of a withdrawn request stays until the queue reaches it, or until such entries are more than half of all.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Request;
use super::account::Account;
use super::disk::{BACKGROUND_ROOM_NS, Disk, FOREGROUND_ROOM_NS, Local};
use crate::driver::OpId;
use crate::metrics::Sample;
use crate::sched::{GROUPS, Group};

const SHARES_UNIT: u64 = 1000;
/// Virtual time a group of the foreground may be ahead of a background group it passes.
const PASS_NS: u64 = 2_000_000;
/// Virtual time an idle group may come back behind the present. As much as it may have been passed by: a
/// flush that writes one piece at a time is idle after each, and would lose its shares.
const CREDIT_NS: u64 = PASS_NS;
/// Withdrawn entries a queue may hold whatever its length.
const WITHDRAWN_MIN: usize = 64;

#[derive(Default)]
struct Class {
    entries: VecDeque<OpId>,
    withdrawn: usize,
    virtual_ns: u64,
    account: Account,
}

pub(super) enum Next {
    /// This one, if it has not been withdrawn.
    Go(OpId, Group),
    /// Nothing before that moment.
    At(u64),
    /// Nothing before something arrives or completes.
    None,
}

pub(super) struct Queue {
    disk: Arc<Disk>,
    local: Local,
    classes: [Class; GROUPS],
    waiting: u16,
    /// Groups with entries or with requests at the driver: mostly one or two of all.
    active: u16,
    floor_ns: u64,
}

/// The groups of a set of bits.
fn groups(mut bits: u16) -> impl Iterator<Item = Group> {
    std::iter::from_fn(move || {
        let group = (bits != 0).then(|| Group(bits.trailing_zeros() as u8))?;
        bits &= bits - 1;
        Some(group)
    })
}

fn room_ns(group: Group) -> u64 {
    if group.is_background() { BACKGROUND_ROOM_NS } else { FOREGROUND_ROOM_NS }
}

impl Queue {
    pub(super) fn new(disk: Arc<Disk>) -> Self {
        Self {
            disk,
            local: Local::default(),
            classes: std::array::from_fn(|_| Class::default()),
            waiting: 0,
            active: 0,
            floor_ns: 0,
        }
    }

    pub(super) fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Whether a request of `group` would find room.
    pub(super) fn admits(&self, group: Group, now_ns: u64) -> bool {
        self.disk.admits(room_ns(group), &self.local, now_ns).is_ok()
    }

    fn join(&mut self, group: Group) {
        let class = &mut self.classes[group.0 as usize];
        class.virtual_ns = class.virtual_ns.max(self.floor_ns.saturating_sub(CREDIT_NS));
    }

    pub(super) fn push(&mut self, id: OpId, group: Group, now_ns: u64) {
        let bit = 1 << group.0;
        if self.waiting & bit == 0 {
            self.waiting |= bit;
            self.join(group);
        }
        self.active |= bit;
        let class = &mut self.classes[group.0 as usize];
        class.entries.push_back(id);
        class.account.queues(now_ns);
    }

    /// Looks whether a group that has one request less has any.
    fn note_active(&mut self, group: Group) {
        let class = &self.classes[group.0 as usize];
        if class.entries.is_empty() && class.account.in_flight() == 0 {
            self.active &= !(1 << group.0);
        }
    }

    /// The waiting group with the least virtual time among those of `mask`.
    fn least(&self, mask: u16) -> Option<Group> {
        groups(self.waiting & mask).min_by_key(|group| self.virtual_ns(*group))
    }

    pub(super) fn next(&mut self, now_ns: u64, draining: bool) -> Next {
        let Some(first) = self.least(u16::MAX) else { return Next::None };
        let mut group = first;
        if !draining && let Err(at) = self.disk.admits(room_ns(first), &self.local, now_ns) {
            let refused = at.map_or(Next::None, Next::At);
            if !first.is_background() {
                return refused;
            }
            let Some(other) = self.least(!crate::sched::BACKGROUND_MASK) else { return refused };
            let ahead_ns = self.virtual_ns(other).saturating_sub(self.virtual_ns(first));
            if ahead_ns > PASS_NS {
                return refused;
            }
            if let Err(at) = self.disk.admits(room_ns(other), &self.local, now_ns) {
                return at.map_or(Next::None, Next::At);
            }
            group = other;
        }
        let class = &mut self.classes[group.0 as usize];
        let id = class.entries.pop_front();
        if class.entries.is_empty() {
            self.waiting &= !(1 << group.0);
            class.withdrawn = 0;
        }
        self.note_active(group);
        id.map_or(Next::None, |id| Next::Go(id, group))
    }

    fn virtual_ns(&self, group: Group) -> u64 {
        self.classes[group.0 as usize].virtual_ns
    }

    /// A request goes to the driver: out of the queue after its delay, or past it.
    pub(super) fn start(&mut self, request: &Request, shares: u32, now_ns: u64, delay_ns: Option<u64>) {
        if delay_ns.is_none() {
            self.join(request.group);
        }
        let own_ns = self.virtual_ns(request.group);
        let least_ns = groups(self.active).map(|group| self.virtual_ns(group)).min();
        self.active |= 1 << request.group.0;
        self.floor_ns = self.floor_ns.max(least_ns.map_or(own_ns, |least| least.min(own_ns)));
        let class = &mut self.classes[request.group.0 as usize];
        class.virtual_ns += request.cost_ns * SHARES_UNIT / u64::from(shares.max(1));
        class.account.starts(request, now_ns, delay_ns);
        self.disk.start(request.cost_ns, &mut self.local, now_ns);
    }

    pub(super) fn finish(&mut self, request: &Request, now_ns: u64) {
        self.disk.finish(request.cost_ns, &mut self.local);
        self.classes[request.group.0 as usize].account.finishes(request, now_ns);
        self.note_active(request.group);
    }

    /// A waiting request of `group` was withdrawn; `waits` returns whether an entry's request still waits.
    pub(super) fn leave(&mut self, group: Group, now_ns: u64, waits: impl Fn(OpId) -> bool) {
        let class = &mut self.classes[group.0 as usize];
        class.account.leaves(now_ns);
        class.withdrawn += 1;
        if class.withdrawn > WITHDRAWN_MIN && class.withdrawn * 2 > class.entries.len() {
            class.withdrawn = 0;
            class.entries.retain(|id| waits(*id));
            if class.entries.is_empty() {
                self.waiting &= !(1 << group.0);
            }
        }
        self.note_active(group);
    }

    pub(super) fn samples(&self, shares: impl Fn(Group) -> u32, now_ns: u64, samples: &mut Vec<Sample>) {
        for group in Group::all() {
            let account = &self.classes[group.0 as usize].account;
            if account.is_used() {
                account.samples(self.disk.name(), group, shares(group), now_ns, samples);
            }
        }
    }
}
