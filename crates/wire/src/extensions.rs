//! ScyllaDB's public extensions of the protocol, which make drivers shard-aware and tablet-aware.
//!
//! Source: ScyllaDB's documentation, docs/dev/protocol-extensions.md. The server announces them in SUPPORTED,
//! the client repeats in STARTUP the ones it wants. Only names and encodings are here; the owners of tokens
//! are determined elsewhere.

use crate::error_code::ErrorCode;
use crate::reader::Reader;
use crate::values::StringMap;
use crate::version::ProtocolVersion;

/// Shard this connection landed on, decimal.
pub const SHARD: &str = "SCYLLA_SHARD";
/// Shards of this node, decimal.
pub const NR_SHARDS: &str = "SCYLLA_NR_SHARDS";
/// Class name of the partitioner.
pub const PARTITIONER: &str = "SCYLLA_PARTITIONER";
/// How tokens map to shards.
pub const SHARDING_ALGORITHM: &str = "SCYLLA_SHARDING_ALGORITHM";
/// Parameter of the sharding algorithm, decimal.
pub const SHARDING_IGNORE_MSB: &str = "SCYLLA_SHARDING_IGNORE_MSB";
/// Port on which the client's own port chooses the shard, decimal.
pub const SHARD_AWARE_PORT: &str = "SCYLLA_SHARD_AWARE_PORT";
/// As [`SHARD_AWARE_PORT`], encrypted.
pub const SHARD_AWARE_PORT_SSL: &str = "SCYLLA_SHARD_AWARE_PORT_SSL";
/// Host id of the node, a UUID.
pub const HOST_ID: &str = "SCYLLA_HOST_ID";
/// Prepared conditional statements are marked in their metadata's flags.
pub const LWT_ADD_METADATA_MARK: &str = "SCYLLA_LWT_ADD_METADATA_MARK";
/// A separate error for a partition that is used too often.
pub const RATE_LIMIT_ERROR: &str = "SCYLLA_RATE_LIMIT_ERROR";
/// Misrouted requests are answered with the tablet's replicas in the custom payload.
pub const TABLETS_ROUTING_V1: &str = "TABLETS_ROUTING_V1";
/// Versions 3 and 4 have result metadata ids as version 5 does.
pub const USE_METADATA_ID: &str = "SCYLLA_USE_METADATA_ID";

/// The one [`SHARDING_ALGORITHM`] there is.
pub const BIASED_TOKEN_ROUND_ROBIN: &str = "biased-token-round-robin";
/// Key of the tablet in a response's custom payload.
pub const TABLETS_ROUTING_V1_PAYLOAD: &str = "tablets-routing-v1";
/// Bit in the flags of prepared metadata that marks a conditional statement, announced with
/// [`LWT_ADD_METADATA_MARK`]. The protocol's own flags fill from the low end.
pub const LWT_METADATA_MARK: u32 = 0x8000_0000;
/// Code of the rate limit error, announced with [`RATE_LIMIT_ERROR`]; far from the codes of the protocol.
pub const RATE_LIMIT_ERROR_CODE: i32 = 0x4321;

/// The extensions a connection uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extensions {
    /// [`LWT_ADD_METADATA_MARK`].
    pub lwt_mark: bool,
    /// [`RATE_LIMIT_ERROR`].
    pub rate_limit_error: bool,
    /// [`TABLETS_ROUTING_V1`].
    pub tablets_routing_v1: bool,
    /// [`USE_METADATA_ID`].
    pub use_metadata_id: bool,
}

impl Extensions {
    /// The extensions named in STARTUP; the presence of the key decides, its value does not.
    pub fn from_startup(options: &StringMap<'_>) -> Self {
        let mut extensions = Self::default();
        for (key, _) in options.iter() {
            match key {
                LWT_ADD_METADATA_MARK => extensions.lwt_mark = true,
                RATE_LIMIT_ERROR => extensions.rate_limit_error = true,
                TABLETS_ROUTING_V1 => extensions.tablets_routing_v1 = true,
                USE_METADATA_ID => extensions.use_metadata_id = true,
                _ => {}
            }
        }
        extensions
    }

    /// Whether PREPARED and EXECUTE carry the id of the result metadata.
    #[inline]
    pub fn has_metadata_id(&self, version: ProtocolVersion) -> bool {
        version >= ProtocolVersion::V5 || self.use_metadata_id
    }
}

/// A node's information about its shards in SUPPORTED.
#[derive(Debug, Clone, Copy)]
pub struct ShardingInfo<'a> {
    /// Shard of this connection.
    pub shard: u32,
    /// Shards of this node.
    pub shard_count: u32,
    /// Class name of the partitioner.
    pub partitioner: &'a str,
    /// Most significant token bits that the mapping to shards ignores.
    pub ignore_msb: u8,
    /// The shard-aware port, when one is open.
    pub shard_aware_port: Option<u16>,
    /// The encrypted shard-aware port, when one is open.
    pub shard_aware_port_tls: Option<u16>,
}

/// Calls `add` with every option of SUPPORTED that these extensions define.
pub fn supported_options(info: &ShardingInfo<'_>, mut add: impl FnMut(&str, &str)) {
    add(SHARD, &info.shard.to_string());
    add(NR_SHARDS, &info.shard_count.to_string());
    add(PARTITIONER, info.partitioner);
    add(SHARDING_ALGORITHM, BIASED_TOKEN_ROUND_ROBIN);
    add(SHARDING_IGNORE_MSB, &info.ignore_msb.to_string());
    if let Some(port) = info.shard_aware_port {
        add(SHARD_AWARE_PORT, &port.to_string());
    }
    if let Some(port) = info.shard_aware_port_tls {
        add(SHARD_AWARE_PORT_SSL, &port.to_string());
    }
    add(LWT_ADD_METADATA_MARK, &format!("LWT_OPTIMIZATION_META_BIT_MASK={LWT_METADATA_MARK}"));
    add(RATE_LIMIT_ERROR, &format!("ERROR_CODE={RATE_LIMIT_ERROR_CODE}"));
    add(TABLETS_ROUTING_V1, "");
    add(USE_METADATA_ID, "");
}

/// Appends the value of [`TABLETS_ROUTING_V1_PAYLOAD`]: `tuple<bigint, bigint, list<tuple<uuid, int>>>`.
///
/// The tablet owns the tokens after `first_token` up to and including `last_token`; a replica is a host id
/// and a shard on it.
pub fn append_tablet(
    out: &mut Vec<u8>,
    first_token: i64,
    last_token: i64,
    replicas: impl ExactSizeIterator<Item = ([u8; 16], i32)>,
) {
    /// A replica: its list element length, then two tuple fields with theirs.
    const REPLICA_BYTES: usize = 4 + (4 + 16) + (4 + 4);
    let count = replicas.len();
    for token in [first_token, last_token] {
        out.extend_from_slice(&8_i32.to_be_bytes());
        out.extend_from_slice(&token.to_be_bytes());
    }
    let list_bytes = 4 + count * REPLICA_BYTES;
    assert!(i32::try_from(list_bytes).is_ok(), "a tablet with {count} replicas");
    out.extend_from_slice(&(list_bytes as i32).to_be_bytes());
    out.extend_from_slice(&(count as i32).to_be_bytes());
    for (host, shard) in replicas {
        out.extend_from_slice(&(REPLICA_BYTES as i32 - 4).to_be_bytes());
        out.extend_from_slice(&16_i32.to_be_bytes());
        out.extend_from_slice(&host);
        out.extend_from_slice(&4_i32.to_be_bytes());
        out.extend_from_slice(&shard.to_be_bytes());
    }
}

/// The code of a rate limit error: its own if the client supports it, otherwise CONFIG_ERROR.
pub fn rate_limit_error_code(extensions: &Extensions) -> i32 {
    if extensions.rate_limit_error { RATE_LIMIT_ERROR_CODE } else { ErrorCode::ConfigError.code() }
}

/// A tablet as a client reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedTablet {
    /// The token before the tablet's first.
    pub first_token: i64,
    /// Its last token.
    pub last_token: i64,
    /// Host ids, and the shard on each.
    pub replicas: Vec<([u8; 16], i32)>,
}

/// Reads the bytes of [`append_tablet`]; `None` for any other bytes.
pub fn read_tablet(bytes: &[u8]) -> Option<ReceivedTablet> {
    let mut reader = Reader::new(bytes);
    let mut token = || Some(i64::from_be_bytes(reader.bytes().ok()??.try_into().ok()?));
    let (first_token, last_token) = (token()?, token()?);
    let list = reader.bytes().ok()??;
    let (count, mut rest) = list.split_first_chunk::<4>()?;
    let count = usize::try_from(i32::from_be_bytes(*count)).ok()?;
    let mut replicas = Vec::new();
    for _ in 0..count {
        let mut outer = Reader::new(rest);
        let replica = outer.bytes().ok()??;
        rest = rest.get(4 + replica.len()..)?;
        let mut fields = Reader::new(replica);
        let host = fields.bytes().ok()??.try_into().ok()?;
        replicas.push((host, i32::from_be_bytes(fields.bytes().ok()??.try_into().ok()?)));
    }
    Some(ReceivedTablet { first_token, last_token, replicas })
}
