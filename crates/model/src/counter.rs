//! Counter contexts: each node's share of a counter, so that replicas can be merged in any order.
//!
//! ```text
//! context := headers:i16 header{headers} shard*      header := index:i16, of a global shard index - 2^15
//! shard   := id:[u8;16] clock:i64 count:i64          (big endian, by id)
//! delta   := count:i64                               not yet counted: on its way to the partition's leader
//! ```
//! As Cassandra 5's `CounterContext`. The leader of a partition writes its own global shard with a clock that
//! only grows and its sum so far. Of two global shards with one id the later clock wins, so merging is
//! commutative, associative and idempotent. Local and remote shards are those of Cassandra before 2.1: they
//! are read and merged by its rules (local ones add up). Invalid bytes count as zero and lose against a valid
//! context.
//!
//! The id of a shard is the host id of a node that is alone, and [`shard_id`] in a cluster: xxh3-128, big
//! endian, of `host_id:[u8;16] table:[u8;16] log2:u8 tablet:u32 since:u64` (little endian). It is stored for
//! ever and never taken apart.

use std::cmp::Ordering;

use xxhash_rust::xxh3::Xxh3;

const SHARD_BYTES: usize = 32;

/// Bytes of a delta.
pub const DELTA_BYTES: usize = 8;

/// Kinds of shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShardKind {
    /// Observed by another node (before Cassandra 2.1).
    Remote,
    /// Counted on its own node (before Cassandra 2.1): shards add up.
    Local,
    /// The sum of everything that its node counted up to its clock.
    Global,
}

/// One node's share of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterShard {
    /// The node.
    pub id: [u8; 16],
    /// Grows with each change.
    pub clock: i64,
    /// The sum.
    pub count: i64,
    /// The kind of shard.
    pub kind: ShardKind,
}

/// The shards of a context, by id; `None` if the bytes are not a context.
pub fn shards(context: &[u8]) -> Option<impl Iterator<Item = CounterShard> + '_> {
    let (headers, rest) = context.split_first_chunk().map(|(n, rest)| (i16::from_be_bytes(*n), rest))?;
    let (headers, body) = rest.split_at_checked(usize::from(headers.unsigned_abs()) * 2)?;
    if body.len() % SHARD_BYTES != 0 {
        return None;
    }
    let mut headers =
        headers.chunks_exact(2).map(|header| i16::from_be_bytes([header[0], header[1]])).peekable();
    Some(body.chunks_exact(SHARD_BYTES).enumerate().map(move |(at, shard)| {
        let number = |from: usize| i64::from_be_bytes(shard[from..from + 8].try_into().expect("eight bytes"));
        // Headers name the shards that are not remote, in order.
        let kind = match headers.peek() {
            Some(header) if usize::try_from(*header) == Ok(at) => ShardKind::Local,
            Some(header)
                if *header < 0 && usize::try_from(i32::from(*header) - i32::from(i16::MIN)) == Ok(at) =>
            {
                ShardKind::Global
            }
            _ => ShardKind::Remote,
        };
        if kind != ShardKind::Remote {
            headers.next();
        }
        CounterShard {
            id: shard[..16].try_into().expect("sixteen bytes"),
            clock: number(16),
            count: number(24),
            kind,
        }
    }))
}

/// The counter's value in a context; sums wrap.
pub fn total(context: &[u8]) -> i64 {
    shards(context).map_or(0, |shards| shards.fold(0, |sum, shard| sum.wrapping_add(shard.count)))
}

/// The id under which a replica counts in a cluster: another one for each node, table and tablet, and for
/// each tenancy of the tablet, which `since` names. A replica that lost what it had counted, because its
/// tablet left and came back or was truncated, counts anew under another id; with the old one, its smaller
/// sum would have the later clock.
pub fn shard_id(host_id: [u8; 16], table: [u8; 16], (log2, tablet): (u8, u32), since: u64) -> [u8; 16] {
    let mut hash = Xxh3::new();
    hash.update(&host_id);
    hash.update(&table);
    hash.update(&[log2]);
    hash.update(&tablet.to_le_bytes());
    hash.update(&since.to_le_bytes());
    hash.digest128().to_be_bytes()
}

/// The value of a delta; `None` if the bytes are not one.
pub fn delta(bytes: &[u8]) -> Option<i64> {
    bytes.try_into().ok().map(i64::from_be_bytes)
}

/// The shard of a node in a context.
pub fn shard_of(context: &[u8], id: &[u8; 16]) -> Option<CounterShard> {
    shards(context)?.find(|shard| shard.id == *id)
}

/// Whether any shard is from before Cassandra 2.1.
pub fn has_legacy_shards(context: &[u8]) -> bool {
    shards(context).is_some_and(|mut shards| shards.any(|shard| shard.kind != ShardKind::Global))
}

/// Appends the context of these shards, which are ordered by id.
pub fn append(shards: &[CounterShard], out: &mut Vec<u8>) {
    let headers = shards.iter().filter(|shard| shard.kind != ShardKind::Remote).count();
    // A context has a shard for each node that was ever a leader: far fewer than 2^15.
    out.extend_from_slice(&(headers as i16).to_be_bytes());
    for (at, shard) in shards.iter().enumerate() {
        match shard.kind {
            ShardKind::Remote => {}
            ShardKind::Local => out.extend_from_slice(&(at as i16).to_be_bytes()),
            ShardKind::Global => out.extend_from_slice(&(at as i16).wrapping_add(i16::MIN).to_be_bytes()),
        }
    }
    for shard in shards {
        out.extend_from_slice(&shard.id);
        out.extend_from_slice(&shard.clock.to_be_bytes());
        out.extend_from_slice(&shard.count.to_be_bytes());
    }
}

/// Appends the merge of two contexts, or the sum of two deltas.
pub fn merge(left: &[u8], right: &[u8], out: &mut Vec<u8>) {
    if let (Some(a), Some(b)) = (delta(left), delta(right)) {
        out.extend_from_slice(&a.wrapping_add(b).to_be_bytes());
        return;
    }
    let (Some(lefts), Some(rights)) = (shards(left), shards(right)) else {
        let winner = match (shards(left).is_some(), shards(right).is_some()) {
            (true, _) => left,
            (_, true) => right,
            _ => left.max(right),
        };
        return out.extend_from_slice(winner);
    };
    let (mut lefts, mut rights) = (lefts.peekable(), rights.peekable());
    let mut merged: Vec<CounterShard> = Vec::with_capacity((left.len() + right.len()) / SHARD_BYTES);
    loop {
        let order = match (lefts.peek(), rights.peek()) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(a), Some(b)) => a.id.cmp(&b.id),
        };
        let shard = match order {
            Ordering::Less => lefts.next(),
            Ordering::Greater => rights.next(),
            Ordering::Equal => lefts.next().zip(rights.next()).map(|(a, b)| one(a, b)),
        };
        merged.extend(shard);
    }
    append(&merged, out);
}

/// The valid one of two shards of one node.
fn one(a: CounterShard, b: CounterShard) -> CounterShard {
    if a.kind != b.kind {
        return if a.kind > b.kind { a } else { b };
    }
    match a.kind {
        ShardKind::Local => {
            CounterShard { clock: a.clock.wrapping_add(b.clock), count: a.count.wrapping_add(b.count), ..a }
        }
        ShardKind::Global | ShardKind::Remote => {
            if (a.clock, a.count) >= (b.clock, b.count) {
                a
            } else {
                b
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn context(shards: &[CounterShard]) -> Vec<u8> {
        let mut out = Vec::new();
        append(shards, &mut out);
        out
    }

    fn merged(left: &[u8], right: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        merge(left, right, &mut out);
        out
    }

    #[test]
    fn a_global_shard_has_cassandras_bytes() {
        let shard = CounterShard { id: [7; 16], clock: 2, count: -1, kind: ShardKind::Global };
        let mut expected = vec![0, 1, 0x80, 0];
        expected.extend_from_slice(&[7; 16]);
        expected.extend_from_slice(&2_i64.to_be_bytes());
        expected.extend_from_slice(&(-1_i64).to_be_bytes());
        assert_eq!(context(&[shard]), expected);
        assert_eq!(shards(&expected).unwrap().collect::<Vec<_>>(), [shard]);
        assert_eq!(total(&expected), -1);
    }

    #[test]
    fn the_greater_kind_wins_and_local_shards_add_up() {
        let shard = |clock, count, kind| CounterShard { id: [1; 16], clock, count, kind };
        for (a, b, expected) in [
            (shard(1, 5, ShardKind::Global), shard(9, 9, ShardKind::Local), 5),
            (shard(1, 5, ShardKind::Local), shard(9, 9, ShardKind::Remote), 5),
            (shard(1, 5, ShardKind::Local), shard(9, 9, ShardKind::Local), 14),
            (shard(1, 5, ShardKind::Remote), shard(9, 9, ShardKind::Remote), 9),
            (shard(3, 5, ShardKind::Global), shard(2, 9, ShardKind::Global), 5),
            (shard(3, 5, ShardKind::Global), shard(3, 9, ShardKind::Global), 9),
        ] {
            assert_eq!(total(&merged(&context(&[a]), &context(&[b]))), expected);
            assert_eq!(total(&merged(&context(&[b]), &context(&[a]))), expected);
        }
    }

    #[test]
    fn each_tenancy_of_a_replica_has_an_id_of_its_own() {
        let id = shard_id([1; 16], [2; 16], (3, 4), 5);
        // Stored data has it: it must never become another one.
        assert_eq!(u128::from_be_bytes(id), 290_700_433_563_893_026_820_837_125_881_798_156_815);
        let others = [
            shard_id([9; 16], [2; 16], (3, 4), 5),
            shard_id([1; 16], [9; 16], (3, 4), 5),
            shard_id([1; 16], [2; 16], (9, 4), 5),
            shard_id([1; 16], [2; 16], (3, 9), 5),
            shard_id([1; 16], [2; 16], (3, 4), 9),
        ];
        assert!(!others.contains(&id));
    }

    #[test]
    fn deltas_add_up() {
        assert_eq!(delta(&merged(&5_i64.to_be_bytes(), &(-7_i64).to_be_bytes())), Some(-2));
    }

    fn any_context() -> impl Strategy<Value = Vec<u8>> {
        let shard = (0..4_u8, 0..4_i64, -3..4_i64, any::<bool>());
        proptest::collection::btree_map(0..4_u8, shard, 0..4).prop_map(|shards| {
            let shards: Vec<CounterShard> = shards
                .into_iter()
                .map(|(id, (_, clock, count, global))| CounterShard {
                    id: [id; 16],
                    clock,
                    count,
                    kind: if global { ShardKind::Global } else { ShardKind::Remote },
                })
                .collect();
            context(&shards)
        })
    }

    proptest! {
        #[test]
        fn merging_is_commutative_associative_and_idempotent(a in any_context(), b in any_context(), c in any_context()) {
            prop_assert_eq!(merged(&a, &b), merged(&b, &a));
            prop_assert_eq!(merged(&merged(&a, &b), &c), merged(&a, &merged(&b, &c)));
            prop_assert_eq!(merged(&a, &a), a);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(a in proptest::collection::vec(any::<u8>(), 0..80), b in any_context()) {
            let _ = (total(&a), shard_of(&a, &[0; 16]));
            prop_assert_eq!(merged(&a, &b), merged(&b, &a));
        }
    }
}
