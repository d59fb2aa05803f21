//! Statistics come back whole, and damage to them is seen.

use model::types::CqlType;
use proptest::prelude::*;

use super::*;
use crate::version::Version;

fn features() -> [Features; 2] {
    let me = Version::Me.features();
    [me, Features { pending_repair: true, metadata_checksum: true, unsigned_deletion_times: true, ..me }]
}

fn sample() -> Statistics {
    let mut collector = Collector::new(stats::SIGNED_TIME_MAX);
    collector.partition(b"a", 100);
    collector.partition(b"b", 100_000);
    collector.deletion(model::DeletionTime { timestamp: 7, local_time: 1000 });
    let (mut stats, sketch, _) = collector.finish();
    stats.min_clustering = vec![b"x".to_vec()];
    stats.covered = Some((stats::around(&stats.min_clustering, -1), stats::around(&[], 1)));
    stats.commit_log_intervals = vec![(CommitLogPosition::NONE, CommitLogPosition { segment: 3, offset: 4 })];
    stats.originating_host = Some([7; 16]);
    let mut cardinality = Vec::new();
    sketch.encode(&mut cardinality);
    let header = SerializationHeader {
        minima: EncodingMinima { timestamp: -5, local_deletion_time: 3, ttl: 60 },
        key_class: "org.apache.cassandra.db.marshal.UTF8Type".into(),
        clusterings: vec![(CqlType::Int, true), (CqlType::Text, false)],
        statics: vec![HeaderColumn { name: "s".into(), ty: CqlType::Blob }],
        regulars: vec![HeaderColumn {
            name: "m".into(),
            ty: CqlType::Map { key: Box::new(CqlType::Int), value: Box::new(CqlType::Text), frozen: false },
        }],
    };
    Statistics { fp_chance: 0.01, cardinality, stats, header }
}

#[test]
fn all_components_come_back() {
    for features in features() {
        let statistics = sample();
        let mut bytes = Vec::new();
        statistics.encode(&mut bytes, features);
        assert_eq!(Statistics::decode(&bytes, features).unwrap(), statistics);
        for end in (0..bytes.len()).step_by(7) {
            assert!(Statistics::decode(&bytes[..end], features).is_err(), "{end}");
        }
    }
}

#[test]
fn a_flipped_bit_of_checksummed_statistics_is_seen() {
    let features = features()[1];
    let mut bytes = Vec::new();
    sample().encode(&mut bytes, features);
    for at in 0..bytes.len() {
        bytes[at] ^= 4;
        assert!(Statistics::decode(&bytes, features).is_err(), "{at}");
        bytes[at] ^= 4;
    }
}

#[test]
fn the_sketch_counts_within_five_percent_and_comes_back() {
    for count in [10u32, 1000, 100_000] {
        let mut sketch = Cardinality::default();
        (0..count).for_each(|key| sketch.add(&key.to_be_bytes()));
        let off = (sketch.estimate() as f64 / f64::from(count) - 1.0).abs();
        assert!(off < 0.05, "{count}: {}", sketch.estimate());
        let mut bytes = Vec::new();
        sketch.encode(&mut bytes);
        assert_eq!(Cardinality::decode(&bytes).unwrap(), Some(sketch));
    }
}

#[test]
fn tombstone_bins_keep_their_sum() {
    let mut histogram = TombstoneHistogram::default();
    (0..100_000i64).for_each(|at| histogram.add(at * at % 1_000_000_007, i64::from(i32::MAX)));
    let mut bytes = Vec::new();
    histogram.encode(&mut bytes, false);
    assert!(bytes.len() <= 8 + 100 * 16);
    let back = TombstoneHistogram::decode(&mut Input::new(&bytes), false).unwrap();
    assert_eq!(back.count_until(i64::MAX), 100_000);
}

#[test]
fn estimated_buckets_are_cassandras() {
    let mut histogram = EstimatedHistogram::new(90);
    for number in [0, 1, 2, 20, u64::MAX] {
        histogram.add(number);
    }
    let mut bytes = Vec::new();
    histogram.encode(&mut bytes);
    assert_eq!(bytes.len(), 4 + 91 * 16);
    let bound = |bucket: usize| i64::from_be_bytes(bytes[4 + bucket * 16..][..8].try_into().unwrap());
    assert_eq!((0..14).map(bound).collect::<Vec<_>>(), [1, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20]);
    assert_eq!(bound(90), 25_109_160);
    assert_eq!(histogram.count(), 5);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes: Vec<u8>, at in 0usize..4000, byte: u8) {
        let _ = Cardinality::decode(&bytes);
        for features in features() {
            let _ = Statistics::decode(&bytes, features);
            let mut sample_bytes = Vec::new();
            sample().encode(&mut sample_bytes, features);
            let at = at % sample_bytes.len();
            sample_bytes[at] = byte;
            let _ = Statistics::decode(&sample_bytes, features);
        }
    }
}
