//! What befalls a world's nodes from outside: partitions, slow links, wrong clocks, pauses.
//!
//! Each call is part of the trace.

use std::time::Duration;

use super::net::LinkState;
use super::{Link, NetFaults, NodeId, World, net};

impl World {
    /// Changes how the network behaves from now on.
    pub fn set_net_faults(&mut self, faults: NetFaults) {
        self.core.net.borrow_mut().faults = faults;
    }

    /// Lets nothing pass between two nodes any more.
    pub fn part(&mut self, left: NodeId, right: NodeId) {
        self.part_one_way(left, right);
        self.part_one_way(right, left);
    }

    /// Lets nothing pass from one node to another any more; what the other sends still arrives. New
    /// connections between the two are not made: they need both ways.
    pub fn part_one_way(&mut self, from: NodeId, to: NodeId) {
        self.core.note("part", [from.0 as u64, to.0 as u64, 0]);
        self.core.net.borrow_mut().parted.insert((from.0, to.0));
    }

    /// Lets everything pass again in both directions; what was held back arrives.
    pub fn heal(&mut self, left: NodeId, right: NodeId) {
        self.core.note("heal", [left.0 as u64, right.0 as u64, 0]);
        let mut net = self.core.net.borrow_mut();
        net.parted.remove(&(left.0, right.0));
        net.parted.remove(&(right.0, left.0));
    }

    /// Says what is special about the way from one node to another from now on; `Link::default()` is nothing.
    pub fn set_link(&mut self, from: NodeId, to: NodeId, link: Link) {
        let (low, high) = link.latency_ns.unwrap_or((u64::MAX, u64::MAX));
        self.core.note("link", [(from.0 as u64) << 32 | to.0 as u64, low ^ high.rotate_left(32), 0]);
        let mut net = self.core.net.borrow_mut();
        if link == Link::default() {
            net.links.remove(&(from.0, to.0));
        } else {
            net.links.insert((from.0, to.0), LinkState { link, free_ns: 0 });
        }
    }

    /// Breaks all connections between two nodes.
    pub fn reset_connections(&mut self, left: NodeId, right: NodeId) {
        net::reset_between(&self.core, left.0, right.0);
    }

    /// Moves a node's wall clock by `by_us` microseconds against virtual time.
    pub fn skew_clock(&mut self, id: NodeId, by_us: i64) {
        self.core.note("skew", [id.0 as u64, by_us as u64, 0]);
        self.core.clocks.borrow_mut()[id.0].step(by_us);
    }

    /// Has a node's wall clock gain `us_per_s` microseconds in each second from now on. Its timers keep to
    /// virtual time.
    pub fn drift_clock(&mut self, id: NodeId, us_per_s: i64) {
        self.core.note("drift", [id.0 as u64, us_per_s as u64, 0]);
        let now_ns = self.core.now_ns.get();
        self.core.clocks.borrow_mut()[id.0].drift(us_per_s, now_ns);
    }

    /// Stops all shards of a node for a time, as SIGSTOP does; the world, the node's disk and what is on its
    /// way to it go on.
    pub fn pause(&mut self, id: NodeId, time: Duration) {
        for shard in 0..self.nodes[id.0].shards.len() {
            self.pause_shard(id, shard, time);
        }
    }

    /// Stops one shard of a node for a time, as work that does not give way would.
    ///
    /// # Panics
    /// If the node has no such shard running.
    pub fn pause_shard(&mut self, id: NodeId, shard: usize, time: Duration) {
        let place = (id.0 as u64) << 32 | shard as u64;
        self.core.note("pause", [place, time.as_nanos() as u64, 0]);
        let until = self.core.now_ns.get() + time.as_nanos() as u64;
        let sim = &self.nodes[id.0].shards[shard];
        sim.paused_until_ns.set(sim.paused_until_ns.get().max(until));
    }
}
