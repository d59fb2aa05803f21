//! The effect of a command on the state: a pure function, total, the same on every node.

use std::rc::Rc;

use model::schema::{SchemaChange, TableId};
use model::tablet::NodeNumber;

use super::command::{Change, Command, Move, Placement, Refusal, Transition};
use super::requests::Done;
use super::state::ClusterState;
use crate::maps::map::MapParts;
use crate::maps::{Placed, ReplicaMap, TabletStep};
use crate::nodes::{NodeRecord, NodeState, OwnFacts};

/// The state after the command at `index` of the log. A command that is refused, or that was applied before,
/// leaves everything but its outcome as it was.
pub fn apply(state: &ClusterState, index: u64, command: &Command) -> ClusterState {
    if state.requests.find(command.id).is_some() {
        return state.clone();
    }
    let (mut after, refusal) = match changed(state, index, command) {
        Ok(after) => (after, None),
        Err(refusal) => (state.clone(), Some(refusal)),
    };
    assert!(state.last_command < index, "command {index} is applied behind {}", state.last_command);
    after.last_command = index;
    after.requests.keep(Done { id: command.id, index, refusal });
    after
}

fn changed(state: &ClusterState, index: u64, command: &Command) -> Result<ClusterState, Refusal> {
    let is_of_now = command.schema.is_none_or(|schema| schema == state.schema.version())
        && command.topology.is_none_or(|version| version == state.topology_version);
    if !is_of_now {
        return Err(Refusal::Overtaken);
    }
    let mut after = state.clone();
    for change in &command.changes {
        change_state(&mut after, index, change).map_err(Refusal::Misfit)?;
    }
    Ok(after)
}

fn change_state(state: &mut ClusterState, index: u64, change: &Change) -> Result<(), String> {
    match change {
        Change::Schema(change) => change_schema(state, index, change),
        Change::Found(id) => match state.cluster_id.replace(*id) {
            None => Ok(()),
            Some(_) => Err("the cluster has been founded".to_owned()),
        },
        Change::AddNode(record) => add_node(state, index, record),
        Change::UpdateNode(number, facts) => update_node(state, index, *number, facts),
        Change::Place(placement) => place(state, index, placement),
        Change::MoveTablet(moved) => move_tablet(state, index, moved),
        Change::SetNodeState(number, part) => set_node_state(state, index, *number, *part),
        Change::Truncate(table) => truncate(state, index, TableId(*table)),
        Change::Transition(transition) => take_steps(state, index, transition),
        Change::Settled(table) => changeable(state, index, TableId(*table)).map(|map| {
            map.set_changing(false, index);
        }),
    }
}

/// Changes the schema. Where the replication of a keyspace becomes another one and there are nodes that may
/// have its replicas, levels count the replicas that there are from here on, as long as those are on their
/// way.
fn change_schema(state: &mut ClusterState, index: u64, change: &SchemaChange) -> Result<(), String> {
    if let SchemaChange::AlterKeyspace { name, options } = change
        && let Some(keyspace) = state.schema.keyspace(name)
        && keyspace.options.replication != options.replication
        && state.nodes.values().filter(|node| node.state == NodeState::Normal).count() > 1
    {
        let tables = state.schema.tables().filter(|table| table.keyspace() == name.as_str());
        let tables: Vec<TableId> = tables.map(|table| table.id()).collect();
        for table in tables {
            if state.maps.contains_key(&table) {
                changeable(state, index, table)?.set_changing(true, index);
            }
        }
    }
    state.change_schema(change).map_err(|error| error.to_string())
}

/// The map of a table that the command at `index` has not changed yet.
fn changeable(state: &mut ClusterState, index: u64, id: TableId) -> Result<&mut ReplicaMap, String> {
    let map = Rc::make_mut(&mut state.maps).get_mut(&id);
    let map = map.ok_or_else(|| format!("there is no map of table {id}"))?;
    if map.version() >= index {
        return Err(format!("one command changes the map of table {id} twice"));
    }
    Ok(Rc::make_mut(map))
}

fn take_steps(state: &mut ClusterState, index: u64, transition: &Transition) -> Result<(), String> {
    let id = TableId(transition.table);
    for (_, step) in &transition.steps {
        let TabletStep::Join(node, shard) = step else { continue };
        let record = state.nodes.get(node).ok_or_else(|| format!("there is no node {node}"))?;
        if record.state != NodeState::Normal {
            return Err(format!("node {node} is {:?} and gets no tablets", record.state));
        }
        if *shard >= record.shards {
            return Err(format!("node {node} has {} shards, and none is {shard}", record.shards));
        }
    }
    let map = changeable(state, index, id)?;
    if map.version() != transition.version {
        return Err(format!("the map of table {id} has changed since the steps were planned"));
    }
    map.take_steps(&transition.steps, index).map_err(|reason| format!("of table {id}, {reason}"))
}

fn add_node(state: &mut ClusterState, index: u64, record: &NodeRecord) -> Result<(), String> {
    if record.number == 0 || record.shards == 0 {
        return Err(format!("a node {} with {} shards", record.number, record.shards));
    }
    if let Some(other) = state.nodes.values().find(|other| other.host_id == record.host_id) {
        return Err(format!("node {} has this host id", other.number));
    }
    let nodes = Rc::make_mut(&mut state.nodes);
    if nodes.insert(record.number, record.clone()).is_some() {
        return Err(format!("node {} is known", record.number));
    }
    state.topology_version = index;
    Ok(())
}

fn update_node(
    state: &mut ClusterState,
    index: u64,
    number: NodeNumber,
    facts: &OwnFacts,
) -> Result<(), String> {
    let unknown = || format!("there is no node {number}");
    let known = state.nodes.get(&number).ok_or_else(unknown)?;
    if facts.generation < known.generation {
        return Err(format!(
            "the cluster has seen start {} of node {number}, and this is start {}: its data directory is older than \
             what the cluster has seen of it",
            known.generation, facts.generation
        ));
    }
    let shards_before = known.shards;
    if facts.shards == 0 {
        return Err(format!("node {number} without shards"));
    }
    let record = Rc::make_mut(&mut state.nodes).get_mut(&number).ok_or_else(unknown)?;
    record.update(facts);
    if facts.shards != shards_before {
        for map in Rc::make_mut(&mut state.maps).values_mut() {
            Rc::make_mut(map).spread(number, facts.shards, index);
        }
    }
    state.topology_version = index;
    Ok(())
}

fn set_node_state(
    state: &mut ClusterState,
    index: u64,
    number: NodeNumber,
    part: NodeState,
) -> Result<(), String> {
    let record = Rc::make_mut(&mut state.nodes).get_mut(&number);
    let record = record.ok_or_else(|| format!("there is no node {number}"))?;
    let follows = match (record.state, part) {
        (NodeState::Joining, NodeState::Normal | NodeState::Left)
        | (NodeState::Normal, NodeState::Draining | NodeState::Left)
        | (NodeState::Draining, NodeState::Normal | NodeState::Left) => true,
        (before, after) => before == after,
    };
    if !follows {
        return Err(format!("node {number} is {:?} and cannot become {part:?}", record.state));
    }
    record.state = part;
    state.topology_version = index;
    Ok(())
}

fn place(state: &mut ClusterState, index: u64, placement: &Placement) -> Result<(), String> {
    let id = TableId(placement.table);
    let table = state.schema.table_by_id(id).ok_or_else(|| format!("there is no table {id}"))?;
    if table.tablets().log2() != placement.log2 {
        return Err(format!("table {id} has 2^{} tablets", table.tablets().log2()));
    }
    // The first replicas of a table cannot have data of an earlier tenancy.
    let since = 0;
    let placed = |replicas: &Vec<(NodeNumber, u16)>| -> Result<Vec<Placed>, String> {
        replicas
            .iter()
            .map(|(node, shard)| {
                let shards = state.nodes.get(node).map(|node| node.shards);
                match shards {
                    Some(shards) if *shard < shards => {
                        Ok(Placed { node: *node, shard: *shard, since, ..Placed::default() })
                    }
                    Some(shards) => Err(format!("node {node} has {shards} shards, and none is {shard}")),
                    None => Err(format!("there is no node {node}")),
                }
            })
            .collect()
    };
    let tablets = placement.tablets.iter().map(placed).collect::<Result<_, _>>()?;
    let map = ReplicaMap::of_parts(&MapParts {
        version: index,
        log2: placement.log2,
        tablets,
        ..MapParts::default()
    })?;
    match Rc::make_mut(&mut state.maps).insert(id, Rc::new(map)) {
        None => Ok(()),
        Some(_) => Err(format!("table {id} has a map")),
    }
}

fn truncate(state: &mut ClusterState, index: u64, id: TableId) -> Result<(), String> {
    changeable(state, index, id)?.truncate(index);
    Ok(())
}

fn move_tablet(state: &mut ClusterState, index: u64, moved: &Move) -> Result<(), String> {
    let id = TableId(moved.table);
    let (node, shard) = (moved.node, moved.shard);
    let shards = state.nodes.get(&node).ok_or_else(|| format!("there is no node {node}"))?.shards;
    if shard >= shards {
        return Err(format!("node {node} has {shards} shards, and none is {shard}"));
    }
    let maps = Rc::make_mut(&mut state.maps);
    let map = maps.get_mut(&id).ok_or_else(|| format!("there is no map of table {id}"))?;
    if moved.tablet >= map.tablets().count() {
        return Err(format!(
            "table {id} has {} tablets, and none is {}",
            map.tablets().count(),
            moved.tablet
        ));
    }
    if Rc::make_mut(map).move_within(moved.tablet(), node, shard, index) {
        Ok(())
    } else {
        Err(format!("node {node} has no replica of tablet {} of table {id}", moved.tablet))
    }
}
