//! Contents of SUPPORTED: the language, compressions, protocol versions, and the shards.

use wire::extensions::{ShardingInfo, supported_options};
use wire::version::ProtocolVersion;

use super::NativeConfig;

/// The CQL version sent to drivers.
const CQL_VERSION: &str = "3.4.7";

/// Drivers that do not know tablets compute a row's shard with it, which here is a guess: a row is on the
/// shard of its tablet, and drivers that know tablets learn the shard from answers. The value is ScyllaDB's;
/// its Go driver takes 0 to mean that there are no shards.
const IGNORE_MSB: u8 = 12;

/// The partitioner of every table.
const PARTITIONER: &str = "org.apache.cassandra.dht.Murmur3Partitioner";

/// The options and their values, for a connection of this shard.
pub(super) fn options(config: &NativeConfig) -> Vec<(String, Vec<String>)> {
    let mut options = vec![
        ("CQL_VERSION".to_owned(), vec![CQL_VERSION.to_owned()]),
        ("COMPRESSION".to_owned(), vec!["snappy".to_owned(), "lz4".to_owned()]),
        (
            "PROTOCOL_VERSIONS".to_owned(),
            ProtocolVersion::ALL.iter().map(|version| version.name().to_owned()).collect(),
        ),
    ];
    let sharding = ShardingInfo {
        shard: reactor::shard_id() as u32,
        shard_count: reactor::shard_count() as u32,
        partitioner: PARTITIONER,
        ignore_msb: IGNORE_MSB,
        shard_aware_port: config.shard_aware_port,
        shard_aware_port_tls: None,
    };
    supported_options(&sharding, |name, value| options.push((name.to_owned(), vec![value.to_owned()])));
    options
}
