//! Answers of a replica to a read: the contents of partitions with deletions and dead data, or a digest.
//!
//! ```text
//! answer    := count:u32 partition[count] end (0 | 1 digest)
//! partition := until mutation:sized          the mutation that writes what the replica has of the partition
//! until     := 0                             all that was asked of it
//!            | 1 position                    what lies before the position, in reading order
//! end       := 0                             all that was asked for
//!            | 1 token:i64 key:sized place   what lies before the place; more may follow
//! place     := position | 2                  2: behind the partition
//! position  := weight:i8 prefix:sized        sized := length:u32 bytes
//! digest    := xxh3-128:u128                 as in model::reconcile::Digest, of the same elements
//! ```
//! Partitions come in token order, each once. A replica that has nothing of a partition does not name it.
//! Invariant: whoever merges answers knows of each how far it reaches, so that nothing is taken for missing
//! that was only not sent.

use model::clustering::{Clustering, Position};
use model::mutation::{MutationMisfit, MutationView};
use model::partition_key::compare_decorated;
use model::token::murmur3_token;
use model::{Table, Token};

use super::NodeError;
use super::reader::{Reader, append_sized};

/// Room that is made for partitions before they are read: a peer's count is not trusted with more.
const PARTITIONS_AT_ONCE: usize = 1024;
/// The weight of a place behind a whole partition.
const BEHIND_ALL: i8 = 2;

/// A place in a read: what lies before it, in reading order, was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End<'a> {
    /// Token of the partition.
    pub token: Token,
    /// Its key.
    pub key: &'a [u8],
    /// A bound in the partition; `None` behind all of it.
    pub position: Option<Position<'a>>,
}

/// What a replica has of one partition.
#[derive(Debug, Clone, Copy)]
pub struct Partition<'a> {
    /// What lies before this bound, in reading order, is told; `None` if all is.
    pub until: Option<Position<'a>>,
    /// The contents.
    pub mutation: MutationView<'a>,
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer<'a> {
    /// The partitions, in token order.
    pub partitions: Vec<Partition<'a>>,
    /// Where the answer ends; `None` if it has all that was asked for.
    pub end: Option<End<'a>>,
    /// The digest of the contents, if one was asked for.
    pub digest: Option<u128>,
}

/// Builds an answer at the end of a buffer.
#[derive(Debug)]
pub struct AnswerBuilder<'b> {
    out: &'b mut Vec<u8>,
    count_at: usize,
    count: u32,
}

impl<'b> AnswerBuilder<'b> {
    /// An answer without partitions.
    pub fn new(out: &'b mut Vec<u8>) -> Self {
        let count_at = out.len();
        out.extend_from_slice(&[0; 4]);
        Self { out, count_at, count: 0 }
    }

    /// Appends a partition; `mutation` appends the mutation.
    pub fn partition(&mut self, until: Option<Position<'_>>, mutation: impl FnOnce(&mut Vec<u8>)) {
        self.out.push(u8::from(until.is_some()));
        until.into_iter().for_each(|position| append_position(self.out, position));
        let at = self.out.len();
        self.out.extend_from_slice(&[0; 4]);
        mutation(self.out);
        let length =
            u32::try_from(self.out.len() - at - 4).expect("a partition's part is shorter than 4 GiB");
        self.out[at..at + 4].copy_from_slice(&length.to_le_bytes());
        self.count += 1;
    }

    /// Ends the answer.
    pub fn finish(self, end: Option<End<'_>>, digest: Option<u128>) {
        self.out.push(u8::from(end.is_some()));
        if let Some(End { token, key, position }) = end {
            self.out.extend_from_slice(&token.0.to_le_bytes());
            append_sized(self.out, key);
            match position {
                Some(position) => append_position(self.out, position),
                None => self.out.push(BEHIND_ALL.cast_unsigned()),
            }
        }
        self.out.push(u8::from(digest.is_some()));
        digest.into_iter().for_each(|digest| encode_digest(digest, self.out));
        self.out[self.count_at..self.count_at + 4].copy_from_slice(&self.count.to_le_bytes());
    }
}

fn append_position(out: &mut Vec<u8>, position: Position<'_>) {
    out.push(position.weight.cast_unsigned());
    append_sized(out, position.prefix.0);
}

impl<'a> Answer<'a> {
    /// Reads a message. Whether it fits the table is told by [`Answer::check`].
    ///
    /// # Errors
    /// [`NodeError`] for bytes that are not exactly one message, for a mutation that is damaged or whose
    /// token is not its key's, and for partitions out of order or behind the end.
    pub fn decode(message: &'a [u8]) -> Result<Self, NodeError> {
        let mut reader = Reader::new(message);
        let count = reader.u32("the number of partitions")? as usize;
        let mut partitions: Vec<Partition<'a>> = Vec::with_capacity(count.min(PARTITIONS_AT_ONCE));
        for _ in 0..count {
            let next = partition(&mut reader)?;
            let place = |partition: &Partition<'a>| (partition.mutation.token, partition.mutation.key);
            if let Some(last) = partitions.last()
                && compare_decorated(place(last), place(&next)).is_ge()
            {
                return Err(invalid("a partition", "it comes behind a later one"));
            }
            partitions.push(next);
        }
        let end = flag(&mut reader, "the end of an answer")?.then(|| end(&mut reader)).transpose()?;
        let has_digest = flag(&mut reader, "whether a digest follows")?;
        let digest = has_digest.then(|| digest(&mut reader)).transpose()?;
        reader.end()?;
        if let (Some(end), Some(last)) = (end, partitions.last())
            && compare_decorated((last.mutation.token, last.mutation.key), (end.token, end.key)).is_gt()
        {
            return Err(invalid("the end of an answer", "it lies before a partition"));
        }
        Ok(Self { partitions, end, digest })
    }

    /// Checks that all contents and positions are this table's.
    ///
    /// # Errors
    /// [`MutationMisfit`], as for a mutation that is to be written.
    pub fn check(&self, table: &Table) -> Result<(), MutationMisfit> {
        let columns = table.clustering_orders().len();
        let check_bound = |position: Option<Position<'_>>| match position {
            Some(position) if !position.prefix.is_valid(columns) => {
                Err(MutationMisfit::Shape("a place does not have the shape of the clustering key"))
            }
            _ => Ok(()),
        };
        check_bound(self.end.and_then(|end| end.position))?;
        for partition in &self.partitions {
            if partition.mutation.table != table.id() {
                return Err(MutationMisfit::Shape("a partition is another table's"));
            }
            partition.mutation.check(table)?;
            check_bound(partition.until)?;
        }
        Ok(())
    }
}

fn partition<'a>(reader: &mut Reader<'a>) -> Result<Partition<'a>, NodeError> {
    let is_cut = flag(reader, "whether a partition is cut")?;
    let until = match is_cut {
        true => {
            let weight = reader.u8("a position's weight")?.cast_signed();
            Some(position(reader, weight)?)
        }
        false => None,
    };
    let bytes = reader.sized("a partition's contents")?;
    let mutation = MutationView::parse(bytes).map_err(|error| invalid("a partition", error.to_string()))?;
    check_token(mutation.token, mutation.key)?;
    Ok(Partition { until, mutation })
}

fn end<'a>(reader: &mut Reader<'a>) -> Result<End<'a>, NodeError> {
    let token = Token(i64::from_le_bytes(reader.array("a place's token")?));
    let key = reader.sized("a place's key")?;
    check_token(token, key)?;
    let weight = reader.u8("a position's weight")?.cast_signed();
    let position = (weight != BEHIND_ALL).then(|| position(reader, weight)).transpose()?;
    Ok(End { token, key, position })
}

fn check_token(token: Token, key: &[u8]) -> Result<(), NodeError> {
    let of_key = murmur3_token(key);
    if token == of_key {
        return Ok(());
    }
    Err(invalid("a partition", format!("its token is {}, and its key's is {}", token.0, of_key.0)))
}

/// The rest of a position behind its weight.
fn position<'a>(reader: &mut Reader<'a>, weight: i8) -> Result<Position<'a>, NodeError> {
    if weight != 1 && weight != -1 {
        let value = u64::from(weight.cast_unsigned());
        return Err(NodeError::Unknown { field: "a position's weight", value });
    }
    let prefix = Clustering(reader.sized("a position's prefix")?);
    if !prefix.is_valid(usize::MAX) {
        return Err(invalid("a position's prefix", "it is no run of components"));
    }
    Ok(Position { prefix, weight })
}

fn flag(reader: &mut Reader<'_>, field: &'static str) -> Result<bool, NodeError> {
    match reader.u8(field)? {
        0 => Ok(false),
        1 => Ok(true),
        value => Err(NodeError::Unknown { field, value: u64::from(value) }),
    }
}

fn invalid(field: &'static str, reason: impl Into<String>) -> NodeError {
    NodeError::Invalid { field, reason: reason.into() }
}

/// Appends the answer to a request for a digest.
pub fn encode_digest(digest: u128, out: &mut Vec<u8>) {
    out.extend_from_slice(&digest.to_le_bytes());
}

/// Reads the answer to a request for a digest.
///
/// # Errors
/// [`NodeError`] for other bytes.
pub fn decode_digest(message: &[u8]) -> Result<u128, NodeError> {
    let mut reader = Reader::new(message);
    let digest = digest(&mut reader)?;
    reader.end()?;
    Ok(digest)
}

fn digest(reader: &mut Reader<'_>) -> Result<u128, NodeError> {
    reader.array("a digest").map(u128::from_le_bytes)
}
