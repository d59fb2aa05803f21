//! Decodes rows and range tombstone markers. Grammar: `data`.
//!
//! Two steps. [`head`] finds the kind of item at an offset, its clustering and its length, so that the caller
//! can bring all of it into memory. [`row`] and [`marker`] then decode it. A head that lacks bytes returns
//! [`Problem::Truncated`], which asks for more bytes as long as the file has more, and only then is an error.

use model::clustering::{CLUSTERING_VALUE_BYTES_MAX, append_component};
use model::deletion::{DeletionTime, LocalSeconds, NO_LOCAL_TIME};
use model::row::{CellKind, CellView, RowBuilder};
use model::{Liveness, counter};
use smallvec::SmallVec;

use super::{BITMAP_COLUMNS_MAX, VALUES_PER_HEADER, flags, kind};
use crate::error::Malformed;
use crate::input::Input;
use crate::layout::{Layout, Slot, Slots};

/// Longest row or marker that is read: the greatest 32-bit signed number, as in Cassandra. No mutation comes
/// near it, but many updates of one collection merge into one row.
pub(crate) const ROW_BYTES_MAX: u64 = i32::MAX as u64;
/// First byte of an absent deletion, if times are unsigned.
const NOT_DELETED: u8 = 0x80;
/// Cells of a row that are sorted without touching the heap.
const CELLS_INLINE: usize = 24;

/// The item at an offset of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Head {
    /// The end of the partition.
    End,
    /// A row.
    Row(Item),
    /// A range tombstone marker of a kind.
    Marker(u8, Item),
}

/// A row or a marker, with the offsets of its parts from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) flags: u8,
    pub(crate) is_static: bool,
    /// Offset of the body, behind its size.
    pub(crate) body: usize,
    /// Offset of the next item.
    pub(crate) length: usize,
}

/// Decodes the head of the item at the start of `input`, and appends its clustering to `clustering` in the
/// model's form.
pub(crate) fn head(
    layout: &Layout,
    input: &mut Input<'_>,
    clustering: &mut Vec<u8>,
) -> Result<Head, Malformed> {
    let start = input.offset();
    let bits = input.u8()?;
    if bits & flags::END_OF_PARTITION != 0 {
        return Ok(Head::End);
    }
    let extension = if bits & flags::EXTENSION != 0 { input.u8()? } else { 0 };
    if extension & !(flags::IS_STATIC | flags::SHADOWABLE_DELETION) != 0 {
        return Err(Malformed::invalid(start + 1, "unknown flags of a row"));
    }
    let is_static = extension & flags::IS_STATIC != 0;
    clustering.clear();
    let mut marker = None;
    if bits & flags::IS_MARKER != 0 {
        let kind = input.u8()?;
        let at = input.offset();
        let count = usize::from(input.u16()?);
        if count > layout.clusterings.len() {
            let limit = layout.clusterings.len() as u64;
            return Err(Malformed::over(at, "number of clustering components", count as u64, limit));
        }
        weight(kind).ok_or(Malformed::invalid(at - 1, "unknown kind of range tombstone"))?;
        values(&layout.clusterings, input, count, clustering)?;
        marker = Some(kind);
    } else if !is_static {
        values(&layout.clusterings, input, layout.clusterings.len(), clustering)?;
    }
    let at = input.offset();
    let size = input.vint()?;
    if size > ROW_BYTES_MAX {
        return Err(Malformed::over(at, "size of a row", size, ROW_BYTES_MAX));
    }
    let body = (input.offset() - start) as usize;
    let item = Item { flags: bits, is_static, body, length: body + size as usize };
    Ok(marker.map_or(Head::Row(item), |kind| Head::Marker(kind, item)))
}

/// The weight of the position of a bound or boundary; `None` for other kinds.
pub(crate) fn weight(kind: u8) -> Option<i8> {
    match kind {
        kind::EXCL_END | kind::INCL_START | kind::EXCL_END_INCL_START => Some(-1),
        kind::INCL_END_EXCL_START | kind::INCL_END | kind::EXCL_START => Some(1),
        _ => None,
    }
}

/// Appends `count` clustering values in the model's form; `lengths` are the fixed lengths of the types.
fn values(
    lengths: &[Option<usize>],
    input: &mut Input<'_>,
    count: usize,
    out: &mut Vec<u8>,
) -> Result<(), Malformed> {
    let mut header = 0;
    for (index, length) in lengths.iter().enumerate().take(count) {
        if index % VALUES_PER_HEADER == 0 {
            header = input.vint()?;
        }
        let bits = header >> (2 * (index % VALUES_PER_HEADER)) & 3;
        if bits & 2 != 0 {
            append_component(out, None);
        } else if bits & 1 != 0 {
            append_component(out, Some(&[]));
        } else {
            let value = match length {
                Some(length) => input.take(*length)?,
                None => input.sized("length of a clustering value", CLUSTERING_VALUE_BYTES_MAX)?,
            };
            append_component(out, Some(value));
        }
    }
    Ok(())
}

/// Skips the prefix of an index block and appends it in the model's form; returns its weight (0 for a row).
pub(crate) fn prefix(layout: &Layout, input: &mut Input<'_>, out: &mut Vec<u8>) -> Result<i8, Malformed> {
    let at = input.offset();
    let kind = input.u8()?;
    if kind == kind::CLUSTERING {
        values(&layout.clusterings, input, layout.clusterings.len(), out)?;
        return Ok(0);
    }
    bound_of_kind(&layout.clusterings, kind, at, input, out)
}

/// Reads a bound of a slice and appends it in the model's form; returns its weight.
pub(crate) fn bound(
    lengths: &[Option<usize>],
    input: &mut Input<'_>,
    out: &mut Vec<u8>,
) -> Result<i8, Malformed> {
    let at = input.offset();
    let kind = input.u8()?;
    bound_of_kind(lengths, kind, at, input, out)
}

fn bound_of_kind(
    lengths: &[Option<usize>],
    kind: u8,
    at: u64,
    input: &mut Input<'_>,
    out: &mut Vec<u8>,
) -> Result<i8, Malformed> {
    let weight = weight(kind).ok_or(Malformed::invalid(at, "unknown kind of clustering"))?;
    let count = usize::from(input.u16()?);
    if count > lengths.len() {
        return Err(Malformed::over(
            at + 1,
            "number of clustering components",
            count as u64,
            lengths.len() as u64,
        ));
    }
    values(lengths, input, count, out)?;
    Ok(weight)
}

fn timestamp(layout: &Layout, input: &mut Input<'_>) -> Result<i64, Malformed> {
    Ok((input.vint()? as i64).wrapping_add(layout.minima.timestamp))
}

fn local_time(layout: &Layout, input: &mut Input<'_>) -> Result<LocalSeconds, Malformed> {
    let at = input.offset();
    let difference = i32::try_from(input.vint()? as i64).map_err(|_| out_of_range(at))?;
    Ok(model_time(layout, difference.wrapping_add(layout.minima.local_deletion_time)))
}

fn out_of_range(at: u64) -> Malformed {
    Malformed::invalid(at, "a local time out of range")
}

/// A stored time in the model's form. Files with overflowed times exist (CASSANDRA-14092): they are read as
/// the latest time of the version, which keeps the data.
fn model_time(layout: &Layout, time: i32) -> LocalSeconds {
    if layout.unsigned_times {
        time as u32
    } else if time == i32::MAX {
        NO_LOCAL_TIME
    } else {
        u32::try_from(time).unwrap_or(crate::statistics::SIGNED_TIME_MAX)
    }
}

fn ttl(layout: &Layout, input: &mut Input<'_>) -> Result<u32, Malformed> {
    let at = input.offset();
    (input.vint()? as i64)
        .checked_add(i64::from(layout.minima.ttl))
        .and_then(|ttl| i32::try_from(ttl).ok())
        .and_then(|ttl| u32::try_from(ttl).ok())
        .ok_or(Malformed::invalid(at, "a time to live out of range"))
}

/// A deletion of a row, a range or a collection.
fn deletion(layout: &Layout, input: &mut Input<'_>) -> Result<DeletionTime, Malformed> {
    let deletion =
        DeletionTime { timestamp: timestamp(layout, input)?, local_time: local_time(layout, input)? };
    Ok(if deletion.is_live() { DeletionTime::LIVE } else { deletion })
}

/// A deletion in the form of partition headers and index entries.
pub(crate) fn whole_deletion(layout: &Layout, input: &mut Input<'_>) -> Result<DeletionTime, Malformed> {
    let (timestamp, local_time) = if layout.unsigned_times {
        // The sign bit marks an absent deletion, and nothing more follows then.
        let at = input.offset();
        match input.clone().u8()? {
            NOT_DELETED => {
                input.u8()?;
                return Ok(DeletionTime::LIVE);
            }
            flags if flags & NOT_DELETED != 0 => {
                return Err(Malformed::invalid(at, "unknown flags of a deletion"));
            }
            _ => {}
        }
        let timestamp = input.i64()?;
        (timestamp, input.i32()?)
    } else {
        let local_time = input.i32()?;
        (input.i64()?, local_time)
    };
    let deletion = DeletionTime { timestamp, local_time: model_time(layout, local_time) };
    Ok(if deletion.is_live() { DeletionTime::LIVE } else { deletion })
}

/// The deletions that a marker closes and opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Marker {
    /// In force before the marker, according to the marker.
    pub(crate) before: DeletionTime,
    /// In force behind the marker.
    pub(crate) after: DeletionTime,
}

/// Decodes the body of a marker.
pub(crate) fn marker(layout: &Layout, kind: u8, input: &mut Input<'_>) -> Result<Marker, Malformed> {
    let _previous = input.vint()?;
    let first = deletion(layout, input)?;
    let marker = match kind {
        kind::INCL_START | kind::EXCL_START => Marker { before: DeletionTime::LIVE, after: first },
        kind::EXCL_END | kind::INCL_END => Marker { before: first, after: DeletionTime::LIVE },
        _ => Marker { before: first, after: deletion(layout, input)? },
    };
    if input.remaining() != 0 {
        return Err(Malformed::invalid(input.offset(), "a marker is longer than what it says"));
    }
    Ok(marker)
}

/// Decodes the body of a row and appends it to `out` in the model's form. A row that has nothing left without
/// dropped columns is empty.
pub(crate) fn row(
    layout: &Layout,
    item: Item,
    input: &mut Input<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Malformed> {
    let slots = if item.is_static { &layout.statics } else { &layout.regulars };
    let has = |flag: u8| item.flags & flag != 0;
    let _previous = input.vint()?;
    let mut liveness = Liveness::NONE;
    if has(flags::HAS_TIMESTAMP) {
        liveness = Liveness { timestamp: timestamp(layout, input)?, ttl: 0, expires_at: NO_LOCAL_TIME };
        if has(flags::HAS_TTL) {
            liveness.ttl = ttl(layout, input)?;
            liveness.expires_at = local_time(layout, input)?;
        }
    }
    let row_deletion = if has(flags::HAS_DELETION) { deletion(layout, input)? } else { DeletionTime::LIVE };
    let missing =
        if has(flags::HAS_ALL_COLUMNS) { Missing::None } else { Missing::decode(input, slots.list.len())? };
    let reader = CellReader { layout, liveness, complex_deletions: has(flags::HAS_COMPLEX_DELETION) };
    let start = out.len();
    let mut row = RowBuilder::new(out, liveness, row_deletion);
    let result = if slots.in_id_order {
        reader.cells(slots, &missing, input, &mut |cell| row.cell(cell))
    } else {
        let mut cells: SmallVec<[CellView<'_>; CELLS_INLINE]> = SmallVec::new();
        let result = reader.cells(slots, &missing, input, &mut |cell| cells.push(cell));
        cells.sort_by_key(|cell| cell.column);
        cells.into_iter().for_each(|cell| row.cell(cell));
        result
    };
    row.finish();
    if result.is_err() {
        out.truncate(start);
    } else if input.remaining() != 0 {
        return Err(Malformed::invalid(input.offset(), "a row is longer than its cells"));
    }
    result
}

/// The file's columns that a row lacks.
enum Missing {
    None,
    Bits(u64),
    /// One flag for each slot.
    List(Vec<bool>),
}

impl Missing {
    fn decode(input: &mut Input<'_>, columns: usize) -> Result<Self, Malformed> {
        let at = input.offset();
        let encoded = input.vint()?;
        if encoded == 0 {
            return Ok(Self::None);
        }
        if columns < BITMAP_COLUMNS_MAX {
            let excess = encoded >> columns;
            return if excess == 0 {
                Ok(Self::Bits(encoded))
            } else {
                Err(Malformed::invalid(at, "more missing columns than there are columns"))
            };
        }
        if encoded > columns as u64 {
            return Err(Malformed::over(at, "number of missing columns", encoded, columns as u64));
        }
        let present = columns - encoded as usize;
        // The shorter list is stored: that of the present columns if they are fewer than half.
        let lists_present = present < columns / 2;
        let mut missing = vec![lists_present; columns];
        for _ in 0..if lists_present { present } else { encoded as usize } {
            let at = input.offset();
            let slot = input.vint()?;
            let flag = usize::try_from(slot)
                .ok()
                .and_then(|slot| missing.get_mut(slot))
                .ok_or(Malformed::over(at, "column", slot, columns as u64 - 1))?;
            *flag = !lists_present;
        }
        Ok(Self::List(missing))
    }

    fn contains(&self, slot: usize) -> bool {
        match self {
            Self::None => false,
            Self::Bits(bits) => bits >> slot & 1 != 0,
            Self::List(missing) => missing[slot],
        }
    }
}

struct CellReader<'l> {
    layout: &'l Layout,
    liveness: Liveness,
    complex_deletions: bool,
}

impl CellReader<'_> {
    fn cells<'a>(
        &self,
        slots: &Slots,
        missing: &Missing,
        input: &mut Input<'a>,
        emit: &mut impl FnMut(CellView<'a>),
    ) -> Result<(), Malformed> {
        for (index, slot) in slots.list.iter().enumerate() {
            if missing.contains(index) {
                continue;
            }
            if !slot.complex {
                self.cell(slot, input, emit)?;
                continue;
            }
            if self.complex_deletions {
                let deletion = deletion(self.layout, input)?;
                if let Some(column) = slot.id
                    && !deletion.is_live()
                    && deletion.timestamp > slot.dropped_at_us
                {
                    let kind = CellKind::CollectionDeletion { local_time: deletion.local_time };
                    emit(CellView { column, timestamp: deletion.timestamp, path: None, kind });
                }
            }
            let count = input.vint()?;
            for _ in 0..input.fits("number of cells of a collection", count, 2)? {
                self.cell(slot, input, emit)?;
            }
        }
        Ok(())
    }

    #[inline]
    fn cell<'a>(
        &self,
        slot: &Slot,
        input: &mut Input<'a>,
        emit: &mut impl FnMut(CellView<'a>),
    ) -> Result<(), Malformed> {
        let at = input.offset();
        let bits = input.u8()?;
        let value = |input: &mut Input<'a>| match slot.value_length {
            Some(length) => input.take(length),
            None => input.sized("length of a value", ROW_BYTES_MAX as usize),
        };
        // The usual cell, as old as its row: what follows gives the same for it.
        if bits == flags::CELL_ROW_TIMESTAMP
            && let Some(column) = slot.plain
            && !self.liveness.is_none()
        {
            let kind = CellKind::Live(value(input)?);
            emit(CellView { column, timestamp: self.liveness.timestamp, path: None, kind });
            return Ok(());
        }
        let has = |flag: u8| bits & flag != 0;
        let (deleted, expiring, row_ttl) =
            (has(flags::CELL_DELETED), has(flags::CELL_EXPIRING), has(flags::CELL_ROW_TTL));
        let contradiction = (deleted && expiring)
            || (has(flags::CELL_ROW_TIMESTAMP) && self.liveness.is_none())
            || (row_ttl && (!expiring || self.liveness.ttl == 0));
        if bits & !flags::CELL_ALL != 0 || contradiction {
            return Err(Malformed::invalid(at, "flags of a cell that exclude each other"));
        }
        let timestamp = if has(flags::CELL_ROW_TIMESTAMP) {
            self.liveness.timestamp
        } else {
            timestamp(self.layout, input)?
        };
        let time = match (row_ttl, deleted || expiring) {
            (true, _) => self.liveness.expires_at,
            (false, true) => local_time(self.layout, input)?,
            (false, false) => NO_LOCAL_TIME,
        };
        let ttl = match (row_ttl, expiring) {
            (true, _) => self.liveness.ttl,
            (false, true) => ttl(self.layout, input)?,
            (false, false) => 0,
        };
        let path =
            if slot.complex { Some(input.sized("length of a path", ROW_BYTES_MAX as usize)?) } else { None };
        let value = if has(flags::CELL_EMPTY) { &[][..] } else { value(input)? };
        let kind = if deleted {
            CellKind::Tombstone { local_time: time }
        } else if expiring && ttl != 0 {
            CellKind::Expiring { value, ttl, expires_at: time }
        } else if slot.counter {
            if counter::shards(value).is_none() {
                return Err(Malformed::invalid(at, "a counter that is no context"));
            }
            CellKind::Counter(value)
        } else {
            CellKind::Live(value)
        };
        if let Some(column) = slot.id
            && (timestamp > slot.dropped_at_us || slot.dropped_at_us == i64::MIN)
        {
            emit(CellView { column, timestamp, path, kind });
        }
        Ok(())
    }
}
