//! The bytes behind a handle of the cache.
//!
//! ```text
//! whole     := flags:u8 kind:u8 next:u32 owner:u32 token:i64 key:u16 clustering:u32
//!              [deletion] key clustering row
//! partition := flags:u8 kind:u8 next:u32 owner:u32 token:i64 key:u16 number:u32 key
//! entry     := flags:u8 kind:u8 number:u32 prefix:u32 prefix row
//! static    := flags:u8 kind:u8 number:u32 row
//! deletion  := timestamp:i64 local_time:u32                        (flags & DELETED)
//! ```
//! All numbers little endian. `whole` is a partition of at most one row that is cached completely (an empty
//! `row`: the partition has none). `partition` names by `number` a [`super::partition::Partition`], to which
//! entries and a static row point back. An entry without a row records that there is no row at its position,
//! or bounds a range that was read. `next` chains partitions in the index.

use memory::{Handle, Region};
use model::clustering::Position;
use model::{Clustering, DeletionTime, RowView, Token};

/// The object was read since its segment was cleaned last.
const TOUCHED: u8 = 1;
/// The cache has every row between an entry and its predecessor.
const CONTINUOUS: u8 = 2;
/// The object has a deletion.
const DELETED: u8 = 4;

pub(super) const NEXT_NONE: u32 = u32::MAX;
const NEXT: usize = 2;
const OWNER: usize = 6;
const KEY: usize = 24;
const DELETION_BYTES: usize = 12;
const PREFIX: usize = 10;

/// Kinds of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A whole partition in one object.
    Whole,
    /// The head of any other partition.
    Partition,
    /// An entry of a partition.
    Entry,
    /// The static row of a partition.
    Static,
}

/// An object's bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Object<'a>(pub(super) &'a [u8]);

impl<'a> Object<'a> {
    #[inline]
    pub(super) fn of(region: &'a Region, handle: Handle) -> Self {
        Self(region.get(handle))
    }

    #[inline]
    pub(super) fn kind(self) -> Kind {
        match self.0[1] {
            0 => Kind::Whole,
            1 => Kind::Partition,
            5 => Kind::Static,
            _ => Kind::Entry,
        }
    }

    pub(super) fn is_touched(self) -> bool {
        self.0[0] & TOUCHED != 0
    }

    #[inline]
    pub(super) fn is_continuous(self) -> bool {
        self.0[0] & CONTINUOUS != 0
    }

    #[inline]
    fn u32(self, at: usize) -> u32 {
        u32::from_le_bytes(self.0[at..at + 4].try_into().expect("four bytes"))
    }

    #[inline]
    pub(super) fn next(self) -> u32 {
        self.u32(NEXT)
    }

    #[inline]
    pub(super) fn owner(self) -> u32 {
        self.u32(OWNER)
    }

    #[inline]
    pub(super) fn token(self) -> Token {
        Token(i64::from_le_bytes(self.0[10..18].try_into().expect("eight bytes")))
    }

    #[inline]
    fn key_length(self) -> usize {
        usize::from(u16::from_le_bytes([self.0[18], self.0[19]]))
    }

    #[inline]
    fn key_start(self) -> usize {
        if self.0[0] & DELETED == 0 { KEY } else { KEY + DELETION_BYTES }
    }

    #[inline]
    pub(super) fn key(self) -> &'a [u8] {
        let start = self.key_start();
        &self.0[start..start + self.key_length()]
    }

    /// Number of the partition that a head, an entry or a static row belongs to.
    #[inline]
    pub(super) fn number(self) -> u32 {
        self.u32(if self.kind() == Kind::Partition { 20 } else { 2 })
    }

    /// Deletion of a partition that is one object.
    #[inline]
    pub(super) fn deletion(self) -> DeletionTime {
        if self.0[0] & DELETED == 0 {
            return DeletionTime::LIVE;
        }
        let timestamp = i64::from_le_bytes(self.0[KEY..KEY + 8].try_into().expect("eight bytes"));
        DeletionTime { timestamp, local_time: self.u32(KEY + 8) }
    }

    /// Clustering and row of a partition that is one object, if it has a row.
    #[inline]
    pub(super) fn only_row(self) -> Option<(&'a [u8], RowView<'a>)> {
        let start = self.key_start() + self.key_length();
        let (clustering, row) = self.0[start..].split_at(self.u32(20) as usize);
        (!row.is_empty()).then(|| (clustering, RowView::trusted(row)))
    }

    /// Position of an entry.
    #[inline]
    pub(super) fn position(self) -> Position<'a> {
        let prefix = &self.0[PREFIX..PREFIX + self.u32(6) as usize];
        Position { prefix: Clustering(prefix), weight: self.0[1] as i8 - 3 }
    }

    /// The row of an entry, if it has one.
    #[inline]
    pub(super) fn row(self) -> Option<RowView<'a>> {
        let row = &self.0[PREFIX + self.u32(6) as usize..];
        (!row.is_empty()).then(|| RowView::trusted(row))
    }

    /// The row of a static object.
    pub(super) fn static_row(self) -> RowView<'a> {
        RowView::trusted(&self.0[6..])
    }
}

pub(super) fn touch(region: &mut Region, handle: Handle) {
    region.get_mut(handle)[0] |= TOUCHED;
}

pub(super) fn untouch(region: &mut Region, handle: Handle) {
    region.get_mut(handle)[0] &= !TOUCHED;
}

pub(super) fn set_continuous(region: &mut Region, handle: Handle, continuous: bool) {
    let flags = &mut region.get_mut(handle)[0];
    *flags = *flags & !CONTINUOUS | if continuous { CONTINUOUS } else { 0 };
}

pub(super) fn set_next(region: &mut Region, handle: Handle, next: u32) {
    region.get_mut(handle)[NEXT..NEXT + 4].copy_from_slice(&next.to_le_bytes());
}

/// A partition's name in the cache.
#[derive(Debug, Clone, Copy)]
pub(super) struct Name<'a> {
    pub(super) owner: u32,
    pub(super) token: Token,
    pub(super) key: &'a [u8],
}

impl Name<'_> {
    fn head(&self, flags: u8, kind: u8, last: u32) -> [u8; KEY] {
        let mut head = [0; KEY];
        (head[0], head[1]) = (flags, kind);
        head[NEXT..NEXT + 4].copy_from_slice(&NEXT_NONE.to_le_bytes());
        head[OWNER..OWNER + 4].copy_from_slice(&self.owner.to_le_bytes());
        head[10..18].copy_from_slice(&self.token.0.to_le_bytes());
        let key = u16::try_from(self.key.len()).expect("a stored key is shorter than 64 KiB");
        head[18..20].copy_from_slice(&key.to_le_bytes());
        head[20..].copy_from_slice(&last.to_le_bytes());
        head
    }
}

fn deletion_bytes(deletion: DeletionTime) -> [u8; DELETION_BYTES] {
    let mut bytes = [0; DELETION_BYTES];
    bytes[..8].copy_from_slice(&deletion.timestamp.to_le_bytes());
    bytes[8..].copy_from_slice(&deletion.local_time.to_le_bytes());
    bytes
}

/// Stores a partition as one object; if `old` is an object, it is replaced.
pub(super) fn store_whole(
    region: &mut Region,
    old: Option<Handle>,
    name: Name<'_>,
    deletion: DeletionTime,
    row: Option<(&[u8], &[u8])>,
) -> Handle {
    let (clustering, row) = row.unwrap_or_default();
    let flags = if deletion.is_live() { 0 } else { DELETED };
    let mut head = name.head(flags, 0, clustering.len() as u32);
    let bytes = deletion_bytes(deletion);
    let deletion: &[u8] = if flags == 0 { &[] } else { &bytes };
    match old {
        None => region.alloc(&[&head, deletion, name.key, clustering, row]),
        Some(handle) => {
            let next = Object::of(region, handle).next();
            head[NEXT..NEXT + 4].copy_from_slice(&next.to_le_bytes());
            region.replace(handle, &[&head, deletion, name.key, clustering, row]);
            handle
        }
    }
}

/// Most bytes that [`store_whole`] stores.
pub(super) fn whole_bytes(key: usize, clustering: usize, row: usize) -> usize {
    KEY + DELETION_BYTES + key + clustering + row
}

/// Makes `old`, or a new object, the head of partition `number`.
pub(super) fn store_partition(
    region: &mut Region,
    old: Option<Handle>,
    name: Name<'_>,
    number: u32,
) -> Handle {
    let mut head = name.head(0, 1, number);
    match old {
        None => region.alloc(&[&head, name.key]),
        Some(handle) => {
            let next = Object::of(region, handle).next();
            head[NEXT..NEXT + 4].copy_from_slice(&next.to_le_bytes());
            region.replace(handle, &[&head, name.key]);
            handle
        }
    }
}

fn entry_head(flags: u8, number: u32, position: Position<'_>) -> [u8; PREFIX] {
    let mut head = [0; PREFIX];
    (head[0], head[1]) = (flags, (position.weight + 3) as u8);
    head[2..6].copy_from_slice(&number.to_le_bytes());
    head[6..].copy_from_slice(&(position.prefix.0.len() as u32).to_le_bytes());
    head
}

/// Bytes that [`store_entry`] stores.
pub(super) fn entry_bytes(prefix: usize, row: usize) -> usize {
    PREFIX + prefix + row
}

/// Stores an entry.
pub(super) fn store_entry(
    region: &mut Region,
    number: u32,
    position: Position<'_>,
    row: &[u8],
    continuous: bool,
) -> Handle {
    let head = entry_head(if continuous { CONTINUOUS } else { 0 }, number, position);
    region.alloc(&[&head, position.prefix.0, row])
}

/// Replaces the row of an entry.
pub(super) fn replace_entry(region: &mut Region, handle: Handle, prefix: &[u8], row: &[u8]) {
    let head: [u8; PREFIX] = region.get(handle)[..PREFIX].try_into().expect("the head of an entry");
    region.replace(handle, &[&head, prefix, row]);
}

/// Stores a static row; if `old` is an object, it is replaced.
pub(super) fn store_static(region: &mut Region, old: Handle, number: u32, row: &[u8]) -> Handle {
    let mut head = [0, 5, 0, 0, 0, 0];
    head[2..].copy_from_slice(&number.to_le_bytes());
    if old.is_none() {
        return region.alloc(&[&head, row]);
    }
    region.replace(old, &[&head, row]);
    old
}
