//! Nodes and maps in the state: what is refused, and what a start with other facts does to replicas.

use std::collections::BTreeMap;

use model::schema::{KeyspaceOptions, SchemaChange, TableDefinition, TableId, TableOptions};
use model::tablet::TabletId;
use model::{Column, ColumnId, ColumnKind, CqlType};

use crate::group0::{Change, ClusterState, Command, Move, Placement, Refusal, RequestId, Transition, apply};
use crate::maps::{Placed, Step, TabletStep};
use crate::nodes::{NodeRecord, NodeState, OwnFacts};

const TABLE: TableId = TableId([9; 16]);

fn create_table(log2: u8) -> [Change; 2] {
    let options = KeyspaceOptions { replication: BTreeMap::new(), durable_writes: true, tablets: None };
    let key = Column {
        id: ColumnId(0),
        name: "k".to_owned(),
        ty: CqlType::Int,
        kind: ColumnKind::PartitionKey,
        position: 0,
        reversed: false,
    };
    let definition = TableDefinition {
        id: TABLE,
        keyspace: "k".to_owned(),
        name: "t".to_owned(),
        columns: vec![key],
        dropped: BTreeMap::new(),
        options: TableOptions::default(),
        next_column_id: 1,
        tablets_log2: log2,
        revision: 0,
    };
    let keyspace = SchemaChange::CreateKeyspace { name: "k".to_owned(), options };
    [keyspace, SchemaChange::CreateTable(Box::new(definition))].map(Change::Schema)
}

fn facts(shards: u16) -> OwnFacts {
    OwnFacts { shards, ..OwnFacts::unnamed(1) }
}

fn node(number: u16, shards: u16) -> Change {
    let host_id = [number as u8; 16];
    Change::AddNode(Box::new(NodeRecord { number, host_id, shards, ..NodeRecord::default() }))
}

fn placement(tablets: &[&[(u16, u16)]]) -> Placement {
    let tablets: Vec<_> = tablets.iter().map(|replicas| replicas.to_vec()).collect();
    Placement { table: TABLE.0, log2: tablets.len().trailing_zeros() as u8, tablets }
}

/// Applies changes as one command, at the next index; the refusal, if there was one.
fn change(state: &mut ClusterState, changes: impl IntoIterator<Item = Change>) -> Option<Refusal> {
    let index = state.last_command() + 3;
    let id = RequestId { node: 1, life: 1, sequence: index };
    let changes = changes.into_iter().collect();
    let command = Command { id, schema: None, changes, topology: Some(state.topology_version()) };
    let read = Command::decode(&command.encode()).expect("a command that was just written");
    assert_eq!(read, command);
    *state = apply(state, index, &command);
    assert_eq!(ClusterState::decode(&state.encode()).expect("a state").encode(), state.encode());
    state.requests().find(id).expect("an outcome").refusal.clone()
}

/// A state of two nodes with three shards each and a table of four tablets.
fn two_nodes() -> ClusterState {
    let mut state = ClusterState::default();
    let placed = placement(&[&[(1, 0), (2, 0)], &[(1, 0)], &[(1, 1), (2, 2)], &[(1, 2)]]);
    let changes = create_table(2).into_iter().chain([node(1, 3), node(2, 3), Change::Place(placed)]);
    assert_eq!(change(&mut state, changes), None);
    state
}

#[test]
fn a_map_comes_with_its_table_and_goes_with_it() {
    let mut state = two_nodes();
    let map = &state.maps()[&TABLE];
    let placed = |node, shard| Placed { node, shard, since: 0, ..Placed::default() };
    assert_eq!((map.version(), map.replicas(TabletId(2))), (3, &[placed(1, 1), placed(2, 2)][..]));
    let drop_it = SchemaChange::DropTable { keyspace: "k".into(), name: "t".into(), id: TABLE };
    assert_eq!(change(&mut state, [Change::Schema(drop_it)]), None);
    assert!(state.maps().is_empty());
}

#[test]
fn a_truncation_gives_every_replica_another_tenancy() {
    let mut state = two_nodes();
    assert_eq!(change(&mut state, [Change::Truncate(TABLE.0)]), None);
    let index = state.last_command();
    let map = &state.maps()[&TABLE];
    assert_eq!((map.version(), map.truncated()), (index, index));
    for tablet in map.tablets().tablets() {
        assert!(map.replicas(tablet).iter().all(|placed| placed.since == index));
    }
}

/// Takes steps of the table's tablets, as planned with its map of now.
fn step(state: &mut ClusterState, steps: &[(u32, TabletStep)]) -> Option<Refusal> {
    let version = state.maps()[&TABLE].version();
    change(state, [Change::Transition(Transition { table: TABLE.0, version, steps: steps.to_vec() })])
}

/// Node, since and step of the replicas of a tablet.
fn replicas(state: &ClusterState, tablet: u32) -> Vec<(u16, u64, Step)> {
    let placed = state.maps()[&TABLE].replicas(TabletId(tablet)).iter();
    placed.map(|placed| (placed.node, placed.since, placed.step)).collect()
}

#[test]
fn a_replica_joins_and_leaves_in_two_steps_each() {
    let mut state = two_nodes();
    let (whole, joining, leaving) = (Step::Whole, Step::Joining, Step::Leaving);
    assert_eq!(step(&mut state, &[(1, TabletStep::Join(2, 1)), (0, TabletStep::Leave(1))]), None);
    let joined = state.last_command();
    assert_eq!(replicas(&state, 1), [(1, 0, whole), (2, joined, joining)]);
    assert_eq!(replicas(&state, 0), [(2, 0, whole), (1, 0, leaving)], "one that leaves is the last");
    let map = &state.maps()[&TABLE];
    assert_eq!((map.to_parts().fence, map.in_transition().count()), (joined, 2));
    assert_eq!((map.whole(TabletId(1)).len(), map.moving(TabletId(1)).unwrap().shard), (1, 1));
    let before = state.clone();
    assert_eq!(step(&mut state, &[(1, TabletStep::Complete), (0, TabletStep::Complete)]), None);
    assert_eq!(replicas(&state, 1), [(1, 0, whole), (2, joined, whole)]);
    assert_eq!(replicas(&state, 0), [(2, 0, whole)]);
    state = before;
    assert_eq!(step(&mut state, &[(1, TabletStep::Undo), (0, TabletStep::Undo)]), None);
    assert_eq!(replicas(&state, 1), [(1, 0, whole)]);
    assert_eq!(replicas(&state, 0), [(2, 0, whole), (1, 0, whole)]);
    assert_eq!(state.maps()[&TABLE].in_transition().count(), 0);
    // A truncation leaves a transition as it is: the one that joins has what there is, which is nothing.
    assert_eq!(step(&mut state, &[(1, TabletStep::Join(2, 0))]), None);
    assert_eq!(change(&mut state, [Change::Truncate(TABLE.0)]), None);
    let truncated = state.last_command();
    assert_eq!(replicas(&state, 1), [(1, truncated, whole), (2, truncated, joining)]);
}

#[test]
fn steps_that_do_not_follow_are_refused() {
    let mut state = two_nodes();
    let (number, state_of_it) = (3, NodeState::Joining);
    let third =
        NodeRecord { number, host_id: [3; 16], shards: 2, state: state_of_it, ..NodeRecord::default() };
    assert_eq!(change(&mut state, [Change::AddNode(Box::new(third))]), None);
    let version = state.maps()[&TABLE].version();
    let refused = [
        ((1, TabletStep::Join(9, 0)), "there is no node 9"),
        ((1, TabletStep::Join(3, 0)), "node 3 is Joining and gets no tablets"),
        ((1, TabletStep::Join(1, 3)), "node 1 has 3 shards, and none is 3"),
        ((1, TabletStep::Join(1, 0)), "has two replicas on node 1"),
        ((4, TabletStep::Leave(1)), "has 4 tablets, and none is 4"),
        ((1, TabletStep::Leave(2)), "has no replica on node 2"),
        ((1, TabletStep::Leave(1)), "has no whole replica before node 1"),
        ((0, TabletStep::Complete), "is in no transition"),
        ((0, TabletStep::Undo), "is in no transition"),
    ];
    for (wrong, reason) in refused {
        let refusal = step(&mut state, &[(2, TabletStep::Leave(2)), wrong]).expect(reason);
        assert!(refusal.to_string().contains(reason), "{refusal}, and not {reason}");
        assert_eq!(state.maps()[&TABLE].version(), version, "all steps are taken, or none");
    }
    assert_eq!(step(&mut state, &[(0, TabletStep::Leave(2))]), None);
    let refusal = step(&mut state, &[(0, TabletStep::Leave(1))]).expect("a tablet takes one step at a time");
    assert!(refusal.to_string().contains("is in transition: node 2 is Leaving"), "{refusal}");
    let of_before = Transition { table: TABLE.0, version, steps: vec![(2, TabletStep::Leave(2))] };
    let refusal = change(&mut state, [Change::Transition(of_before)]).expect("it was planned before");
    assert!(refusal.to_string().contains("has changed since"), "{refusal}");
}

#[test]
fn other_factors_are_noted_until_the_replicas_have_settled() {
    let mut state = two_nodes();
    let alter = |replication: &[(&str, &str)]| {
        let replication = replication.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let replication = replication.collect();
        let options = KeyspaceOptions { replication, durable_writes: true, tablets: None };
        Change::Schema(SchemaChange::AlterKeyspace { name: "k".into(), options })
    };
    let factor_of = |factor| alter(&[("class", "SimpleStrategy"), ("replication_factor", factor)]);
    let alone = |state: &mut ClusterState, part| change(state, [Change::SetNodeState(2, part)]);
    assert_eq!(alone(&mut state, NodeState::Draining), None);
    assert_eq!(change(&mut state, [factor_of("2")]), None);
    assert!(!state.maps()[&TABLE].is_changing(), "one node has nowhere to move replicas to");
    assert_eq!(alone(&mut state, NodeState::Normal), None);
    let version = state.maps()[&TABLE].version();
    assert_eq!(change(&mut state, [factor_of("2")]), None);
    assert!(!state.maps()[&TABLE].is_changing(), "the factor is the same");
    assert_eq!(change(&mut state, [factor_of("1")]), None);
    let map = &state.maps()[&TABLE];
    assert!(map.is_changing() && map.version() > version);
    assert_eq!(map.to_parts().fence, 0, "the same replicas count");
    assert_eq!(change(&mut state, [Change::Settled(TABLE.0)]), None);
    assert!(!state.maps()[&TABLE].is_changing());
}

#[test]
fn changes_that_do_not_follow_on_the_state_change_nothing() {
    let mut state = two_nodes();
    let moved = |tablet, node, shard| Change::MoveTablet(Move { table: TABLE.0, tablet, node, shard });
    let unknown = Change::MoveTablet(Move { table: [7; 16], tablet: 0, node: 1, shard: 0 });
    let mut same_host = NodeRecord { number: 3, host_id: [2; 16], ..NodeRecord::default() };
    let refused: Vec<(Change, &str)> = vec![
        (moved(0, 1, 3), "node 1 has 3 shards, and none is 3"),
        (moved(4, 1, 0), "has 4 tablets, and none is 4"),
        (moved(1, 2, 0), "node 2 has no replica of tablet 1"),
        (moved(0, 7, 0), "there is no node 7"),
        (unknown, "there is no map"),
        (node(2, 1), "this host id"),
        (Change::AddNode(Box::new(same_host.clone())), "node 2 has this host id"),
        (node(0, 1), "a node 0"),
        (node(4, 0), "with 0 shards"),
        (Change::UpdateNode(9, Box::new(facts(1))), "there is no node 9"),
        (Change::UpdateNode(1, Box::new(facts(0))), "without shards"),
        (Change::Truncate([7; 16]), "there is no map"),
        (Change::Truncate(TABLE.0), "one command changes the map of table"),
        (Change::Place(placement(&[&[(1, 0)][..]; 4])), "has a map"),
        (Change::Place(Placement { table: [7; 16], ..placement(&[&[(1, 0)][..]; 4]) }), "there is no table"),
    ];
    for (refused, reason) in refused {
        let before = state.clone();
        let refusal = change(&mut state, [moved(0, 1, 2), refused]).expect(reason);
        assert!(matches!(&refusal, Refusal::Misfit(text) if text.contains(reason)), "{refusal} and {reason}");
        assert!(state.maps() == before.maps() && state.nodes() == before.nodes());
        assert_eq!(state.topology_version(), before.topology_version());
    }
    same_host.host_id = [3; 16];
    let found = Change::Found([5; 16]);
    assert_eq!(change(&mut state, [Change::AddNode(Box::new(same_host)), found.clone()]), None);
    assert_eq!(state.cluster_id(), Some([5; 16]));
    assert!(matches!(change(&mut state, [found]), Some(Refusal::Misfit(_))), "a cluster is founded once");
}

#[test]
fn a_node_leaves_for_ever_and_its_directory_never_gets_younger() {
    let mut state = two_nodes();
    let set = |part| Change::SetNodeState(2, part);
    let refused = |state: &mut ClusterState, wrong: Change, reason: &str| {
        let refusal = change(state, [wrong]).expect(reason);
        assert!(refusal.to_string().contains(reason), "{refusal}");
    };
    let of_start =
        |generation| Change::UpdateNode(2, Box::new(OwnFacts { generation, host_id: [2; 16], ..facts(3) }));
    assert_eq!(change(&mut state, [of_start(4)]), None);
    refused(&mut state, of_start(3), "older than what the cluster has seen");
    assert_eq!(change(&mut state, [of_start(5), set(NodeState::Draining), set(NodeState::Normal)]), None);
    refused(&mut state, set(NodeState::Joining), "cannot become Joining");
    assert_eq!(change(&mut state, [set(NodeState::Left)]), None);
    refused(&mut state, set(NodeState::Normal), "is Left and cannot become Normal");
    assert_eq!((state.nodes()[&2].state, state.nodes()[&2].generation), (NodeState::Left, 5));
}

#[test]
fn a_command_planned_with_other_nodes_is_overtaken() {
    let mut state = two_nodes();
    let stale = Command {
        id: RequestId { node: 1, life: 2, sequence: 1 },
        schema: None,
        changes: vec![node(3, 1)],
        topology: Some(state.topology_version()),
    };
    assert_eq!(change(&mut state, [node(5, 1)]), None);
    let after = apply(&state, 100, &stale);
    assert_eq!(after.requests().find(stale.id).unwrap().refusal, Some(Refusal::Overtaken));
    assert!(!after.nodes().contains_key(&3));
}

#[test]
fn a_node_with_other_shards_has_its_replicas_spread_and_others_keep_theirs() {
    let mut state = two_nodes();
    assert_eq!(change(&mut state, [Change::UpdateNode(1, Box::new(facts(2)))]), None);
    let map = &state.maps()[&TABLE];
    let replicas = |tablet| -> Vec<(u16, u16, u64)> {
        let placed = map.replicas(TabletId(tablet)).iter();
        placed.map(|placed| (placed.node, placed.shard, placed.since)).collect()
    };
    let all: Vec<_> = (0..4).map(replicas).collect();
    let spread = [vec![(1, 0, 0), (2, 0, 0)], vec![(1, 0, 0)], vec![(1, 1, 0), (2, 2, 0)], vec![(1, 1, 0)]];
    assert_eq!((all, map.version()), (spread.to_vec(), 6));
    // Another address alone moves nothing.
    let before = map.clone();
    let elsewhere = OwnFacts { listen: "10.1.2.3:7000".parse().unwrap(), ..facts(2) };
    assert_eq!(change(&mut state, [Change::UpdateNode(1, Box::new(elsewhere))]), None);
    assert_eq!(state.maps()[&TABLE], before);
    assert_eq!((state.nodes()[&1].listen.port(), state.topology_version()), (7000, 9));
}

/// The bytes of a state and a command as a version without nodes wrote them.
#[test]
fn a_state_of_before_there_were_nodes_is_read() {
    let mut encoder = minicbor::Encoder::new(Vec::new());
    encoder.array(3).unwrap().array(0).unwrap().array(0).unwrap().u64(7).unwrap();
    let state = ClusterState::decode(&encoder.into_writer()).expect("a state of before");
    assert_eq!((state.last_command(), state.cluster_id(), state.nodes().len()), (7, None, 0));
    let mut encoder = minicbor::Encoder::new(Vec::new());
    encoder.array(3).unwrap();
    encoder.array(3).unwrap().u16(1).unwrap().u64(2).unwrap().u64(3).unwrap();
    encoder.bytes(&[8; 16]).unwrap().array(0).unwrap();
    let command = Command::decode(&encoder.into_writer()).expect("a command of before");
    assert_eq!((command.schema, command.topology, command.changes.len()), (Some([8; 16]), None, 0));
}
