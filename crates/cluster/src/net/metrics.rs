//! What one shard counts of one peer, all its connections together.

use std::rc::Rc;

use reactor::metrics::{self, Counter, Gauge, Histogram};

/// Counters of one peer.
pub(super) struct PeerMetrics {
    pub(super) connections: Rc<Gauge>,
    pub(super) waiting: Rc<Gauge>,
    pub(super) requests: Rc<Counter>,
    pub(super) served: Rc<Counter>,
    pub(super) errors: Rc<Counter>,
    pub(super) late: Rc<Counter>,
    /// Microseconds from requests over statement connections to the first part of their answers.
    pub(super) latency_us: Rc<Histogram>,
    bytes_sent: Rc<Counter>,
    bytes_received: Rc<Counter>,
    sends: Rc<Counter>,
}

const NAMES: [(&str, &str); 10] = [
    ("ceto_internode_connections", "Connections with the node, in both directions"),
    ("ceto_internode_waiting", "Calls that wait for a place on their connection"),
    ("ceto_internode_requests", "Requests sent to the node"),
    ("ceto_internode_served", "Requests of the node that were served"),
    ("ceto_internode_errors", "Calls to the node that had no answer, and requests of it that were refused"),
    ("ceto_internode_late", "Requests of the node whose time was over before they began"),
    ("ceto_internode_bytes_sent", "Bytes sent to the node"),
    ("ceto_internode_bytes_received", "Bytes received from the node"),
    ("ceto_internode_sends", "Sends to the node; one carries all frames of a turn of the loop"),
    ("ceto_internode_latency", "Microseconds until the node answered reads and writes"),
];

impl PeerMetrics {
    /// The counters of the peer of that name: its number, or `none` for nodes that are no members.
    pub(super) fn of(peer: &str) -> Rc<Self> {
        let labels = [("node", peer)];
        let counter = |at: usize| metrics::counter(NAMES[at].0, NAMES[at].1, &labels);
        let gauge = |at: usize| metrics::gauge(NAMES[at].0, NAMES[at].1, &labels);
        Rc::new(Self {
            connections: gauge(0),
            waiting: gauge(1),
            requests: counter(2),
            served: counter(3),
            errors: counter(4),
            late: counter(5),
            bytes_sent: counter(6),
            bytes_received: counter(7),
            sends: counter(8),
            latency_us: metrics::histogram(NAMES[9].0, NAMES[9].1, &labels),
        })
    }

    /// Takes a removed peer's metrics out of the published ones.
    pub(super) fn forget(peer: &str) {
        for (name, _) in NAMES {
            metrics::remove(name, &[("node", peer)]);
        }
    }

    pub(super) fn sent(&self, bytes: usize) {
        self.sends.inc();
        self.bytes_sent.add(bytes as u64);
    }

    pub(super) fn received(&self, bytes: usize) {
        self.bytes_received.add(bytes as u64);
    }
}
