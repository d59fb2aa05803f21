//! Messages of conditional writes over several replicas: what is written is read back, bytes of ballots sort
//! as ballots do, and lies are refused.
#![allow(clippy::disallowed_types)] // prop_oneof! makes an Arc

use model::deletion::DeletionTime;
use model::mutation::{MutationBuilder, MutationView};
use model::partition_key::DecoratedKey;
use model::{TableId, Token};
use proptest::prelude::*;
use wire::node::NodeError;
use wire::node::paxos::{
    BALLOT_BYTES, Ballot, Prepare, Prepared, Promise, Proposal, Propose, Refusal, Why, decode_accepted,
    encode_accepted,
};
use wire::node::read::{Partitions, Read, SliceList};

const TABLE: TableId = TableId([3; 16]);

fn ballot() -> impl Strategy<Value = Ballot> {
    (0..i64::MAX, any::<(u16, u16, u32, u8)>()).prop_map(|(micros, (node, shard, sequence, scope))| Ballot {
        micros,
        node,
        shard,
        sequence,
        scope,
    })
}

fn refusal() -> impl Strategy<Value = Refusal> {
    let why = prop::sample::select(vec![Why::NotLater, Why::Ahead, Why::OtherScope]);
    (why, ballot()).prop_map(|(why, highest)| Refusal { why, highest })
}

/// A mutation that deletes the partition of a key, for the token of another key if given.
fn deletion(key: &[u8], token: Option<Token>) -> Vec<u8> {
    let key = DecoratedKey::new(key.to_vec());
    let mut bytes = Vec::new();
    let deletion = DeletionTime { timestamp: 5, local_time: 7 };
    let token = token.unwrap_or(key.token);
    MutationBuilder::new(&mut bytes, TABLE, token, &key.key, deletion, |_| {}).finish();
    bytes
}

/// A read of one partition of a table.
fn read(table: TableId, key: &[u8]) -> Vec<u8> {
    let (mut slices, mut out) = (Vec::new(), Vec::new());
    let read = Read {
        table,
        version: 1,
        since: 2,
        now: 3,
        gc_before: 4,
        digest: 0,
        reversed: false,
        bypass_cache: false,
        counted: false,
        rows: Some(1),
        rows_per_partition: None,
        partitions: Partitions::Key(key),
        slices: SliceList::new([], &mut slices),
    };
    read.encode(&mut out);
    out
}

fn prepare(key: &[u8], ballot: Ballot, reads: &[Vec<u8>]) -> Vec<u8> {
    let reads = reads.iter().map(Vec::as_slice).collect();
    let prepare = Prepare { table: TABLE, version: 8, since: 9, key, ballot, writes: true, reads };
    let mut out = Vec::new();
    prepare.encode(&mut out);
    out
}

proptest! {
    #[test]
    fn bytes_of_ballots_sort_as_ballots_do(a in ballot(), b in ballot()) {
        prop_assert_eq!(a.to_bytes().cmp(&b.to_bytes()), a.cmp(&b));
        prop_assert_eq!(Ballot::from_bytes(a.to_bytes()), Ok(a));
    }

    #[test]
    fn prepares_come_back(key in prop::collection::vec(any::<u8>(), 0..20), ballot in ballot(), count in 0..4usize) {
        let reads = vec![read(TABLE, &key); count];
        let bytes = prepare(&key, ballot, &reads);
        let (prepare, decoded) = Prepare::decode(&bytes).expect("a message");
        prop_assert_eq!((prepare.table, prepare.version, prepare.since), (TABLE, 8, 9));
        prop_assert_eq!((prepare.key, prepare.ballot, prepare.writes), (&key[..], ballot, true));
        prop_assert_eq!(&prepare.reads, &reads);
        prop_assert_eq!(decoded.len(), count);
        prop_assert!(Prepare::decode(&bytes[..bytes.len() - 1]).is_err());
        prop_assert!(Prepare::decode(&[&bytes[..], &[0]].concat()).is_err());
    }

    #[test]
    fn promises_and_refusals_come_back(
        refusal in refusal(),
        written in prop::option::of(ballot()),
        accepted in prop::option::of(ballot()),
        committed in prop::option::of(ballot()),
        answers in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..3),
    ) {
        let bytes = deletion(b"k", None);
        let mutation = MutationView::parse(&bytes).expect("a mutation");
        let proposal = |ballot: Option<Ballot>| ballot.map(|ballot| Proposal { ballot, mutation });
        let promise = Promise {
            written,
            accepted: proposal(accepted),
            committed: proposal(committed),
            answers: answers.iter().map(Vec::as_slice).collect(),
        };
        let mut out = Vec::new();
        Prepared::Promised(Box::new(promise)).encode(&mut out);
        let Prepared::Promised(found) = Prepared::decode(&out).expect("a message") else { panic!("a promise") };
        prop_assert_eq!((found.written, found.answers), (written, answers.iter().map(Vec::as_slice).collect()));
        prop_assert_eq!(found.accepted.map(|held| held.ballot), accepted);
        prop_assert_eq!(found.committed.map(|held| held.ballot), committed);
        let mut out = Vec::new();
        Prepared::Refused(refusal).encode(&mut out);
        let Prepared::Refused(found) = Prepared::decode(&out).expect("a message") else { panic!("a refusal") };
        prop_assert_eq!(found, refusal);
        for answer in [Ok(()), Err(refusal)] {
            let mut out = Vec::new();
            encode_accepted(answer, &mut out);
            prop_assert_eq!(decode_accepted(&out), Ok(answer));
        }
    }

    #[test]
    fn proposals_come_back(ballot in ballot(), durably in any::<bool>()) {
        let bytes = deletion(b"key", None);
        let mutation = MutationView::parse(&bytes).expect("a mutation");
        let propose = Propose { version: 4, since: 5, proposal: Proposal { ballot, mutation } };
        let (mut accept, mut learn) = (Vec::new(), Vec::new());
        propose.encode_accept(&mut accept);
        propose.encode_learn(durably, &mut learn);
        let found = Propose::decode_accept(&accept).expect("a message");
        prop_assert_eq!((found.version, found.since, found.proposal.ballot), (4, 5, ballot));
        prop_assert_eq!(found.proposal.mutation.as_bytes(), &bytes[..]);
        let (found, was_durably) = Propose::decode_learn(&learn).expect("a message");
        prop_assert_eq!((found.proposal.ballot, was_durably), (ballot, durably));
    }
}

#[test]
fn what_is_of_another_partition_or_time_is_refused() {
    let some = Ballot { micros: 1, node: 1, shard: 0, sequence: 0, scope: 0 };
    for reads in [[read(TableId([4; 16]), b"k")], [read(TABLE, b"other")]] {
        let found = Prepare::decode(&prepare(b"k", some, &reads)).map(|_| ());
        let Err(NodeError::Invalid { field, .. }) = found else { panic!("{found:?}") };
        assert_eq!(field, "a read");
    }
    let bytes = deletion(b"k", Some(Token(1)));
    let mutation = MutationView::parse(&bytes).expect("a mutation");
    let mut out = Vec::new();
    Propose { version: 1, since: 1, proposal: Proposal { ballot: some, mutation } }.encode_accept(&mut out);
    assert!(matches!(Propose::decode_accept(&out), Err(NodeError::Invalid { field: "a mutation", .. })));
    assert!(Ballot::from_bytes([0xff; BALLOT_BYTES]).is_err(), "a time that no clock shows");
}
