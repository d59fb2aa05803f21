//! Writes on their way to a replica.
//!
//! ```text
//! mutate  := born_us:i64 count:u16 entry[count] count:u16 replica[count]
//! entry   := version:u64 since:u64 length:u32 mutation[length]         a mutation as the commit log has it
//! replica := node:u16 shard:u16                                        whom the receiver passes it on to
//! ```

use model::mutation::MutationView;
use model::tablet::Replica;
use model::token::murmur3_token;

use super::NodeError;
use super::reader::{Reader, append_sized};

/// The least bytes of a mutation in a message.
const ENTRY_BYTES_MIN: usize = 20;
/// Bytes of a replica in a message.
const REPLICA_BYTES: usize = 4;

/// One mutation, with what its coordinator knew of the replica.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// The version of the table's routing that it was planned with.
    pub version: u64,
    /// The command that made the receiver a replica of the tablet.
    pub since: u64,
    /// The mutation.
    pub mutation: MutationView<'a>,
}

/// Mutations that a replica applies.
#[derive(Debug, Clone)]
pub struct Mutate<'a> {
    /// When its first coordinator began it, microseconds since 1970.
    pub born_us: i64,
    /// The mutations.
    pub entries: Vec<Entry<'a>>,
    /// Further replicas that the receiver sends the mutations to.
    pub forward: Vec<Replica>,
}

/// Appends the message.
///
/// # Panics
/// For more than 65,535 mutations or replicas.
pub fn encode(message: &Mutate<'_>, out: &mut Vec<u8>) {
    let count = |length: usize| u16::try_from(length).expect("at most 65,535").to_le_bytes();
    out.extend_from_slice(&message.born_us.to_le_bytes());
    out.extend_from_slice(&count(message.entries.len()));
    for entry in &message.entries {
        out.extend_from_slice(&entry.version.to_le_bytes());
        out.extend_from_slice(&entry.since.to_le_bytes());
        append_sized(out, entry.mutation.as_bytes());
    }
    out.extend_from_slice(&count(message.forward.len()));
    for replica in &message.forward {
        out.extend_from_slice(&replica.node.to_le_bytes());
        out.extend_from_slice(&replica.shard.to_le_bytes());
    }
}

/// Reads a message. Whether a mutation fits its table is told by [`MutationView::fits`].
///
/// # Errors
/// [`NodeError`] for bytes that are not exactly one message, for a mutation that is damaged or whose token is
/// not its key's, and for a message without mutations.
pub fn decode(message: &[u8]) -> Result<Mutate<'_>, NodeError> {
    let mut reader = Reader::new(message);
    let born_us = i64::from_le_bytes(reader.array("the time of a write")?);
    let count = counted(&mut reader, "the number of mutations", ENTRY_BYTES_MIN)?;
    if count == 0 {
        return Err(NodeError::Unknown { field: "the number of mutations", value: 0 });
    }
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        entries.push(entry(&mut reader)?);
    }
    let count = counted(&mut reader, "the number of further replicas", REPLICA_BYTES)?;
    let mut forward = Vec::with_capacity(count);
    for _ in 0..count {
        let node = reader.u16("a replica's node")?;
        forward.push(Replica { node, shard: reader.u16("a replica's shard")? });
    }
    reader.end()?;
    Ok(Mutate { born_us, entries, forward })
}

/// A number of things that the rest of the message has room for.
fn counted(reader: &mut Reader<'_>, field: &'static str, bytes_min: usize) -> Result<usize, NodeError> {
    let count = usize::from(reader.u16(field)?);
    if count * bytes_min > reader.rest().len() {
        return Err(NodeError::Truncated { field });
    }
    Ok(count)
}

fn entry<'a>(reader: &mut Reader<'a>) -> Result<Entry<'a>, NodeError> {
    let version = reader.u64("a routing's version")?;
    let since = reader.u64("the age of a replica")?;
    Ok(Entry { version, since, mutation: mutation(reader)? })
}

/// A mutation whose token is its key's.
pub(super) fn mutation<'a>(reader: &mut Reader<'a>) -> Result<MutationView<'a>, NodeError> {
    let invalid = |reason: String| NodeError::Invalid { field: "a mutation", reason };
    let bytes = reader.sized("a mutation")?;
    let mutation = MutationView::parse(bytes).map_err(|error| invalid(error.to_string()))?;
    let token = murmur3_token(mutation.key);
    if mutation.token != token {
        return Err(invalid(format!("its token is {}, and its key's is {}", mutation.token.0, token.0)));
    }
    Ok(mutation)
}
