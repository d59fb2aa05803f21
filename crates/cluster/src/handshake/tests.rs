//! Each refusal, as the node that accepts a connection and the node that opens it see it.

use wire::node::hello::Class;

use super::*;

const A: Uuid = [0xaa; 16];
const B: Uuid = [0xbb; 16];
const CLUSTER: Uuid = [1; 16];

fn hello(host_id: Uuid, node: NodeNumber) -> Hello {
    Hello {
        version_min: 1,
        version_max: 2,
        cluster_id: Some(CLUSTER),
        cluster_name: "Test Cluster".to_owned(),
        partitioner: "Murmur3Partitioner".to_owned(),
        host_id,
        expected: None,
        node,
        generation: 5,
        boot: u64::from(node),
        shard: 0,
        shards: 2,
        features: vec!["tablets".to_owned()],
        epoch: Some(Epoch { number: 3, id: [3; 16] }),
        to_shard: Some(0),
        class: Class::Control,
        data_center: "dc1".to_owned(),
        rack: "rack1".to_owned(),
        address: "10.0.0.1:7000".to_owned(),
        heard: Vec::new(),
    }
}

/// Two nodes of a cluster, and what each knows beyond first messages.
struct Two {
    /// The node that opens the connection, and the one that accepts it.
    opener: Hello,
    acceptor: Hello,
    banned: BTreeSet<Uuid>,
    enabled: Vec<String>,
    recorded: [Option<Recorded>; 2],
    live: [Option<LiveBoot>; 2],
}

impl Two {
    fn new() -> Self {
        let recorded = |node| {
            let (data_center, rack) = ("dc1".to_owned(), "rack1".to_owned());
            Some(Recorded { node, generation: 5, data_center, rack })
        };
        Self {
            opener: Hello { expected: Some(B), ..hello(A, 1) },
            acceptor: Hello { expected: Some(A), ..hello(B, 2) },
            banned: BTreeSet::new(),
            enabled: vec!["tablets".to_owned()],
            recorded: [recorded(1), recorded(2)],
            live: [None, None],
        }
    }

    /// The acceptor's judgement of the opener, and the opener's of the acceptor.
    fn judge(&self) -> [Result<Agreement, Refusal>; 2] {
        let of = |own, theirs, at: usize| {
            let (banned, enabled) = (&self.banned, self.enabled.as_slice());
            let (recorded, live) = (self.recorded[at].as_ref(), self.live[at]);
            judge(&Facts { own, banned, enabled, recorded, live }, theirs)
        };
        [of(&self.acceptor, &self.opener, 0), of(&self.opener, &self.acceptor, 1)]
    }
}

fn agreed(node: NodeNumber) -> Result<Agreement, Refusal> {
    Ok(Agreement { version: 2, node: Some(node) })
}

/// What the acceptor and the opener say after `change`, and words of the acceptor's refusal, or else of the
/// opener's.
fn check(
    change: impl FnOnce(&mut Two),
    acceptor: Result<Agreement, Refusal>,
    opener: Result<Agreement, Refusal>,
    words: &str,
) {
    let mut two = Two::new();
    change(&mut two);
    let judged = two.judge();
    assert_eq!(judged, [acceptor, opener]);
    let [acceptor, opener] = judged;
    let text = acceptor.err().or_else(|| opener.err()).map_or(String::new(), |refusal| refusal.to_string());
    assert!(text.contains(words), "{text}");
}

#[test]
fn members_agree_on_the_highest_common_version() {
    check(|_| {}, agreed(1), agreed(2), "");
    check(
        |two| two.opener.version_max = 1,
        Ok(Agreement { version: 1, node: Some(1) }),
        Ok(Agreement { version: 1, node: Some(2) }),
        "",
    );
}

#[test]
fn a_stranger_without_a_cluster_may_ask() {
    check(
        |two| {
            (two.opener.cluster_id, two.opener.epoch, two.opener.node) = (None, None, 0);
            two.recorded = [None, None];
        },
        Ok(Agreement { version: 2, node: None }),
        Ok(Agreement { version: 2, node: None }),
        "",
    );
    // Its join was committed, and the answer was lost.
    check(|two| two.opener.node = 0, agreed(1), agreed(2), "");
}

#[test]
fn a_node_that_reaches_itself_is_told() {
    check(
        |two| two.opener = Hello { expected: None, ..two.acceptor.clone() },
        Err(Refusal::Itself),
        Err(Refusal::Itself),
        "an address of another node leads here",
    );
}

#[test]
fn a_copy_of_a_directory_does_not_reach_its_original() {
    let refusal = || Err(Refusal::OwnHostId { host_id: B });
    check(
        |two| two.opener = Hello { expected: None, boot: 77, ..two.acceptor.clone() },
        refusal(),
        refusal(),
        "node bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb runs here already",
    );
}

#[test]
fn clusters_of_two_names_do_not_talk() {
    let refusal = |own: &str, theirs: &str| {
        Err(Refusal::ClusterName { own: own.to_owned(), theirs: theirs.to_owned() })
    };
    check(
        |two| two.opener.cluster_name = "Other".to_owned(),
        refusal("Test Cluster", "Other"),
        refusal("Other", "Test Cluster"),
        "(cluster_name)",
    );
}

#[test]
fn two_clusters_of_one_name_do_not_talk() {
    let refusal = |own, theirs| Err(Refusal::ClusterId { own, theirs });
    check(
        |two| two.opener.cluster_id = Some([9; 16]),
        refusal(CLUSTER, [9; 16]),
        refusal([9; 16], CLUSTER),
        "two clusters of the same name, 01010101-",
    );
}

#[test]
fn two_partitioners_do_not_talk() {
    let refusal = |own: &str, theirs: &str| {
        Err(Refusal::Partitioner { own: own.to_owned(), theirs: theirs.to_owned() })
    };
    check(
        |two| two.opener.partitioner = "RandomPartitioner".to_owned(),
        refusal("Murmur3Partitioner", "RandomPartitioner"),
        refusal("RandomPartitioner", "Murmur3Partitioner"),
        "the partitioner is Murmur3Partitioner here",
    );
}

#[test]
fn a_removed_node_is_banned_whoever_connects() {
    check(
        |two| two.banned = [A].into(),
        Err(Refusal::Banned { host_id: A }),
        agreed(2),
        "was removed from the cluster",
    );
    check(
        |two| two.banned = [B].into(),
        agreed(1),
        Err(Refusal::Banned { host_id: B }),
        "was removed from the cluster",
    );
}

#[test]
fn another_node_at_an_address_is_found_out_by_both() {
    let meant = [0xcc; 16];
    check(
        |two| two.opener.expected = Some(meant),
        Err(Refusal::AnotherMeant { meant, own: B }),
        Err(Refusal::AnotherAnswers { meant, found: B }),
        "node cccccccc-cccc-cccc-cccc-cccccccccccc was meant",
    );
}

#[test]
fn a_node_without_an_enabled_feature_is_refused() {
    let missing = vec!["tablets".to_owned()];
    check(
        |two| two.opener.features.clear(),
        Err(Refusal::MissingFeatures { missing: missing.clone() }),
        agreed(2),
        "the cluster uses tablets",
    );
    check(
        |two| two.acceptor.features.clear(),
        agreed(1),
        Err(Refusal::MissingFeatures { missing }),
        "upgrade it",
    );
}

#[test]
fn epochs_that_differ_are_refused_by_both_sides() {
    check(
        |two| two.opener.epoch = Some(Epoch { number: 2, id: [3; 16] }),
        Err(Refusal::OlderEpoch { own: 3, theirs: 2 }),
        Err(Refusal::NewerEpoch { own: 2, theirs: 3 }),
        "start it with --rejoin",
    );
    check(
        |two| two.acceptor.epoch = Some(Epoch { number: 2, id: [3; 16] }),
        Err(Refusal::NewerEpoch { own: 2, theirs: 3 }),
        Err(Refusal::OlderEpoch { own: 3, theirs: 2 }),
        "this node is of epoch 2",
    );
    check(
        |two| two.opener.epoch = Some(Epoch { number: 3, id: [4; 16] }),
        Err(Refusal::ForkedEpoch { number: 3 }),
        Err(Refusal::ForkedEpoch { number: 3 }),
        "recovered to epoch 3 twice",
    );
}

#[test]
fn releases_that_are_too_far_apart_do_not_talk() {
    let refusal = |own, theirs| Err(Refusal::NoCommonVersion { own, theirs });
    check(
        |two| (two.opener.version_min, two.opener.version_max) = (3, 4),
        refusal((1, 2), (3, 4)),
        refusal((3, 4), (1, 2)),
        "versions are 1 to 2 here and 3 to 4 there",
    );
}

#[test]
fn a_directory_from_an_older_copy_is_refused() {
    check(
        |two| two.opener.generation = 4,
        Err(Refusal::OlderDirectory { host_id: A, seen: 5, found: 4 }),
        agreed(2),
        "(start 4, seen 5): replace it",
    );
    check(
        |two| two.live[1] = Some(LiveBoot { generation: 6, boot: 70 }),
        agreed(1),
        Err(Refusal::OlderDirectory { host_id: B, seen: 6, found: 5 }),
        "older than what the cluster has seen",
    );
}

#[test]
fn the_later_of_two_live_processes_is_refused_and_the_next_start_is_not() {
    check(
        |two| two.live[0] = Some(LiveBoot { generation: 5, boot: 70 }),
        Err(Refusal::SecondBoot { host_id: A, generation: 5 }),
        agreed(2),
        "is alive already",
    );
    check(
        |two| two.live[1] = Some(LiveBoot { generation: 5, boot: 70 }),
        agreed(1),
        Err(Refusal::SecondBoot { host_id: B, generation: 5 }),
        "in another process of start 5",
    );
    check(|two| two.live[0] = Some(LiveBoot { generation: 5, boot: 1 }), agreed(1), agreed(2), "");
    check(
        |two| {
            two.live[0] = Some(LiveBoot { generation: 5, boot: 70 });
            two.opener.generation = 6;
        },
        agreed(1),
        agreed(2),
        "",
    );
}

#[test]
fn a_node_stays_in_its_data_center_and_rack() {
    let moved = |host_id, place: [&str; 2]| {
        let pair = |[data_center, rack]: [&str; 2]| (data_center.to_owned(), rack.to_owned());
        Err(Refusal::Moved { host_id, recorded: pair(["dc1", "rack1"]), found: pair(place) })
    };
    check(
        |two| two.opener.rack = "rack2".to_owned(),
        moved(A, ["dc1", "rack2"]),
        agreed(2),
        "neither may change",
    );
    check(
        |two| two.acceptor.data_center = "dc2".to_owned(),
        agreed(1),
        moved(B, ["dc2", "rack1"]),
        "was recorded in 'dc1', 'rack1'",
    );
}

#[test]
fn a_number_that_is_not_the_nodes_is_refused() {
    check(
        |two| two.opener.node = 7,
        Err(Refusal::Number { host_id: A, recorded: 1, claimed: 7 }),
        agreed(2),
        "calls itself number 7 and has number 1",
    );
    check(
        |two| two.acceptor.node = 7,
        agreed(1),
        Err(Refusal::Number { host_id: B, recorded: 2, claimed: 7 }),
        "",
    );
}
