//! The list of cached partitions and slices, from which a start reads the cache back.
//!
//! ```text
//! file      := "ceto rc1" partition* crc:u32                            (CRC-32 of all before)
//! partition := table:16 key:u16 slices:u16 key-bytes slice*             (0 slices: all of it)
//! slice     := weight:i8 prefix:u32 prefix-bytes weight:i8 prefix:u32 prefix-bytes
//! ```
//! All numbers little endian. Partitions come hottest first: from the newest segment to the oldest, and
//! within each those that were read before those that were only written. The list is advice: a damaged list,
//! or one that names partitions that are gone, only costs the time to find out.

use std::collections::VecDeque;
use std::rc::Rc;

use memory::Handle;
use model::TableId;
use model::clustering::{Clustering, ClusteringOrder, OwnedPosition, Position, Slice};

use super::object::{Kind, Object};
use super::{Inner, RowCache};

const MAGIC: &[u8; 8] = b"ceto rc1";
const CRC_BYTES: usize = 4;
/// Runs of rows listed for one partition.
const RUNS_MAX: usize = 128;
/// Entries of one partition that are examined.
const ENTRIES_MAX: usize = 4096;
/// Bytes of a partition's header in the list, without the key.
const LEAST_BYTES: usize = 20;
/// Partitions in one piece of a decoded list.
const PIECE: usize = 1024;
/// Bytes that are checksummed before other tasks may run.
const PIECE_BYTES: usize = 256 << 10;
/// Most bytes of a list; the coldest partitions are left out.
pub(crate) const SAVED_BYTES_MAX: usize = 16 << 20;

/// Part of a partition that was cached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Saved {
    pub(crate) table: TableId,
    pub(crate) key: Vec<u8>,
    /// Empty: the whole partition.
    pub(crate) slices: Vec<Slice>,
}

/// A list that is being made.
pub(crate) struct List {
    bytes: Vec<u8>,
    left: usize,
}

impl List {
    /// An empty list that takes at most `partitions_max` partitions.
    pub(crate) fn new(partitions_max: usize) -> Self {
        // Untouched memory costs nothing; growing the list would copy megabytes at once.
        let mut bytes = Vec::with_capacity(SAVED_BYTES_MAX);
        bytes.extend_from_slice(MAGIC);
        Self { bytes, left: partitions_max }
    }

    fn is_full(&self) -> bool {
        self.left == 0
    }

    fn push(&mut self, table: TableId, key: &[u8], slices: &[(Position<'_>, Position<'_>)]) {
        let prefixes = |(a, b): &(Position<'_>, Position<'_>)| a.prefix.0.len() + b.prefix.0.len() + 10;
        let length = LEAST_BYTES + key.len() + slices.iter().map(prefixes).sum::<usize>();
        if self.bytes.len() + length + CRC_BYTES > SAVED_BYTES_MAX {
            self.left = 0;
            return;
        }
        self.left -= 1;
        self.bytes.extend_from_slice(&table.0);
        self.bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
        self.bytes.extend_from_slice(&(slices.len() as u16).to_le_bytes());
        self.bytes.extend_from_slice(key);
        for position in slices.iter().flat_map(|(start, end)| [start, end]) {
            self.bytes.push(position.weight as u8);
            self.bytes.extend_from_slice(&(position.prefix.0.len() as u32).to_le_bytes());
            self.bytes.extend_from_slice(position.prefix.0);
        }
    }

    /// The file's bytes. Lets other tasks run meanwhile.
    pub(crate) async fn finish(mut self) -> Vec<u8> {
        let crc = checksum(&self.bytes).await;
        self.bytes.extend_from_slice(&crc.to_le_bytes());
        self.bytes
    }
}

async fn checksum(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for piece in bytes.chunks(PIECE_BYTES) {
        hasher.update(piece);
        reactor::maybe_yield().await;
    }
    hasher.finalize()
}

/// Partitions read from a list, hottest first; in pieces, so that it grows without moving.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pieces: VecDeque<VecDeque<Saved>>,
    left: usize,
}

impl Taken {
    fn push(&mut self, saved: Saved) {
        if self.pieces.back().is_none_or(|piece| piece.len() == PIECE) {
            self.pieces.push_back(VecDeque::with_capacity(PIECE));
        }
        self.pieces.back_mut().expect("there is a piece").push_back(saved);
        self.left += 1;
    }

    /// Takes the next partition.
    pub(crate) fn pop(&mut self) -> Option<Saved> {
        let piece = self.pieces.front_mut()?;
        let saved = piece.pop_front()?;
        if piece.is_empty() {
            self.pieces.pop_front();
        }
        self.left -= 1;
        Some(saved)
    }

    /// Number of partitions left.
    pub(crate) fn len(&self) -> usize {
        self.left
    }
}

/// Reads the first `most` partitions of a list that are `wanted`; `None` if the list is damaged. Lets other
/// tasks run meanwhile.
pub(crate) async fn decode(bytes: &[u8], most: usize, wanted: impl Fn(&Saved) -> bool) -> Option<Taken> {
    let (content, crc) = bytes.split_last_chunk::<CRC_BYTES>()?;
    if checksum(content).await != u32::from_le_bytes(*crc) {
        return None;
    }
    let mut rest = content.strip_prefix(MAGIC)?;
    let mut list = Taken::default();
    while !rest.is_empty() && list.left < most {
        reactor::maybe_yield().await;
        let table = TableId(*take(&mut rest)?);
        let key = u16::from_le_bytes(*take(&mut rest)?);
        let slices = u16::from_le_bytes(*take(&mut rest)?);
        let key = take_slice(&mut rest, usize::from(key))?.to_vec();
        let slices = (0..slices)
            .map(|_| Some(Slice { start: take_position(&mut rest)?, end: take_position(&mut rest)? }))
            .collect::<Option<Vec<_>>>()?;
        let saved = Saved { table, key, slices };
        if wanted(&saved) {
            list.push(saved);
        }
    }
    Some(list)
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (taken, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(taken)
}

fn take_slice<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(taken)
}

fn take_position(rest: &mut &[u8]) -> Option<OwnedPosition> {
    let [weight] = *take::<1>(rest)?;
    let weight = weight as i8;
    let length = u32::from_le_bytes(*take(rest)?);
    let prefix = take_slice(rest, length as usize)?.to_vec();
    (weight == -1 || weight == 1).then_some(OwnedPosition { prefix, weight })
}

impl Saved {
    /// Whether its slices are valid for a table with `columns` clustering columns.
    pub(crate) fn fits(&self, columns: usize) -> bool {
        let bounds = self.slices.iter().flat_map(|slice| [&slice.start, &slice.end]);
        bounds.into_iter().all(|bound| Clustering(&bound.prefix).is_valid(columns))
    }
}

impl RowCache {
    /// Most steps that listing takes: one per segment.
    pub(crate) fn list_steps(&self) -> usize {
        self.inner.borrow().region.age_count()
    }

    /// Adds the partitions in the segment of that age (0 is the newest); returns whether the list takes more.
    pub(crate) fn list(&self, age: usize, list: &mut List) -> bool {
        let inner = self.inner.borrow();
        let mut handles = Vec::new();
        inner.region.objects_of_age(age, &mut handles);
        for touched in [true, false] {
            for handle in &handles {
                if list.is_full() {
                    return false;
                }
                if Object::of(&inner.region, *handle).is_touched() == touched {
                    inner.list_object(*handle, list);
                }
            }
        }
        true
    }
}

impl Inner {
    fn list_object(&self, handle: Handle, list: &mut List) {
        let object = Object::of(&self.region, handle);
        let table = |owner: u32| {
            self.owners.get(&owner).filter(|owner| owner.alive).map(|owner| Rc::clone(&owner.table))
        };
        match object.kind() {
            Kind::Entry | Kind::Static => {}
            Kind::Whole => {
                // An empty partition is not listed: reading it again is cheap.
                if let Some(table) = table(object.owner()).filter(|_| object.only_row().is_some()) {
                    list.push(table.id(), object.key(), &[]);
                }
            }
            Kind::Partition => {
                let Some(table) = table(object.owner()) else { return };
                let runs = self.runs(object.number(), table.clustering_orders());
                if let [(Position::START, Position::END)] = runs[..] {
                    list.push(table.id(), object.key(), &[]);
                } else if !runs.is_empty() {
                    list.push(table.id(), object.key(), &runs);
                }
            }
        }
    }

    /// The first runs of cached rows of a partition, as bounds around them.
    fn runs(&self, number: u32, orders: &[ClusteringOrder]) -> Vec<(Position<'_>, Position<'_>)> {
        let partition = self.partitions.get(number);
        let (entries, forest, region) = (&partition.entries, &self.forest, &self.region);
        let (mut spot, _) = entries.seek(forest, region, Position::START, orders);
        let mut runs: Vec<(Position<'_>, Position<'_>)> = Vec::new();
        for _ in 0..ENTRIES_MAX {
            let Some(handle) = entries.at(forest, spot) else {
                if partition.to_end {
                    match runs.last_mut() {
                        Some(last) => last.1 = Position::END,
                        None => runs.push((Position::START, Position::END)),
                    }
                }
                break;
            };
            let object = Object::of(region, handle);
            let position = object.position();
            let ends = |weight: i8| Position { weight, ..position };
            let (before, behind) =
                if position.weight == 0 { (ends(-1), ends(1)) } else { (position, position) };
            let count = runs.len();
            match runs.last_mut() {
                Some(last) if object.is_continuous() => last.1 = behind,
                None if object.is_continuous() => runs.push((Position::START, behind)),
                _ if count == RUNS_MAX => break,
                _ => runs.push((before, behind)),
            }
            spot = entries.next(forest, spot);
        }
        runs.retain(|(start, end)| start != end);
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_comes_back_whole_or_not_at_all() {
        reactor::sim::run_one(1, comes_back_whole_or_not_at_all);
    }

    async fn comes_back_whole_or_not_at_all() {
        let mut prefix = Vec::new();
        model::clustering::append_component(&mut prefix, Some(b"five"));
        let slices = [(Position::START, Position::after(&prefix))];
        let mut list = List::new(2);
        list.push(TableId([3; 16]), b"key", &slices);
        list.push(TableId([4; 16]), b"", &[]);
        assert!(list.is_full());
        let bytes = list.finish().await;
        let slices =
            vec![Slice { start: Position::START.to_owned(), end: Position::after(&prefix).to_owned() }];
        let saved = [
            Saved { table: TableId([3; 16]), key: b"key".to_vec(), slices },
            Saved { table: TableId([4; 16]), key: vec![], slices: vec![] },
        ];
        let mut taken = decode(&bytes, 2, |_| true).await.unwrap();
        assert_eq!((taken.len(), taken.pop().as_ref(), taken.len()), (2, Some(&saved[0]), 1));
        assert_eq!((taken.pop().as_ref(), taken.pop(), taken.len()), (Some(&saved[1]), None, 0));
        let wanted = |one: &Saved| one.table == saved[1].table;
        assert_eq!(decode(&bytes, 2, wanted).await.unwrap().pop().as_ref(), Some(&saved[1]));
        assert_eq!(decode(&bytes, 1, |_| true).await.unwrap().len(), 1);
        assert!(saved[0].fits(1) && !saved[0].fits(0));
        for at in 0..bytes.len() {
            assert!(decode(&bytes[..at], 2, |_| true).await.is_none(), "cut at {at}");
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert!(decode(&damaged, 2, |_| true).await.is_none(), "byte {at}");
        }
    }
}
