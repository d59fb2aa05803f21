//! Messages between nodes: what is written is read back, damage is told, and lies are refused.
#![allow(clippy::disallowed_types)] // prop_oneof! makes an Arc

use model::clustering::{self, Position};
use model::deletion::DeletionTime;
use model::mutation::{MutationBuilder, MutationView};
use model::partition_key::DecoratedKey;
use model::tablet::Replica;
use model::{TableId, Token};
use proptest::prelude::*;
use wire::Compressor;
use wire::consistency::Consistency;
use wire::node::NodeError;
use wire::node::answer::{self, Answer, AnswerBuilder, End};
use wire::node::batch::{self, BatchLog};
use wire::node::count::{self, Count, Counted, Failure};
use wire::node::frame::{
    COMPRESSED_BODY_BYTES_MIN, Frame, FrameFlags, FrameHeader, HEADER_BYTES, Verb, WorkGroup, append_frame,
};
use wire::node::hello::{self, Class, Epoch, HELLO_BYTES_MAX, Heard, Hello};
use wire::node::mutate::{self, Entry, Mutate};
use wire::node::read::{Bound, Partitions, Read, SliceList};

const BODY_BYTES_MAX: usize = 1 << 16;

fn header() -> impl Strategy<Value = FrameHeader> {
    let flags = [FrameFlags::REPLY, FrameFlags::ERROR, FrameFlags::ONE_WAY, FrameFlags::MORE_FOLLOWS];
    (
        prop::sample::select(Verb::ALL),
        prop::sample::subsequence(flags.to_vec(), 0..flags.len()),
        prop::sample::select(WorkGroup::ALL),
        any::<(u8, u32, u32)>(),
    )
        .prop_map(|(verb, flags, group, (version, stream, left_ms))| FrameHeader {
            verb,
            flags: flags.into_iter().fold(FrameFlags::NONE, FrameFlags::with),
            group,
            version,
            stream,
            left_ms,
        })
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        (any::<u8>(), 0..4 * COMPRESSED_BODY_BYTES_MIN).prop_map(|(byte, length)| vec![byte; length]),
    ]
}

/// A mutation that deletes the partition of a key.
fn deletion(table: u8, key: &[u8], timestamp: i64) -> Vec<u8> {
    let key = DecoratedKey::new(key.to_vec());
    let mut bytes = Vec::new();
    let deletion = DeletionTime { timestamp, local_time: 7 };
    MutationBuilder::new(&mut bytes, TableId([table; 16]), key.token, &key.key, deletion, |_| {}).finish();
    bytes
}

fn encoded(message: &Mutate<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    mutate::encode(message, &mut out);
    out
}

fn hello() -> Hello {
    Hello {
        version_min: 1,
        version_max: 3,
        cluster_id: Some([1; 16]),
        cluster_name: "Test Cluster".to_owned(),
        partitioner: "org.apache.cassandra.dht.Murmur3Partitioner".to_owned(),
        host_id: [2; 16],
        expected: None,
        node: 4,
        generation: 5,
        boot: 6,
        shard: 1,
        shards: 2,
        features: vec!["tablets".to_owned()],
        epoch: Some(Epoch { number: 8, id: [9; 16] }),
        to_shard: Some(3),
        class: Class::Statement,
        data_center: "dc1".to_owned(),
        rack: "rack1".to_owned(),
        address: "10.0.0.1:7000".to_owned(),
        heard: vec![Heard { host_id: [7; 16], address: "10.0.0.2:7000".to_owned(), generation: 6 }],
    }
}

fn decoded(hello: &Hello) -> Result<Hello, NodeError> {
    let mut out = Vec::new();
    hello.encode(&mut out);
    Hello::decode(&out)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn frames_come_back_one_after_the_other(
        frames in prop::collection::vec((header(), body(), any::<bool>()), 0..5),
    ) {
        let mut bytes = Vec::new();
        let mut compressor = Compressor::default();
        for (header, body, compressed) in &frames {
            let compressor = compressed.then_some(&mut compressor);
            append_frame(&mut bytes, *header, compressor, |out| out.extend_from_slice(body));
        }
        let mut rest = bytes.as_slice();
        for (header, body, compressed) in &frames {
            let (frame, behind) = Frame::cut(rest, BODY_BYTES_MAX).unwrap().expect("a whole frame");
            let mut expected = *header;
            if *compressed && body.len() >= COMPRESSED_BODY_BYTES_MIN {
                expected.flags = expected.flags.with(FrameFlags::COMPRESSED);
            }
            prop_assert_eq!(frame.header, expected);
            let mut scratch = vec![1, 2, 3];
            prop_assert_eq!(frame.body(BODY_BYTES_MAX, &mut scratch).unwrap(), body.as_slice());
            let frame_bytes = rest.len() - behind.len();
            for end in 0..frame_bytes.min(HEADER_BYTES + 4) {
                prop_assert_eq!(Frame::cut(&rest[..end], BODY_BYTES_MAX), Ok(None));
            }
            rest = behind;
        }
        prop_assert!(rest.is_empty());
    }

    #[test]
    fn one_damaged_bit_of_a_frame_is_told(header in header(), body in body(), at in any::<prop::sample::Index>()) {
        let mut bytes = Vec::new();
        append_frame(&mut bytes, header, None, |out| out.extend_from_slice(&body));
        let bit = at.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        match Frame::cut(&bytes, BODY_BYTES_MAX) {
            // The length has grown: the rest is waited for.
            Ok(None) => prop_assert!(bit < 32),
            Ok(Some(frame)) => prop_assert!(false, "taken as {:?}", frame),
            Err(NodeError::TooLong { .. }) => prop_assert!(bit < 32),
            Err(error) => prop_assert!(matches!(error, NodeError::Checksum { .. }), "{error}"),
        }
    }

    #[test]
    fn writes_come_back(
        born_us: i64,
        parts in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u8>(), any::<[u8; 3]>()), 1..4),
        forward in prop::collection::vec(any::<(u16, u16)>(), 0..3),
    ) {
        let bytes: Vec<_> = parts.iter().map(|(_, _, table, key)| deletion(*table, key, born_us)).collect();
        let entries = parts.iter().zip(&bytes).map(|((version, since, ..), bytes)| Entry {
            version: *version,
            since: *since,
            mutation: MutationView::parse(bytes).unwrap(),
        });
        let forward: Vec<_> = forward.into_iter().map(|(node, shard)| Replica { node, shard }).collect();
        let message = encoded(&Mutate { born_us, entries: entries.collect(), forward: forward.clone() });
        let read = mutate::decode(&message).unwrap();
        prop_assert_eq!((read.born_us, &read.forward), (born_us, &forward));
        prop_assert_eq!(read.entries.len(), parts.len());
        for (entry, ((version, since, ..), bytes)) in read.entries.iter().zip(parts.iter().zip(&bytes)) {
            prop_assert_eq!((entry.version, entry.since), (*version, *since));
            prop_assert_eq!(entry.mutation.as_bytes(), bytes.as_slice());
        }
        for end in 0..message.len() {
            prop_assert!(mutate::decode(&message[..end]).is_err(), "cut at {}", end);
        }
    }

    #[test]
    fn counter_updates_and_their_ends_come_back(
        born_us: i64,
        (version, since) in any::<(u64, u64)>(),
        level in prop::sample::select(Consistency::ALL.to_vec()),
        (received, required) in any::<(u32, u32)>(),
        failures in prop::collection::vec(any::<(u16, u16, u8)>(), 0..3),
        reason in "[a-z ü]{0,12}",
    ) {
        let bytes = deletion(1, b"key", born_us);
        let entry = Entry { version, since, mutation: MutationView::parse(&bytes).unwrap() };
        let mut message = Vec::new();
        count::encode(&Count { born_us, level, entry }, &mut message);
        let read = count::decode(&message).unwrap();
        prop_assert_eq!((read.born_us, read.level), (born_us, level));
        prop_assert_eq!((read.entry.version, read.entry.since), (version, since));
        prop_assert_eq!(read.entry.mutation.as_bytes(), bytes.as_slice());
        let failures =
            failures.into_iter().map(|(node, shard, reason)| Failure { node, shard, reason }).collect();
        let ends = [
            Counted::Done,
            Counted::Unavailable { required, alive: received },
            Counted::TimedOut { received, required },
            Counted::Failed { received, required, failures, reason },
        ];
        for end in ends {
            let mut answer = Vec::new();
            end.encode(&mut answer);
            prop_assert_eq!(Counted::decode(&answer), Ok(end));
            for cut in 0..answer.len() {
                prop_assert!(Counted::decode(&answer[..cut]).is_err(), "cut at {}", cut);
            }
        }
        for cut in 0..message.len() {
            prop_assert!(count::decode(&message[..cut]).is_err(), "cut at {}", cut);
        }
    }

    #[test]
    fn reads_come_back(
        table: [u8; 16],
        numbers: (u64, u64, u32, u32, u8),
        options: (bool, bool, bool),
        limits in prop::collection::vec(prop::option::of(0..u64::MAX), 2),
        keys in prop::collection::vec(prop::option::of(prop::collection::vec(any::<u8>(), 1..5)), 2),
        between: bool,
        prefixes in prop::collection::vec(prop::option::of(any::<[u8; 2]>()), 0..4),
    ) {
        let prefixes: Vec<Vec<u8>> = prefixes
            .iter()
            .map(|value| {
                let mut prefix = Vec::new();
                clustering::append_component(&mut prefix, value.as_ref().map(|value| &value[..]));
                prefix
            })
            .collect();
        let slices = prefixes.iter().map(|prefix| (Position::before(prefix), Position::END));
        let mut slice_bytes = vec![1, 2, 3];
        let bound = |key: &'_ Option<Vec<u8>>, token| {
            key.as_ref().map_or(token, |key| DecoratedKey::new(key.clone()).token)
        };
        let of = |at: usize, token| Bound {
            token: bound(&keys[at], token),
            key: keys[at].as_deref(),
            inclusive: at == 0,
        };
        let partitions = if between {
            Partitions::Between(of(0, Token::MINIMUM), of(1, Token::MAXIMUM))
        } else {
            Partitions::Key(keys[0].as_deref().unwrap_or(b"k"))
        };
        let read = Read {
            table: TableId(table),
            version: numbers.0,
            since: numbers.1,
            now: numbers.2,
            gc_before: numbers.3,
            digest: numbers.4,
            reversed: options.0,
            bypass_cache: options.1,
            counted: options.2,
            rows: limits[0],
            rows_per_partition: limits[1],
            partitions,
            slices: SliceList::new(slices.clone(), &mut slice_bytes),
        };
        let mut message = Vec::new();
        read.encode(&mut message);
        prop_assert_eq!(Read::decode(&message), Ok(read));
        prop_assert_eq!(read.slices.iter().collect::<Vec<_>>(), slices.collect::<Vec<_>>());
        for end in 0..message.len() {
            prop_assert!(Read::decode(&message[..end]).is_err(), "cut at {}", end);
        }
    }
}

#[test]
fn a_long_body_is_refused_before_it_has_come() {
    let mut bytes = Vec::new();
    let header = FrameHeader {
        verb: Verb::Mutate,
        flags: FrameFlags::NONE,
        group: WorkGroup::Statement,
        version: 1,
        stream: 2,
        left_ms: 3,
    };
    append_frame(&mut bytes, header, Some(&mut Compressor::default()), |out| out.resize(BODY_BYTES_MAX, 7));
    let (frame, _) = Frame::cut(&bytes, BODY_BYTES_MAX).unwrap().unwrap();
    let error = frame.body(BODY_BYTES_MAX - HEADER_BYTES - 1, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, NodeError::Invalid { field: "a compressed body", .. }), "{error}");
    bytes[..4].copy_from_slice(&(BODY_BYTES_MAX as u32 + 1).to_le_bytes());
    let too_long = NodeError::TooLong { length: BODY_BYTES_MAX as u64 + 1, limit: BODY_BYTES_MAX };
    assert_eq!(Frame::cut(&bytes[..HEADER_BYTES], BODY_BYTES_MAX), Err(too_long));
}

#[test]
fn a_mutation_of_another_token_than_its_keys_is_refused() {
    let mut bytes = deletion(1, b"key", 5);
    let good = encoded(&Mutate {
        born_us: 1,
        entries: vec![Entry { version: 1, since: 1, mutation: MutationView::parse(&bytes).unwrap() }],
        forward: Vec::new(),
    });
    assert!(mutate::decode(&good).is_ok());
    // The token follows the version's byte and the table's id.
    bytes[17] ^= 1;
    let bad = encoded(&Mutate {
        born_us: 1,
        entries: vec![Entry { version: 1, since: 1, mutation: MutationView::parse(&bytes).unwrap() }],
        forward: Vec::new(),
    });
    let error = mutate::decode(&bad).unwrap_err();
    assert!(error.to_string().starts_with("a mutation: its token is "), "{error}");
    let nothing = encoded(&Mutate { born_us: 1, entries: Vec::new(), forward: Vec::new() });
    assert!(matches!(mutate::decode(&nothing), Err(NodeError::Unknown { value: 0, .. })));
}

#[test]
fn first_messages_come_back_and_lies_are_told() {
    let mut fields = hello();
    assert_eq!(decoded(&fields), Ok(fields.clone()));
    (fields.cluster_id, fields.epoch, fields.expected) = (None, None, Some([7; 16]));
    assert_eq!(decoded(&fields), Ok(fields));

    type Lie = (fn(&mut Hello), &'static str);
    let lies: [Lie; 3] = [
        (|hello| hello.version_min = 4, "its lowest version, 4, is above its highest, 3"),
        (|hello| hello.shard = 2, "it is shard 2 of 2"),
        (|hello| hello.cluster_name = "n".repeat(HELLO_BYTES_MAX), "longer than the limit of 4096"),
    ];
    for (lie, told) in lies {
        let mut fields = hello();
        lie(&mut fields);
        let error = decoded(&fields).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
    let mut of_a_later_version = Vec::new();
    hello().encode(&mut of_a_later_version);
    // CBOR's array of 20 fields becomes one of 21.
    assert_eq!(of_a_later_version[4], 0x94);
    of_a_later_version[4] = 0x95;
    of_a_later_version.push(1);
    assert_eq!(Hello::decode(&of_a_later_version), Ok(hello()));
    let error = Hello::decode(b"GET / HTTP/1.1\r\n\r\n").unwrap_err();
    assert_eq!(error.to_string(), "a first message: it is no ceto node's");
}

#[test]
fn a_refusal_says_why_and_stays_on_one_line() {
    let mut message = Vec::new();
    hello::encode_refusal("this node is of cluster 'a'\nnot 'b'", &mut message);
    assert_eq!(hello::decode_refusal(&message).unwrap(), "this node is of cluster 'a' not 'b'");
    assert!(hello::decode_refusal(b"ceto\xff").is_err());
    assert!(hello::decode_refusal(b"HTTP/1.1 400").is_err());
}

#[test]
fn nodes_speak_the_highest_version_that_both_know() {
    let of = |version_min, version_max| Hello { version_min, version_max, ..hello() };
    for (one, other, common) in [((1, 3), (2, 5), Some(3)), ((2, 2), (1, 9), Some(2)), ((1, 2), (3, 4), None)]
    {
        let (one, other) = (of(one.0, one.1), of(other.0, other.1));
        assert_eq!([one.common_version(&other), other.common_version(&one)], [common; 2]);
    }
}

/// Partitions as they follow each other in an answer.
fn in_token_order(mut keys: Vec<Vec<u8>>) -> Vec<DecoratedKey> {
    keys.sort();
    keys.dedup();
    let mut keys: Vec<_> = keys.into_iter().map(DecoratedKey::new).collect();
    keys.sort_by(|a, b| (a.token, &a.key).cmp(&(b.token, &b.key)));
    keys
}

proptest! {
    #[test]
    fn answers_come_back(
        keys in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..4), 0..5),
        cut in prop::option::of(any::<[u8; 2]>()),
        end in 0..3u8,
        digest: Option<u128>,
    ) {
        let keys = in_token_order(keys);
        let mut prefix = Vec::new();
        clustering::append_component(&mut prefix, cut.as_ref().map(|value| &value[..]));
        let until = cut.map(|_| Position::before(&prefix));
        let end = keys.last().filter(|_| end > 0).map(|last| End {
            token: last.token,
            key: &last.key,
            position: if end == 1 { until } else { None },
        });
        let mutations: Vec<Vec<u8>> = keys.iter().map(|key| deletion(7, &key.key, 5)).collect();
        let mut message = Vec::new();
        let mut builder = AnswerBuilder::new(&mut message);
        for mutation in &mutations {
            builder.partition(until, |out| out.extend_from_slice(mutation));
        }
        builder.finish(end, digest);
        let answer = Answer::decode(&message).expect("an answer");
        prop_assert_eq!((answer.end, answer.digest), (end, digest));
        let decoded: Vec<_> = answer.partitions.iter().map(|p| (p.until, p.mutation.as_bytes())).collect();
        let expected: Vec<_> = mutations.iter().map(|mutation| (until, mutation.as_slice())).collect();
        prop_assert_eq!(decoded, expected);
        for at in 0..message.len() {
            prop_assert!(Answer::decode(&message[..at]).is_err(), "cut at {}", at);
        }
    }
}

#[test]
fn a_batch_comes_back_and_what_is_not_whole_is_refused() {
    let mutations: Vec<Vec<u8>> = (1..4).map(|key| deletion(key, &[key], i64::from(key))).collect();
    let views = mutations.iter().map(|bytes| MutationView::parse(bytes).expect("a mutation"));
    let batch = BatchLog { id: [7; 16], born_us: -5, agreed: 9, after_ms: 4000, mutations: views.collect() };
    let mut message = Vec::new();
    batch::encode(&batch, &mut message);
    let decoded = batch::decode(&message).expect("a batch");
    assert_eq!((decoded.id, decoded.born_us, decoded.agreed, decoded.after_ms), ([7; 16], -5, 9, 4000));
    let bytes: Vec<_> = decoded.mutations.iter().map(|mutation| mutation.as_bytes()).collect();
    assert_eq!(bytes, mutations.iter().map(Vec::as_slice).collect::<Vec<_>>());
    for at in 0..message.len() {
        assert!(batch::decode(&message[..at]).is_err(), "cut at {at}");
    }
    message.push(0);
    assert_eq!(batch::decode(&message).unwrap_err(), NodeError::Trailing { bytes: 1 });
    let mut empty = Vec::new();
    batch::encode(&BatchLog { mutations: Vec::new(), ..batch }, &mut empty);
    assert!(batch::decode(&empty).unwrap_err().to_string().contains("number of mutations"));
    let mut done = Vec::new();
    batch::encode_done([9; 16], &mut done);
    assert_eq!(batch::decode_done(&done), Ok([9; 16]));
    assert!(batch::decode_done(&done[1..]).is_err());
}

#[test]
fn an_answer_out_of_order_is_refused() {
    let keys = in_token_order(vec![b"a".to_vec(), b"b".to_vec()]);
    let refused = |order: &[usize], end: Option<usize>, reason: &str| {
        let mut message = Vec::new();
        let mut builder = AnswerBuilder::new(&mut message);
        for at in order {
            builder.partition(None, |out| out.extend_from_slice(&deletion(7, &keys[*at].key, 5)));
        }
        builder.finish(end.map(|at| End { token: keys[at].token, key: &keys[at].key, position: None }), None);
        let error = Answer::decode(&message).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    };
    refused(&[1, 0], None, "behind a later one");
    refused(&[0, 0], None, "behind a later one");
    refused(&[0, 1], Some(0), "before a partition");
    let mut message = Vec::new();
    let mut builder = AnswerBuilder::new(&mut message);
    let lie = End { token: Token(1), key: b"a", position: None };
    builder.partition(None, |out| out.extend_from_slice(&deletion(7, b"a", 5)));
    builder.finish(Some(lie), None);
    assert!(Answer::decode(&message).unwrap_err().to_string().contains("its key's is"));
    let mut digest = Vec::new();
    answer::encode_digest(5, &mut digest);
    assert_eq!(answer::decode_digest(&digest), Ok(5));
    assert!(answer::decode_digest(&digest[1..]).is_err());
}
