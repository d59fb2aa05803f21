//! Messages between the nodes of a test: they are lost, late, or come twice, as the test asks.
//!
//! All nodes of a world are in one thread: a message is put into the other node's box, which that node looks
//! into. A message that waits in the box of a node that crashes is late by as long as the node is away.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use model::Table;
use model::tablet::Replica;
use reactor::{Deadline, Group, Instant};
use replication::Replicator;
use replication::peers::{NodeListener, PeerAnswer, PeerCall, PeerError, PeerErrorKind, Peers};
use wire::node::frame::Verb;

/// How often boxes are looked into.
const LOOK_EVERY: Duration = Duration::from_micros(200);

/// What happens to messages, in hundredths of them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    pub(crate) lost: u64,
    pub(crate) twice: u64,
    /// The longest delay.
    pub(crate) late: Duration,
}

type Slot = Rc<RefCell<Option<Result<Vec<u8>, PeerError>>>>;

struct Letter {
    from: u16,
    verb: Verb,
    body: Vec<u8>,
    deadline: Deadline,
    due: Instant,
    slot: Slot,
}

/// A node and its shard.
type Place = (u16, u16);

/// What a test has a node do.
pub(crate) type Job = Box<dyn FnOnce(Replicator, Rc<Table>) -> Pin<Box<dyn Future<Output = ()>>>>;

/// The boxes of all nodes.
#[derive(Default)]
pub(crate) struct Post {
    boxes: RefCell<BTreeMap<Place, Vec<Letter>>>,
    pub(crate) faults: Cell<Faults>,
    /// Nodes that all know to be down.
    pub(crate) down: RefCell<BTreeSet<u16>>,
    /// Pairs of nodes and verbs that do not get through.
    pub(crate) cut: RefCell<BTreeSet<(u16, u16, u8)>>,
    /// Work for shard 0 of a node.
    pub(crate) jobs: RefCell<Vec<(u16, Job)>>,
}

fn of_hundred(part: u64) -> bool {
    reactor::random_u64() % 100 < part
}

fn delay(faults: Faults) -> Duration {
    let longest = faults.late.as_micros() as u64;
    Duration::from_micros(if longest == 0 { 0 } else { reactor::random_u64() % longest })
}

impl Post {
    /// Lets nothing of a verb pass from one node to another.
    pub(crate) fn cut(&self, from: u16, to: u16, verb: Verb) {
        self.cut.borrow_mut().insert((from, to, verb as u8));
    }

    fn put(&self, from: u16, call: &PeerCall, slot: Slot) {
        let faults = self.faults.get();
        let is_cut = self.cut.borrow().contains(&(from, call.to.node, call.verb as u8));
        if is_cut || of_hundred(faults.lost) {
            return;
        }
        let letter = |slot| Letter {
            from,
            verb: call.verb,
            body: call.body.clone(),
            deadline: call.deadline,
            due: reactor::now() + delay(faults),
            slot,
        };
        let mut boxes = self.boxes.borrow_mut();
        let letters = boxes.entry((call.to.node, call.to.shard)).or_default();
        if of_hundred(faults.twice) {
            letters.push(letter(Slot::default()));
        }
        letters.push(letter(slot));
    }

    /// Has a shard of a node serve what comes to it, for ever.
    pub(crate) async fn serve(self: Rc<Self>, own: Place, replicator: Replicator, table: Rc<Table>) {
        loop {
            let is_ours = |(node, _): &mut (u16, Job)| (*node, 0) == own;
            let jobs: Vec<_> = self.jobs.borrow_mut().extract_if(.., is_ours).collect();
            for (_, job) in jobs {
                reactor::spawn(Group::STATEMENT, job(replicator.clone(), Rc::clone(&table))).detach();
            }
            let now = reactor::now();
            let due: Vec<Letter> = {
                let mut boxes = self.boxes.borrow_mut();
                boxes.entry(own).or_default().extract_if(.., |letter| letter.due <= now).collect()
            };
            for letter in due {
                let (post, replicator) = (Rc::clone(&self), replicator.clone());
                reactor::spawn(
                    Group::STATEMENT,
                    async move { post.answer(own.0, &replicator, letter).await },
                )
                .detach();
            }
            reactor::sleep(LOOK_EVERY).await;
        }
    }

    async fn answer(&self, own: u16, replicator: &Replicator, letter: Letter) {
        let answer = replicator.serve(letter.verb, &letter.body, letter.deadline).await;
        let faults = self.faults.get();
        reactor::sleep(delay(faults)).await;
        let is_cut = self.cut.borrow().contains(&(own, letter.from, letter.verb as u8));
        if !is_cut && !of_hundred(faults.lost) {
            letter.slot.replace(Some(answer.map_err(PeerError::from)));
        }
    }
}

/// The others, as one node reaches them.
pub(crate) struct Others {
    pub(crate) own: u16,
    pub(crate) post: Rc<Post>,
}

impl Peers for Others {
    fn is_up(&self, replica: Replica) -> bool {
        !self.post.down.borrow().contains(&replica.node)
    }

    fn on_change(&self, _: NodeListener) {
        // Nobody here keeps hints, which wait for that.
    }

    fn call(&self, call: PeerCall) -> PeerAnswer {
        let (post, own) = (Rc::clone(&self.post), self.own);
        Box::pin(async move {
            let slot = Slot::default();
            post.put(own, &call, Rc::clone(&slot));
            loop {
                if let Some(answer) = slot.borrow_mut().take() {
                    return answer;
                }
                if call.deadline.is_past() {
                    let reason = format!("node {} is silent", call.to.node);
                    return Err(PeerError { kind: PeerErrorKind::TimedOut, reason });
                }
                reactor::sleep(LOOK_EVERY).await;
            }
        })
    }
}
