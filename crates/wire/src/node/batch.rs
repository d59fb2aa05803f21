//! Logged batches on their way to a keeper, and the word that one is done.
//!
//! ```text
//! log  := id[16] born_us:i64 agreed:u64 after_ms:u32 count:u32 mutation[count]
//! done := id[16]
//! mutation := length:u32 bytes[length]                            as the commit log has it
//! ```
//! A keeper that is not told within `after_ms` that a batch is done writes the batch out itself.

use model::mutation::MutationView;

use super::NodeError;
use super::mutate::mutation;
use super::reader::{Reader, append_sized};

/// The least bytes of a mutation in a message.
const MUTATION_BYTES_MIN: usize = 4;

/// A batch for a keeper.
#[derive(Debug, Clone)]
pub struct BatchLog<'a> {
    /// A time UUID that no other batch has.
    pub id: [u8; 16],
    /// When its coordinator began it, microseconds since 1970.
    pub born_us: i64,
    /// The latest version of its tables' routings that the coordinator knew: a table that was truncated later
    /// does not get the batch.
    pub agreed: u64,
    /// Milliseconds after which a keeper that was not told of the end writes the batch out: time left,
    /// because clocks differ.
    pub after_ms: u32,
    /// The mutations; there is one.
    pub mutations: Vec<MutationView<'a>>,
}

/// Appends the message.
///
/// # Panics
/// For 2^32 mutations or more.
pub fn encode(batch: &BatchLog<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(&batch.id);
    out.extend_from_slice(&batch.born_us.to_le_bytes());
    out.extend_from_slice(&batch.agreed.to_le_bytes());
    out.extend_from_slice(&batch.after_ms.to_le_bytes());
    let count = u32::try_from(batch.mutations.len()).expect("fewer than 2^32 mutations");
    out.extend_from_slice(&count.to_le_bytes());
    batch.mutations.iter().for_each(|mutation| append_sized(out, mutation.as_bytes()));
}

/// Reads a message. Whether a mutation fits its table is told by [`MutationView::fits`].
///
/// # Errors
/// [`NodeError`] for bytes that are not exactly one message, for a mutation that is damaged or whose token is
/// not its key's, and for a batch without mutations.
pub fn decode(message: &[u8]) -> Result<BatchLog<'_>, NodeError> {
    let mut reader = Reader::new(message);
    let id = reader.array("the id of a batch")?;
    let born_us = i64::from_le_bytes(reader.array("the time of a batch")?);
    let agreed = reader.u64("the version that a batch was planned with")?;
    let after_ms = reader.u32("the patience with a batch")?;
    let field = "the number of mutations of a batch";
    let count = reader.u32(field)? as usize;
    if count == 0 {
        return Err(NodeError::Unknown { field, value: 0 });
    }
    // The rest of the message has room for them.
    if count > reader.rest().len() / MUTATION_BYTES_MIN {
        return Err(NodeError::Truncated { field });
    }
    let mut mutations = Vec::with_capacity(count);
    for _ in 0..count {
        mutations.push(mutation(&mut reader)?);
    }
    reader.end()?;
    Ok(BatchLog { id, born_us, agreed, after_ms, mutations })
}

/// Appends the word that a batch is done.
pub fn encode_done(id: [u8; 16], out: &mut Vec<u8>) {
    out.extend_from_slice(&id);
}

/// Reads the word that a batch is done: its id.
///
/// # Errors
/// [`NodeError`] for bytes that are not exactly one id.
pub fn decode_done(message: &[u8]) -> Result<[u8; 16], NodeError> {
    let mut reader = Reader::new(message);
    let id = reader.array("the id of a batch")?;
    reader.end()?;
    Ok(id)
}
