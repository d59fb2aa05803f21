//! The leader's work for the cluster: it takes nodes in, plans for those who ask, and chooses voters.
//!
//! Any node asks with [`ask`]; it is this node's own leader part, or another's over the network. Asking again
//! after a lost answer is safe: an [`Ask`] that changes something carries the id of its command. Invariant:
//! only a leader that has applied everything before its term plans, and one plan at a time, which the turn of
//! the control plane ensures.

use std::rc::Rc;
use std::time::Duration;

use minicbor::{Decode, Encode};
use model::TableId;
use reactor::{Cold, Deadline, Group, cold};
use wire::node::control::{Command, CommandOutcome, Join, Joined};
use wire::node::fault::{Fault, FaultKind};
use wire::node::frame::{Verb, WorkGroup};

use super::SyncTablet;
use super::service::{Membership, invalid, not_in_a_cluster};
use crate::consensus::{ChangeRefused, MemberChange};
use crate::control::{ClusterError, ControlPlane};
use crate::group0::{Group0, Group0Error, RequestId};
use crate::membership::voters;
use crate::net::{Answer, NetError, Request};
use crate::nodes::OwnFacts;

/// Time between two attempts to find a leader.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// How long a node that asks waits for there to be a leader.
const LEADER_WITHIN: Duration = Duration::from_secs(5);
/// How long a node that asks waits for others to have applied what it asked for.
const OTHERS_WITHIN: Duration = Duration::from_secs(1);
/// The same, for one that is not known to be up.
const UNKNOWN_WITHIN: Duration = Duration::from_millis(200);
/// How long a change of members is waited for where one is under way.
const MEMBERS_WITHIN: Duration = Duration::from_secs(10);
/// How often the leader looks whether the voters are the right ones, besides at each change.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A question for the leader.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub(crate) enum Ask {
    /// A node has started, with these facts.
    #[n(0)]
    Announce(#[n(0)] OwnFacts),
    /// Plan something that the layers above understand, as the command of this id.
    #[n(1)]
    Plan(
        #[n(0)] RequestId,
        #[n(1)]
        #[cbor(with = "minicbor::bytes")]
        Vec<u8>,
    ),
    /// Wait until this node's shards have applied the command of that index. Every node answers it.
    #[n(2)]
    Applied(#[n(0)] u64),
    /// Truncate the table of this id, as the command of this other one.
    #[n(3)]
    Truncate(
        #[n(0)] RequestId,
        #[n(1)]
        #[cbor(with = "minicbor::bytes")]
        [u8; 16],
    ),
    /// Wait until this node has the map of that version of the table of this id, and no request by an earlier
    /// one. Every node answers it.
    #[n(4)]
    Drained(
        #[n(0)]
        #[cbor(with = "minicbor::bytes")]
        [u8; 16],
        #[n(1)] u64,
    ),
    /// Copy a slice of a tablet between its replicas. Every node that has one answers it.
    #[n(5)]
    Sync(#[n(0)] SyncTablet),
}

/// The answer to an [`Ask`]: the index to wait for, and what the layers above say of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answered {
    /// The index of the last command that it led to.
    pub index: u64,
    /// The planner's words; empty for the other questions.
    pub outcome: Vec<u8>,
}

/// Asks the leader, whoever it is by the deadline, and waits until this node has applied what it led to.
/// On shard 0.
///
/// # Errors
/// [`ClusterError`]; after `Group0Error::Undecided` the change may have been made.
#[inline(never)]
pub(crate) fn ask<'a>(
    control: &'a ControlPlane,
    ask: Ask,
    deadline: Deadline,
) -> Cold<'a, Result<Answered, ClusterError>> {
    cold(async move {
        let group = control.group();
        let mut sent = false;
        // A lost answer of a leader leaves time to find another one, but clients wait no longer.
        let until = Deadline::after(LEADER_WITHIN);
        let until_sent = match &ask {
            Ask::Plan(..) | Ask::Truncate(..) => Deadline::after(LEADER_WITHIN + LEADER_WITHIN / 2),
            Ask::Announce(_) | Ask::Applied(_) | Ask::Drained(..) | Ask::Sync(_) => deadline,
        };
        loop {
            let attempt = match control.membership() {
                _ if group.may_plan() => answer_here(control, &ask).await,
                None => return Err(Group0Error::from(group.not_leading()).into()),
                Some(membership) => ask_there(&membership, &group, &ask, deadline, &mut sent).await,
            };
            match attempt {
                Ok(answered) => {
                    control.wait_effective(answered.index, deadline).await?;
                    return Ok(answered);
                }
                Err(Attempt::Again)
                    if !deadline.is_past() && !(if sent { until_sent } else { until }).is_past() =>
                {
                    reactor::sleep(ASK_AGAIN).await;
                }
                Err(Attempt::Again) if sent => return Err(Group0Error::Undecided.into()),
                Err(Attempt::Again) => return Err(Group0Error::NoMajority.into()),
                Err(Attempt::Failed(error)) => return Err(error),
            }
        }
    })
}

/// Why one attempt to ask led to nothing.
enum Attempt {
    /// Another attempt may.
    Again,
    Failed(ClusterError),
}

impl From<ClusterError> for Attempt {
    fn from(error: ClusterError) -> Self {
        match error {
            ClusterError::Group0(Group0Error::NotLeader(_)) => Self::Again,
            other => Self::Failed(other),
        }
    }
}

async fn ask_there(
    membership: &Membership,
    group: &Group0,
    ask: &Ask,
    deadline: Deadline,
    sent: &mut bool,
) -> Result<Answered, Attempt> {
    let leader = group.status().leader.filter(|leader| *leader != group.number());
    let leader = leader.ok_or(Attempt::Again)?;
    let asked = call(membership, leader, ask, deadline).await;
    match asked {
        Ok(answered) => Ok(answered),
        Err(NetError::Fault { fault, .. }) if fault.kind == FaultKind::Failed => {
            Err(Attempt::Failed(ClusterError::Leader { reason: fault.text }))
        }
        Err(error) => {
            *sent |= !error.is_definite();
            Err(Attempt::Again)
        }
    }
}

pub(super) async fn call(
    membership: &Membership,
    node: crate::NodeNumber,
    ask: &Ask,
    deadline: Deadline,
) -> Result<Answered, NetError> {
    let request = minicbor::to_vec(ask).expect("writing to memory does not fail");
    let mut body = Vec::new();
    Command { request }.encode(&mut body);
    let network = membership.network();
    let answer = network.call((node, 0), Verb::Command, WorkGroup::Control, deadline, body).await?;
    match CommandOutcome::decode(&answer) {
        Ok(CommandOutcome { index, outcome }) => Ok(Answered { index, outcome }),
        Err(error) => Err(NetError::Lost {
            peer: crate::net::PeerName::Node(node),
            reason: format!("its answer cannot be read: {error}"),
        }),
    }
}

/// Answers as the leader.
#[inline(never)]
fn answer_here<'a>(control: &'a ControlPlane, ask: &'a Ask) -> Cold<'a, Result<Answered, Attempt>> {
    cold(async move {
        match ask {
            Ask::Announce(facts) => {
                let turn = ControlPlane::turn().await?;
                let index = turn.announce(facts).await?;
                Ok(Answered { index, outcome: Vec::new() })
            }
            Ask::Plan(id, request) => {
                let turn = ControlPlane::turn().await?;
                let done = control.group().state().requests().find(*id).cloned();
                if let Some(done) = done {
                    done.outcome().map_err(|refusal| Attempt::Failed(refusal.into()))?;
                    return Ok(Answered { index: done.index, outcome: Vec::new() });
                }
                let planner = control.planner().ok_or(ClusterError::NotOpen)?;
                let answered = planner(turn, *id, request.clone()).await?;
                tell_others(control, answered.index).await;
                Ok(answered)
            }
            Ask::Truncate(id, table) => {
                let turn = ControlPlane::turn().await?;
                let index = turn.truncate(*id, TableId(*table)).await?;
                Ok(Answered { index, outcome: Vec::new() })
            }
            Ask::Applied(index) => {
                control.wait_effective(*index, Deadline::after(OTHERS_WITHIN)).await?;
                Ok(Answered { index: *index, outcome: Vec::new() })
            }
            Ask::Drained(table, version) => {
                control.wait_drained(TableId(*table), *version).await?;
                Ok(Answered { index: *version, outcome: Vec::new() })
            }
            Ask::Sync(slice) => {
                let next = control.sync(slice.clone()).await?;
                let outcome = minicbor::to_vec(next).expect("writing to memory does not fail");
                Ok(Answered { index: 0, outcome })
            }
        }
    })
}

/// Has a node copy a slice of a tablet; the token that the next one begins with.
///
/// # Errors
/// The text of the error.
pub(super) async fn sync_at(
    membership: &Rc<Membership>,
    node: crate::NodeNumber,
    slice: SyncTablet,
    deadline: Deadline,
) -> Result<Option<i64>, String> {
    let control = ControlPlane::here().ok_or_else(|| ClusterError::NotOpen.to_string())?;
    if node == control.group().number() {
        return control.sync(slice).await.map_err(|error| error.to_string());
    }
    let asked = call(membership, node, &Ask::Sync(slice), deadline).await;
    let answered = asked.map_err(|error| error.to_string())?;
    minicbor::decode(&answered.outcome).map_err(|error| format!("its answer cannot be read: {error}"))
}

/// Waits until the other nodes that live have applied a command, so that whoever asked for it finds it
/// everywhere; not for long.
async fn tell_others(control: &ControlPlane, index: u64) {
    let Some(membership) = control.membership() else { return };
    let own = control.group().number();
    let up = control.live_nodes();
    let others = control.nodes_with_a_part().into_iter().filter(|node| *node != own);
    let asking: Vec<_> = others
        .map(|node| {
            // One that is not known to be up may have come a moment ago.
            let within = if up.contains(&node) { OTHERS_WITHIN } else { UNKNOWN_WITHIN };
            let deadline = Deadline::after(within);
            let membership = Rc::clone(&membership);
            reactor::spawn(Group::CONTROL, async move {
                call(&membership, node, &Ask::Applied(index), deadline).await.is_ok()
            })
        })
        .collect();
    for asked in asking {
        // A node that does not answer in time is behind or gone; it learns of the command by the log.
        drop(asked.await);
    }
}

/// Waits until other nodes have applied a command, each asked until it has, or until the deadline; how many
/// have.
pub(super) async fn wait_for_nodes(
    membership: &Rc<Membership>,
    nodes: Vec<crate::NodeNumber>,
    index: u64,
    deadline: Deadline,
) -> usize {
    let asking: Vec<_> = nodes
        .into_iter()
        .map(|node| {
            let membership = Rc::clone(membership);
            reactor::spawn(Group::CONTROL, async move {
                while !deadline.is_past() {
                    // It answers after a second in any case.
                    let until = Deadline::after(2 * OTHERS_WITHIN).min(deadline);
                    if call(&membership, node, &Ask::Applied(index), until).await.is_ok() {
                        return true;
                    }
                    reactor::sleep(ASK_AGAIN).await;
                }
                false
            })
        })
        .collect();
    let mut applied = 0;
    for asked in asking {
        applied += usize::from(asked.await.unwrap_or(false));
    }
    applied
}

impl Membership {
    /// Answers a question for the leader, or for every node.
    pub(super) async fn command(self: Rc<Self>, request: Request) -> Answer {
        let Command { request: bytes } = Command::decode(&request.body).map_err(invalid)?;
        let ask: Ask =
            minicbor::decode(&bytes).map_err(|error| Fault::new(FaultKind::Invalid, error.to_string()))?;
        let control = ControlPlane::here().ok_or_else(not_in_a_cluster)?;
        let is_for_all = matches!(ask, Ask::Applied(_) | Ask::Drained(..) | Ask::Sync(_));
        if !is_for_all && !control.group().may_plan() {
            return Err(not_leader(&control.group()));
        }
        // In a task of its own: a plan that has begun goes on when its asker gives up.
        let answering = reactor::spawn(Group::CONTROL, async move {
            answer_here(&control, &ask).await.map_err(|attempt| match attempt {
                Attempt::Again => not_leader(&control.group()),
                Attempt::Failed(error) => failed(&error),
            })
        });
        let answered =
            answering.await.map_err(|error| Fault::new(FaultKind::Failed, error.to_string()))??;
        let mut body = Vec::new();
        CommandOutcome { index: answered.index, outcome: answered.outcome }.encode(&mut body);
        Ok(body)
    }

    /// Takes a node into the cluster: it gets a number and the state, in which it is a learner.
    pub(super) async fn take_in(self: Rc<Self>, request: Request) -> Answer {
        let join = Join::decode(&request.body).map_err(invalid)?;
        let address = |text: &str| {
            text.parse().map_err(|_| Fault::new(FaultKind::Invalid, format!("'{text}' is no address")))
        };
        let facts = OwnFacts {
            host_id: request.from.host_id,
            data_center: join.data_center,
            rack: join.rack,
            listen: address(&join.addresses.storage)?,
            native: address(&join.addresses.native)?,
            shards: join.shards,
            version: join.version,
            generation: join.generation,
        };
        let control = ControlPlane::here().ok_or_else(not_in_a_cluster)?;
        if !control.group().may_plan() {
            return Err(not_leader(&control.group()));
        }
        let taking = reactor::spawn(Group::CONTROL, async move { take_in(&control, &facts).await });
        taking.await.map_err(|error| Fault::new(FaultKind::Failed, error.to_string()))?
    }

    /// Sees to it, while this node leads, that the right nodes vote. Ends with this node.
    pub(crate) async fn lead(self: Rc<Self>, control: Rc<ControlPlane>) {
        let group = control.group();
        while !self.ending.get() {
            if group.may_plan()
                && let Err(error) = choose_voters(&control).await
            {
                reactor::debug!("the voters stay as they are"; error = error);
            }
            let changed = group.wait_changed();
            // Whether the members changed, or time passed: nodes that have been dead for long are swapped.
            let _ = reactor::timeout(Deadline::after(LOOK_EVERY), changed).await;
        }
    }
}

/// The answer to one whose question failed. What may still be done is asked for again, of the next leader
/// where this one has lost its majority or its disk.
fn failed(error: &ClusterError) -> Fault {
    let kind = match error {
        ClusterError::Group0(Group0Error::Undecided | Group0Error::Stopped(_)) => FaultKind::TimedOut,
        _ => FaultKind::Failed,
    };
    Fault::new(kind, error.to_string())
}

fn not_leader(group: &Group0) -> Fault {
    let leader = group.status().leader.filter(|leader| *leader != group.number());
    Fault {
        leader,
        ..Fault::new(FaultKind::NotLeader, "this node does not lead the cluster's control plane")
    }
}

async fn take_in(control: &ControlPlane, facts: &OwnFacts) -> Answer {
    let failed = |error: ClusterError| match error {
        ClusterError::Group0(Group0Error::NotLeader(_)) => not_leader(&control.group()),
        ClusterError::Refused(_) => Fault::new(FaultKind::Forbidden, error.to_string()),
        other => Fault::new(FaultKind::Failed, other.to_string()),
    };
    let group = control.group();
    let turn = ControlPlane::turn().await.map_err(failed)?;
    let (node, index) = turn.add_node(facts).await.map_err(failed)?;
    let deadline = Deadline::after(MEMBERS_WITHIN);
    loop {
        let members = group.members();
        if members.voters.contains(&node) || members.learners.contains(&node) {
            break;
        }
        match group.change_members(&[MemberChange::Learner(node)]).await {
            Ok(()) => {}
            Err(Group0Error::Members(ChangeRefused::Pending)) if !deadline.is_past() => {
                reactor::sleep(ASK_AGAIN).await;
            }
            Err(error) => return Err(failed(error.into())),
        }
    }
    drop(turn);
    let cluster_id = group.state().cluster_id().expect("a cluster that takes nodes in is founded");
    let snapshot = minicbor::to_vec(group.snapshot()).expect("writing to memory does not fail");
    let mut body = Vec::new();
    Joined { cluster_id, node, index, snapshot }.encode(&mut body);
    Ok(body)
}

/// Drives the members of the group towards the nodes that should vote.
async fn choose_voters(control: &ControlPlane) -> Result<(), Group0Error> {
    let group = control.group();
    let (state, members) = (group.state(), group.members());
    let chosen = voters::choose(state.nodes(), &members.voters, |node| control.is_dead_for_long(node));
    let changes = voters::changes(&members, &chosen, state.nodes());
    if changes.is_empty() {
        return Ok(());
    }
    // A node that only joined is a learner first, which changes no voter.
    if members.voters != chosen {
        reactor::info!("the voters of the control plane change";
            from = format!("{:?}", members.voters), to = format!("{chosen:?}"));
    }
    group.change_members(&changes).await
}
