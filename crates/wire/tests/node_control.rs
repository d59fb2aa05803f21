//! Messages of the control connection and faults: what is written is read back, and limits are kept.

use wire::node::NodeError;
use wire::node::control::{
    Addresses, Command, CommandOutcome, Drain, HEARD_MAX, Index, Join, Joined, NodeState, Ping, Pong,
    SHARDS_MAX, StateHash, Status, StatusAnswer,
};
use wire::node::fault::{FAULT_TEXT_BYTES_MAX, Fault, FaultKind};
use wire::node::hello::Heard;

/// Writes a message, reads it back, and refuses each beginning of it and what follows it.
macro_rules! check {
    ($type:ty, $message:expr) => {{
        let message: $type = $message;
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        assert_eq!(<$type>::decode(&bytes), Ok(message));
        for end in 0..bytes.len() {
            assert!(<$type>::decode(&bytes[..end]).is_err(), "{end} bytes of {}", stringify!($type));
        }
        bytes.push(0);
        assert_eq!(<$type>::decode(&bytes), Err(NodeError::Trailing { bytes: 1 }));
    }};
}

fn heard(count: usize) -> Vec<Heard> {
    let one = Heard { host_id: [7; 16], address: "10.0.0.2:7000".to_owned(), generation: 6 };
    vec![one; count]
}

fn pong() -> Pong {
    Pong {
        generation: 9,
        state: NodeState::Normal,
        applied: 70,
        hash: Some(StateHash { index: 64, hash: u64::MAX }),
        stalled: Pong::bitmap(20, |shard| shard == 3 || shard == 17),
        clock_us: 1_767_225_600_000_000,
        load_bytes: 5,
        free_bytes: 6,
        serves_clients: true,
        heard: heard(2),
    }
}

fn join() -> Join {
    Join {
        data_center: "dc1".to_owned(),
        rack: "rack1".to_owned(),
        addresses: Addresses { storage: "10.0.0.1:7000".to_owned(), native: "10.0.0.1:9042".to_owned() },
        version: "0.3.0".to_owned(),
        shards: 4,
        capacity_bytes: 1 << 40,
        replaces: Some([3; 16]),
        generation: 1,
        features: vec!["tablets".to_owned()],
    }
}

fn fault(text: &str) -> Fault {
    Fault { leader: Some(2), ..Fault::new(FaultKind::NotLeader, text) }
}

#[test]
fn messages_come_back_and_pieces_of_them_do_not() {
    check!(Ping, Ping { generation: 1, heard: heard(1) });
    check!(Pong, pong());
    check!(Pong, Pong { hash: None, stalled: Vec::new(), heard: Vec::new(), ..pong() });
    check!(Join, join());
    check!(Join, Join { replaces: None, ..join() });
    check!(Joined, Joined { cluster_id: [1; 16], node: 3, index: 12, snapshot: vec![7; 40] });
    check!(Command, Command { request: vec![1, 2, 3] });
    check!(CommandOutcome, CommandOutcome { index: 7, outcome: Vec::new() });
    check!(Drain, Drain { index: 8 });
    check!(Index, Index { index: u64::MAX });
    check!(Status, Status { seeds_hash: 5, wants_to_found: true });
    check!(
        StatusAnswer,
        StatusAnswer {
            cluster_id: Some([1; 16]),
            seeds_hash: 5,
            promises: false,
            leader: Some("10.0.0.3:7000".to_owned()),
            leader_id: None,
        }
    );
    check!(Fault, fault("ask node 2"));
}

#[test]
fn a_bitmap_names_the_stalled_shards_and_no_others() {
    let pong = pong();
    let stalled: Vec<usize> = (0..100).filter(|shard| pong.is_stalled(*shard)).collect();
    assert_eq!(stalled, [3, 17]);
    assert!(Pong::bitmap(20, |_| false).is_empty());
    assert_eq!(Pong::bitmap(usize::MAX, |_| true).len(), SHARDS_MAX / 8);
}

#[test]
fn what_is_too_much_is_refused() {
    let mut bytes = Vec::new();
    Ping { generation: 1, heard: heard(HEARD_MAX + 1) }.encode(&mut bytes);
    assert_eq!(Ping::decode(&bytes), Err(NodeError::TooLong { length: 65, limit: HEARD_MAX }));
    bytes.clear();
    Pong { stalled: vec![1; SHARDS_MAX / 8 + 1], ..pong() }.encode(&mut bytes);
    assert_eq!(Pong::decode(&bytes), Err(NodeError::TooLong { length: 129, limit: 128 }));
    for shards in [0, u16::MAX] {
        bytes.clear();
        Join { shards, ..join() }.encode(&mut bytes);
        assert!(matches!(Join::decode(&bytes), Err(NodeError::Unknown { .. })), "{shards} shards");
    }
    bytes.clear();
    Join { version: "v".repeat(64 << 10), ..join() }.encode(&mut bytes);
    assert!(matches!(Join::decode(&bytes), Err(NodeError::TooLong { .. })));
}

#[test]
fn a_fault_stays_on_one_line_and_within_its_length() {
    let mut bytes = Vec::new();
    fault("two\nlines").encode(&mut bytes);
    assert_eq!(Fault::decode(&bytes), Ok(fault("two lines")));
    bytes.clear();
    fault(&"ä".repeat(FAULT_TEXT_BYTES_MAX)).encode(&mut bytes);
    assert_eq!(Fault::decode(&bytes), Ok(fault(&"ä".repeat(FAULT_TEXT_BYTES_MAX / 2))));
}

#[test]
fn a_fault_that_was_certainly_not_done_is_definite() {
    for (kind, definite, retryable) in [
        (FaultKind::Overloaded, true, true),
        (FaultKind::NotServed, true, false),
        (FaultKind::Invalid, true, false),
        (FaultKind::NotLeader, true, true),
        (FaultKind::Forbidden, true, false),
        (FaultKind::Stale, true, true),
        (FaultKind::TimedOut, false, true),
        (FaultKind::Failed, false, false),
    ] {
        let fault = Fault::new(kind, "why");
        assert_eq!((fault.is_definite(), fault.retryable), (definite, retryable), "{kind:?}");
    }
}
