//! The way in: group 0 of this node's folder, or a new or joined one, and the storage above it.
//!
//! Without a network the node is alone and founds its own group at the first start. With one, shard 0 asks
//! the seeds first (`membership`), takes part in the group while the storage opens, and a node that was away
//! catches up with what a majority committed before its storage is handed out.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use model::tablet::FIRST_NODE;
use reactor::{Cold, Deadline, Event, Group, Semaphore, cold};
use storage::{AgreedSchema, EarlierSchema, Storage, StorageConfig, StorageError};

use super::effects::{own_tablets, tell_shards};
use super::transitions::Transitions;
use super::{ClusterError, ControlPlane, founding};
use crate::consensus::LogLimits;
use crate::control::leader::{self, Ask};
use crate::control::service::{ClusterOptions, Membership, start_network};
use crate::group0::{ClusterState, Group0, Group0Error, GroupFailure};
use crate::nodes::{NodeState, OwnFacts};
use crate::view::News;

/// How long a start waits to hear of a majority what it has missed. Without one it serves what it has.
const CATCH_UP_WITHIN: Duration = Duration::from_secs(10);
/// Time until a start is announced again that could not be.
const ANNOUNCE_AGAIN: Duration = Duration::from_secs(1);

/// As [`open_node`], for a node that nobody else will meet: for tests and benches.
///
/// # Errors
/// As [`open_node`].
pub async fn open_storage(
    config: StorageConfig,
    shard: usize,
    shards: usize,
) -> Result<Storage, StorageError> {
    open_node(config, OwnFacts::unnamed(shards), None, shard).await
}

/// Opens a shard's storage with the schema and the tablets on which the nodes have agreed. Call it on each
/// shard at about the same time; shard 0 opens group 0 first, and with `options` waits until it is in a
/// cluster. The first start of this version takes over the schema of an earlier version's log, or of an
/// Apache Cassandra node's data directory.
///
/// # Errors
/// [`StorageError::ControlPlane`] for damage of group 0's files; those of the storage and of the port.
#[inline(never)]
pub fn open_node(
    config: StorageConfig,
    mut facts: OwnFacts,
    options: Option<ClusterOptions>,
    shard: usize,
) -> Cold<'static, Result<Storage, StorageError>> {
    cold(async move {
        let shards = usize::from(facts.shards);
        let network = match &options {
            Some(options) => Some(start_network(options, &mut facts, shard).await?),
            None => None,
        };
        if shard != 0 {
            return Storage::open_other(config, shard, shards).await;
        }
        let membership =
            options.zip(network).map(|(options, network)| Membership::new(options, facts.clone(), network));
        let opened = Rc::new(OnceCell::new());
        let agreed = {
            let (config, opened) = (config.clone(), Rc::clone(&opened));
            async move {
                let earlier = EarlierSchema::read(&config, shards).await?;
                let (control, agreed) = open_group(&config, &facts, membership, earlier.as_ref()).await?;
                drop(opened.set((control, earlier)));
                Ok(agreed)
            }
        };
        let storage = Storage::open_first(config.clone(), shards, agreed).await?;
        let (control, earlier) = Rc::into_inner(opened)
            .and_then(OnceCell::into_inner)
            .expect("a storage that is open has asked for its schema");
        if earlier.is_some() {
            EarlierSchema::retire(&config).await?;
        }
        drop(control.storage.set(storage.clone()));
        let control = Rc::new(control);
        control.follow();
        reactor::set_local(Rc::clone(&control));
        if let Some(membership) = control.membership() {
            take_part(&control, &membership).await?;
        }
        Ok(storage)
    })
}

/// Has this node be up to date and known to the others, and leads where it is the leader.
async fn take_part(control: &Rc<ControlPlane>, membership: &Rc<Membership>) -> Result<(), StorageError> {
    reactor::spawn(Group::CONTROL, Rc::clone(membership).lead(Rc::clone(control))).detach();
    let transitions = Transitions::new(Rc::clone(control), Rc::clone(membership));
    reactor::spawn(Group::CONTROL, Rc::new(transitions).drive()).detach();
    let deadline = Deadline::after(CATCH_UP_WITHIN);
    match catch_up(control, deadline).await {
        Ok(()) => {}
        Err(ClusterError::Group0(Group0Error::Stopped(failure))) => {
            return Err(StorageError::ControlPlane(failure));
        }
        // Without a majority, or with shards that take long to apply what they have missed, the node serves
        // what it has, as one that has been up all the time would.
        Err(ClusterError::Group0(error)) => {
            reactor::warn!("this node may not know the latest changes of the schema"; reason = error)
        }
        Err(error) => return Err(broken(error.to_string())),
    }
    let announced = leader::ask(control, Ask::Announce(membership.facts().clone()), deadline).await;
    match announced {
        Ok(_) => Ok(()),
        Err(error @ (ClusterError::Leader { .. } | ClusterError::Refused(_))) => {
            Err(broken(error.to_string()))
        }
        Err(error) => {
            reactor::warn!("the other nodes do not know yet that this node has started"; reason = error);
            let announcing = announce_later(Rc::clone(control), Rc::clone(membership));
            reactor::spawn(Group::CONTROL, announcing).detach();
            Ok(())
        }
    }
}

/// Tells the others of this start until they know: its shards, on which they look for its replicas, and its
/// addresses.
async fn announce_later(control: Rc<ControlPlane>, membership: Rc<Membership>) {
    loop {
        reactor::sleep(ANNOUNCE_AGAIN).await;
        if membership.ending.get() {
            return;
        }
        let facts = membership.facts().clone();
        match leader::ask(&control, Ask::Announce(facts), Deadline::after(CATCH_UP_WITHIN)).await {
            Ok(_) => return reactor::info!("the other nodes know now that this node has started"),
            Err(error) => {
                reactor::warn_limited!("the other nodes still do not know that this node has started"; reason = error);
            }
        }
    }
}

/// Waits until every shard of this node has applied what was committed when this was called.
async fn catch_up(control: &ControlPlane, deadline: Deadline) -> Result<(), ClusterError> {
    let group = control.group();
    group.catch_up(deadline).await?;
    control.wait_effective_of(group.applied(), deadline).await
}

fn broken(reason: String) -> StorageError {
    StorageError::ControlPlane(Rc::new(GroupFailure::Broken(reason)))
}

/// Opens group 0, or founds it with the schema of earlier, or joins another node's; afterwards the shards
/// know the nodes and who has each tablet.
async fn open_group(
    config: &StorageConfig,
    facts: &OwnFacts,
    membership: Option<Rc<Membership>>,
    earlier: Option<&EarlierSchema>,
) -> Result<(ControlPlane, AgreedSchema), StorageError> {
    let failed = |failure: GroupFailure| StorageError::ControlPlane(Rc::new(failure));
    let folder = config.group0_dir();
    let exists = reactor::file::exists(&folder).await.map_err(StorageError::of("look for", &folder))?;
    let first = || {
        let history = earlier.map(|earlier| earlier.changes.as_slice()).unwrap_or_default();
        ClusterState::of_history(history)
    };
    let index = earlier.map_or(0, |earlier| earlier.index);
    let group = match &membership {
        Some(membership) => membership.enter(config, first()?, index).await?,
        None => {
            if !exists {
                Group0::create(&folder, FIRST_NODE, index, first()?).await.map_err(failed)?;
            }
            let number_in = |state: &ClusterState| founding::own_number(state, facts);
            Group0::open(&folder, number_in, LogLimits::default()).await.map_err(failed)?
        }
    };
    if let Some(earlier) = earlier {
        earlier.check(config, group.state().schema())?;
    }
    let sequence = Cell::new(0);
    if group.is_alone() {
        founding::introduce(&group, facts, &sequence).await?;
    }
    let state = group.state();
    let agreed = AgreedSchema {
        changes: state.history(),
        index: state.last_command(),
        expects_manifest: earlier
            .map_or(exists && has_served(&state, facts), |earlier| earlier.expects_manifest),
        tablets: state
            .maps()
            .iter()
            .map(|(table, map)| (*table, own_tablets(&map.to_parts(), group.number())))
            .collect(),
    };
    let control = ControlPlane {
        effective: Cell::new(group.applied()),
        group: group.clone(),
        membership: membership.clone(),
        storage: OnceCell::new(),
        effects: RefCell::default(),
        prepared: RefCell::default(),
        seen: RefCell::new(Rc::clone(&state)),
        working: Cell::new(false),
        failure: RefCell::new(None),
        progress: Event::new(),
        turn: Rc::new(Semaphore::new(1)),
        sequence,
        down_since: RefCell::default(),
        planner: RefCell::new(None),
        syncer: RefCell::new(None),
        on_schema: RefCell::new(None),
        own_word: Rc::default(),
    };
    membership.iter().for_each(|membership| membership.name(&group));
    tell_shards(&News::of(&state, group.number()), usize::from(facts.shards)).await?;
    if let Some(membership) = membership {
        membership.attach(&group);
    }
    Ok((control, agreed))
}

/// Whether this node's storage may have been open before: the first start of one that joins may have ended
/// between the folder of group 0 and the manifest, and it gets no data before it is a full member.
fn has_served(state: &ClusterState, facts: &OwnFacts) -> bool {
    match state.nodes().values().find(|node| node.host_id == facts.host_id) {
        Some(own) => own.state != NodeState::Joining,
        // Without a record of any node the state is of a node that has always been alone.
        None => state.nodes().is_empty(),
    }
}
