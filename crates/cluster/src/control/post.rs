//! The way of group 0's messages to other members: one bounded queue and one task for each.
//!
//! Messages may be lost, as Raft allows; the group is told so. Snapshots are sent as requests, so that the
//! group learns whether they arrived. Invariant: what waits for one member is bounded by number and by bytes
//! of its entries, and a member that is gone costs nothing but the last attempt.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use reactor::{Deadline, Group};
use wire::node::frame::{Verb, WorkGroup};

use crate::NodeNumber;
use crate::consensus::{Message, MessageKind};
use crate::group0::Group0;
use crate::net::Network;

/// Messages that wait for one member.
const WAITING_MAX: usize = 256;
/// How long a message may take onto its way.
const SEND_WITHIN: Duration = Duration::from_secs(1);
/// How long a snapshot may take to arrive.
const SNAPSHOT_WITHIN: Duration = Duration::from_secs(30);

/// The queues of the members for which there are messages.
pub(super) struct Post {
    group: Group0,
    network: Rc<Network>,
    /// One for each task that sends: numbers come from other nodes, and leave nothing behind.
    queues: RefCell<BTreeMap<NodeNumber, VecDeque<Message>>>,
}

impl Post {
    pub(super) fn new(group: Group0, network: Rc<Network>) -> Rc<Self> {
        Rc::new(Self { group, network, queues: RefCell::default() })
    }

    /// Takes a message to its receiver, or loses it where too many wait.
    pub(super) fn take(self: &Rc<Self>, message: Message) {
        let to = message.to;
        let mut queues = self.queues.borrow_mut();
        let is_sending = queues.contains_key(&to);
        let queue = queues.entry(to).or_default();
        if queue.len() >= WAITING_MAX {
            return;
        }
        queue.push_back(message);
        if !is_sending {
            let post = Rc::clone(self);
            reactor::spawn(Group::CONTROL, async move { post.send_all(to).await }).detach();
        }
    }

    /// Sends what waits for a member, until nothing does.
    async fn send_all(&self, to: NodeNumber) {
        loop {
            let next = {
                let mut queues = self.queues.borrow_mut();
                let next = queues.get_mut(&to).expect("a queue that is being sent").pop_front();
                if next.is_none() {
                    queues.remove(&to);
                }
                next
            };
            let Some(message) = next else { return };
            if !self.send(to, &message).await {
                // The others would meet the same; newer ones follow.
                self.queues.borrow_mut().get_mut(&to).expect("its queue").clear();
                self.group.unreachable(to);
            }
        }
    }

    async fn send(&self, to: NodeNumber, message: &Message) -> bool {
        let body = message.encode();
        let peer = (to, 0);
        if message.kind == MessageKind::Snapshot {
            let deadline = Deadline::after(SNAPSHOT_WITHIN);
            let sent = self.network.call(peer, Verb::Raft, WorkGroup::Control, deadline, body).await;
            self.group.snapshot_sent(to, sent.is_ok());
            return sent.is_ok();
        }
        let deadline = Deadline::after(SEND_WITHIN);
        self.network.send(peer, Verb::Raft, WorkGroup::Control, deadline, body).await.is_ok()
    }
}
