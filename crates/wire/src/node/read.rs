//! Reads on their way to a replica.
//!
//! ```text
//! read       := table[16] version:u64 since:u64 now:u32 gc_before:u32 digest:u8 options:u8 rows:u64
//!               rows_per_partition:u64 partitions count:u32 slice[count]
//! digest     := version of the digest that is asked for, 0 for contents
//! options    := 1 reversed | 2 past the row cache | 4 counts against the limit of its partition
//! rows, rows_per_partition: 2^64 - 1 for no limit
//! partitions := 0 key:sized                                     one partition
//!             | 1 bound bound                                   all from the first to the second
//! bound      := token:i64 options:u8 [key:sized]                1 inclusive | 2 a key follows
//! slice      := position position
//! position   := weight:i8 prefix:sized                          as in model::clustering
//! sized      := length:u32 bytes
//! ```

use model::clustering::{Clustering, Position};
use model::token::murmur3_token;
use model::{Table, TableId, Token};

use super::NodeError;
use super::reader::{Reader, append_sized};

const REVERSED: u8 = 1;
const BYPASS_CACHE: u8 = 2;
const COUNTED: u8 = 4;
const INCLUSIVE: u8 = 1;
const HAS_KEY: u8 = 2;

/// A bound of a range of partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound<'a> {
    /// Its token.
    pub token: Token,
    /// One key of that token; `None` for all of them.
    pub key: Option<&'a [u8]>,
    /// Whether partitions at the bound belong to the range.
    pub inclusive: bool,
}

/// The partitions that a read covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partitions<'a> {
    /// One, by its stored key.
    Key(&'a [u8]),
    /// All from the first bound to the second, in token order.
    Between(Bound<'a>, Bound<'a>),
}

/// Slices of each partition, borrowed from a message or made for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SliceList<'a> {
    count: u32,
    bytes: &'a [u8],
}

impl<'a> SliceList<'a> {
    /// Puts slices into `bytes`, which is cleared first.
    pub fn new<'s>(
        slices: impl IntoIterator<Item = (Position<'s>, Position<'s>)>,
        bytes: &'a mut Vec<u8>,
    ) -> Self {
        bytes.clear();
        let mut count = 0;
        for (start, end) in slices {
            for position in [start, end] {
                bytes.push(position.weight as u8);
                append_sized(bytes, position.prefix.0);
            }
            count += 1;
        }
        Self { count, bytes }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// First and last position of each.
    pub fn iter(&self) -> impl Iterator<Item = (Position<'a>, Position<'a>)> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        (0..self.count).map_while(move |_| Some((position(&mut reader).ok()?, position(&mut reader).ok()?)))
    }

    /// Reads the rest of a message.
    fn parse(mut reader: Reader<'a>) -> Result<Self, NodeError> {
        let count = reader.u32("the number of slices")?;
        let bytes = reader.rest();
        for _ in 0..count {
            position(&mut reader)?;
            position(&mut reader)?;
        }
        reader.end()?;
        Ok(Self { count, bytes })
    }
}

/// A position that bounds a slice.
fn position<'a>(reader: &mut Reader<'a>) -> Result<Position<'a>, NodeError> {
    let weight = reader.u8("a position's weight")? as i8;
    if weight != 1 && weight != -1 {
        return Err(NodeError::Unknown { field: "a position's weight", value: u64::from(weight as u8) });
    }
    let prefix = Clustering(reader.sized("a position's prefix")?);
    if !prefix.is_valid(usize::MAX) {
        let reason = "it is no run of components".to_owned();
        return Err(NodeError::Invalid { field: "a position's prefix", reason });
    }
    Ok(Position { prefix, weight })
}

/// A read of one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read<'a> {
    /// The table.
    pub table: TableId,
    /// The version of the table's routing that it was planned with.
    pub version: u64,
    /// The command that made the receiver a replica of the tablet.
    pub since: u64,
    /// The present time, seconds since 1970: what expired at or before it is not visible.
    pub now: u32,
    /// Tombstones with a local time before this are past their grace period, by the coordinator's clock: they
    /// are not in a digest, and a page does not end sooner for them unless it is very long.
    pub gc_before: u32,
    /// The version of the digest that is asked for; 0 in a request for contents.
    pub digest: u8,
    /// Whether rows come from the last to the first.
    pub reversed: bool,
    /// Whether the row cache is passed by.
    pub bypass_cache: bool,
    /// Whether it counts against the rate limit of its partition.
    pub counted: bool,
    /// Rows in all.
    pub rows: Option<u64>,
    /// Rows of each partition; 0 for partitions without rows.
    pub rows_per_partition: Option<u64>,
    /// The partitions.
    pub partitions: Partitions<'a>,
    /// The rows of each; an empty list asks for the static row alone.
    pub slices: SliceList<'a>,
}

impl<'a> Read<'a> {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.table.0);
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.since.to_le_bytes());
        out.extend_from_slice(&self.now.to_le_bytes());
        out.extend_from_slice(&self.gc_before.to_le_bytes());
        out.push(self.digest);
        let option = |holds: bool, bit: u8| if holds { bit } else { 0 };
        out.push(
            option(self.reversed, REVERSED)
                | option(self.bypass_cache, BYPASS_CACHE)
                | option(self.counted, COUNTED),
        );
        for limit in [self.rows, self.rows_per_partition] {
            assert_ne!(limit, Some(u64::MAX), "a limit is below the number that means none");
            out.extend_from_slice(&limit.unwrap_or(u64::MAX).to_le_bytes());
        }
        match self.partitions {
            Partitions::Key(key) => {
                out.push(0);
                append_sized(out, key);
            }
            Partitions::Between(from, to) => {
                out.push(1);
                for bound in [from, to] {
                    out.extend_from_slice(&bound.token.0.to_le_bytes());
                    out.push(option(bound.inclusive, INCLUSIVE) | option(bound.key.is_some(), HAS_KEY));
                    bound.key.into_iter().for_each(|key| append_sized(out, key));
                }
            }
        }
        out.extend_from_slice(&self.slices.count.to_le_bytes());
        out.extend_from_slice(self.slices.bytes);
    }

    /// Reads a message. Whether its positions fit the table is told by [`Read::fits`].
    ///
    /// # Errors
    /// [`NodeError`] for bytes that are not exactly one message, and for a bound whose token is not its
    /// key's.
    pub fn decode(message: &'a [u8]) -> Result<Self, NodeError> {
        let mut reader = Reader::new(message);
        let table = TableId(reader.array("a table's id")?);
        let version = reader.u64("a routing's version")?;
        let since = reader.u64("the age of a replica")?;
        let now = reader.u32("the time of a read")?;
        let gc_before = reader.u32("the time of purging")?;
        let digest = reader.u8("the version of a digest")?;
        let options = options(&mut reader, "the options of a read", REVERSED | BYPASS_CACHE | COUNTED)?;
        let rows = reader.u64("the limit of rows")?;
        let rows_per_partition = reader.u64("the limit of rows of a partition")?;
        let limit = |number: u64| (number != u64::MAX).then_some(number);
        Ok(Self {
            table,
            version,
            since,
            now,
            gc_before,
            digest,
            reversed: options & REVERSED != 0,
            bypass_cache: options & BYPASS_CACHE != 0,
            counted: options & COUNTED != 0,
            rows: limit(rows),
            rows_per_partition: limit(rows_per_partition),
            partitions: partitions(&mut reader)?,
            slices: SliceList::parse(reader)?,
        })
    }

    /// Whether every position has the shape of the table's, and slices ascend without overlap, none of them
    /// empty.
    pub fn fits(&self, table: &Table) -> bool {
        let orders = table.clustering_orders();
        let mut behind = Position::START;
        self.slices.iter().all(|(start, end)| {
            let fits = [start, end].iter().all(|position| position.prefix.is_valid(orders.len()));
            let ascends = fits && behind.compare(start, orders).is_le() && start.compare(end, orders).is_lt();
            behind = end;
            ascends
        })
    }
}

fn options(reader: &mut Reader<'_>, field: &'static str, known: u8) -> Result<u8, NodeError> {
    let options = reader.u8(field)?;
    if options & !known != 0 {
        return Err(NodeError::Unknown { field, value: u64::from(options) });
    }
    Ok(options)
}

fn partitions<'a>(reader: &mut Reader<'a>) -> Result<Partitions<'a>, NodeError> {
    match reader.u8("the kind of a range")? {
        0 => Ok(Partitions::Key(reader.sized("a partition key")?)),
        1 => Ok(Partitions::Between(bound(reader)?, bound(reader)?)),
        kind => Err(NodeError::Unknown { field: "the kind of a range", value: u64::from(kind) }),
    }
}

fn bound<'a>(reader: &mut Reader<'a>) -> Result<Bound<'a>, NodeError> {
    let token = Token(i64::from_le_bytes(reader.array("a bound's token")?));
    let options = options(reader, "the options of a bound", INCLUSIVE | HAS_KEY)?;
    let key = (options & HAS_KEY != 0).then(|| reader.sized("a bound's key")).transpose()?;
    if let Some(of_key) = key.map(murmur3_token)
        && of_key != token
    {
        let reason = format!("its token is {}, and its key's is {}", token.0, of_key.0);
        return Err(NodeError::Invalid { field: "a bound", reason });
    }
    Ok(Bound { token, key, inclusive: options & INCLUSIVE != 0 })
}
