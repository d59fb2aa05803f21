//! Encodes rows and range tombstone markers. Grammar: `data`; sets of 64 columns and more:
//!
//! ```text
//! columns := missing:vint (present:vint* | absent:vint*)     (whichever the count of missing ones implies)
//! ```
//! Numbers are written relative to the header's minima and wrap, so that no value is out of range.

use model::clustering::{Clustering, Position};
use model::deletion::{DeletionTime, LocalSeconds, NO_LOCAL_TIME, NO_TIMESTAMP};
use model::row::{CellKind, CellView, RowView};
use model::{Liveness, vint};
use smallvec::SmallVec;

use super::{BITMAP_COLUMNS_MAX, VALUES_PER_HEADER, flags, kind};
use crate::error::SstableError;
use crate::input::append_sized;
use crate::layout::{Layout, Slot, Slots};

/// Cells of a row that are sorted without touching the heap.
const CELLS_INLINE: usize = 24;

/// Converts a local time into a number that the version can store.
fn stored_time(layout: &Layout, time: LocalSeconds) -> i64 {
    if layout.unsigned_times {
        i64::from(time)
    } else if time == NO_LOCAL_TIME {
        i64::from(i32::MAX)
    } else {
        i64::from(time.min(crate::statistics::SIGNED_TIME_MAX))
    }
}

#[inline]
pub(super) fn append_timestamp(layout: &Layout, out: &mut Vec<u8>, timestamp: i64) {
    vint::append_unsigned(out, timestamp.wrapping_sub(layout.minima.timestamp) as u64);
}

fn append_time(layout: &Layout, out: &mut Vec<u8>, time: LocalSeconds) {
    let difference = stored_time(layout, time) - i64::from(layout.minima.local_deletion_time);
    // A 32-bit difference, sign extended, as by Java's cast.
    vint::append_unsigned(out, i64::from(difference as i32) as u64);
}

fn append_ttl(layout: &Layout, out: &mut Vec<u8>, ttl: u32) {
    vint::append_unsigned(out, (i64::from(ttl) - i64::from(layout.minima.ttl)) as u64);
}

fn append_deletion(layout: &Layout, out: &mut Vec<u8>, deletion: DeletionTime) {
    append_timestamp(layout, out, deletion.timestamp);
    append_time(layout, out, deletion.local_time);
}

/// Appends a deletion in the form of partition headers and index entries: 12 bytes up to version `nb`.
pub(crate) fn append_whole_deletion(layout: &Layout, out: &mut Vec<u8>, deletion: DeletionTime) {
    let deletion = if deletion.is_live() { DeletionTime::LIVE } else { deletion };
    let time = stored_time(layout, deletion.local_time);
    out.extend_from_slice(&(time as u32).to_be_bytes());
    out.extend_from_slice(&deletion.timestamp.to_be_bytes());
}

/// Appends the values of a clustering prefix, without their number.
pub(super) fn append_values(
    layout: &Layout,
    out: &mut Vec<u8>,
    prefix: Clustering<'_>,
) -> Result<usize, SstableError> {
    let mut count = 0;
    let mut components = prefix.components();
    loop {
        let (mut header, mut length) = (0u64, 0);
        for value in components.clone().take(VALUES_PER_HEADER) {
            header |= match value {
                None => 2,
                Some([]) => 1,
                Some(_) => 0,
            } << (2 * length);
            length += 1;
        }
        if length == 0 {
            return Ok(count);
        }
        vint::append_unsigned(out, header);
        for value in components.by_ref().take(length) {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                match layout.clusterings.get(count).copied().flatten() {
                    Some(expected) if expected != value.len() => {
                        let column = format!("clustering column {count}");
                        return Err(SstableError::Value { column, expected, found: value.len() });
                    }
                    Some(_) => out.extend_from_slice(value),
                    None => append_sized(out, value),
                }
            }
            count += 1;
        }
    }
}

/// Buffers in which rows are encoded, kept from row to row.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    body: Vec<u8>,
    /// The clustering of the item appended last, in the form of the promoted index.
    pub(crate) name: Vec<u8>,
}

/// Appends a row; `clustering` is `None` for the static row. `previous` is the size of the item before it.
pub(crate) fn append_row(
    layout: &Layout,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
    clustering: Option<&[u8]>,
    row: RowView<'_>,
    previous: u64,
) -> Result<(), SstableError> {
    let slots = if clustering.is_some() { &layout.regulars } else { &layout.statics };
    let mut cells: SmallVec<[(usize, CellView<'_>); CELLS_INLINE]> =
        row.cells().filter_map(|cell| Some((slots.of(cell.column)?, cell))).collect();
    if !slots.in_id_order {
        cells.sort_by_key(|(slot, _)| *slot);
    }
    let present = cells.chunk_by(|a, b| a.0 == b.0).count();
    let complex_deletion =
        cells.iter().any(|(_, cell)| matches!(cell.kind, CellKind::CollectionDeletion { .. }));

    let (liveness, deletion) = (row.liveness(), row.deletion());
    let mut bits = 0;
    let mut set = |condition: bool, bit: u8| bits |= if condition { bit } else { 0 };
    set(!liveness.is_none(), flags::HAS_TIMESTAMP);
    set(!liveness.is_none() && liveness.ttl != 0, flags::HAS_TTL);
    set(!deletion.is_live(), flags::HAS_DELETION);
    set(complex_deletion, flags::HAS_COMPLEX_DELETION);
    set(present == slots.list.len(), flags::HAS_ALL_COLUMNS);
    set(clustering.is_none(), flags::EXTENSION);

    out.push(bits);
    if let Some(clustering) = clustering {
        let start = out.len();
        let count = append_values(layout, out, Clustering(clustering))?;
        assert_eq!(count, layout.clusterings.len(), "a row has all clustering columns");
        scratch.name.clear();
        scratch.name.push(kind::CLUSTERING);
        scratch.name.extend_from_slice(&out[start..]);
    } else {
        out.push(flags::IS_STATIC);
    }

    let body = &mut scratch.body;
    body.clear();
    vint::append_unsigned(body, previous);
    if !liveness.is_none() {
        append_timestamp(layout, body, liveness.timestamp);
        if liveness.ttl != 0 {
            append_ttl(layout, body, liveness.ttl);
            append_time(layout, body, liveness.expires_at);
        }
    }
    if !deletion.is_live() {
        append_deletion(layout, body, deletion);
    }
    if present != slots.list.len() {
        append_present(body, slots, cells.chunk_by(|a, b| a.0 == b.0).map(|cells| cells[0].0), present);
    }
    for column in cells.chunk_by(|a, b| a.0 == b.0) {
        append_column(layout, body, &slots.list[column[0].0], column, complex_deletion, liveness)?;
    }
    vint::append_unsigned(out, body.len() as u64);
    out.extend_from_slice(body);
    Ok(())
}

/// Appends a value, with its length if the type has no fixed length; nothing for an empty one.
#[inline]
pub(super) fn append_value(out: &mut Vec<u8>, slot: &Slot, value: &[u8]) -> Result<(), SstableError> {
    if value.is_empty() {
        return Ok(());
    }
    match slot.value_length {
        Some(expected) if expected != value.len() => {
            return Err(SstableError::Value { column: slot.name.clone(), expected, found: value.len() });
        }
        Some(_) => out.extend_from_slice(value),
        None => append_sized(out, value),
    }
    Ok(())
}

/// Appends the set of the file's columns that a row has.
fn append_present(out: &mut Vec<u8>, slots: &Slots, present: impl Iterator<Item = usize>, count: usize) {
    let columns = slots.list.len();
    if columns < BITMAP_COLUMNS_MAX {
        let all = (1u64 << columns) - 1;
        vint::append_unsigned(out, present.fold(all, |missing, slot| missing & !(1 << slot)));
        return;
    }
    vint::append_unsigned(out, (columns - count) as u64);
    if count < columns / 2 {
        present.for_each(|slot| vint::append_unsigned(out, slot as u64));
        return;
    }
    let mut next = 0;
    for slot in present.chain([columns]) {
        (next..slot).for_each(|missing| vint::append_unsigned(out, missing as u64));
        next = slot + 1;
    }
}

fn append_column(
    layout: &Layout,
    out: &mut Vec<u8>,
    slot: &Slot,
    cells: &[(usize, CellView<'_>)],
    complex_deletion: bool,
    liveness: Liveness,
) -> Result<(), SstableError> {
    if !slot.complex {
        assert_eq!(cells.len(), 1, "column {} has one cell", slot.name);
        return append_cell(layout, out, slot, &cells[0].1, liveness);
    }
    let (deletion, elements) = match cells[0].1.collection_deletion() {
        Some(deletion) => (deletion, &cells[1..]),
        None => (DeletionTime::LIVE, cells),
    };
    if complex_deletion {
        append_deletion(layout, out, deletion);
    }
    vint::append_unsigned(out, elements.len() as u64);
    elements.iter().try_for_each(|(_, cell)| append_cell(layout, out, slot, cell, liveness))
}

fn append_cell(
    layout: &Layout,
    out: &mut Vec<u8>,
    slot: &Slot,
    cell: &CellView<'_>,
    liveness: Liveness,
) -> Result<(), SstableError> {
    let value = cell.value().unwrap_or(&[]);
    let row_timestamp = !liveness.is_none() && cell.timestamp == liveness.timestamp;
    let (local_time, ttl) = (cell.local_time(), cell.ttl());
    let expiring = matches!(cell.kind, CellKind::Expiring { .. });
    let deleted = matches!(cell.kind, CellKind::Tombstone { .. });
    let row_ttl = expiring && liveness.ttl != 0 && ttl == liveness.ttl && local_time == liveness.expires_at;

    let mut bits = 0;
    let mut set = |condition: bool, bit: u8| bits |= if condition { bit } else { 0 };
    set(value.is_empty(), flags::CELL_EMPTY);
    set(deleted, flags::CELL_DELETED);
    set(expiring, flags::CELL_EXPIRING);
    set(row_timestamp, flags::CELL_ROW_TIMESTAMP);
    set(row_ttl, flags::CELL_ROW_TTL);
    out.push(bits);
    if !row_timestamp {
        append_timestamp(layout, out, cell.timestamp);
    }
    if (deleted || expiring) && !row_ttl {
        append_time(layout, out, local_time);
    }
    if expiring && !row_ttl {
        append_ttl(layout, out, ttl);
    }
    if slot.complex {
        append_sized(out, cell.path.unwrap_or(&[]));
    }
    append_value(out, slot, value)
}

/// Appends a marker at which the range deletion in force changes from `before` to `after`.
pub(crate) fn append_marker(
    layout: &Layout,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
    position: Position<'_>,
    before: DeletionTime,
    after: DeletionTime,
    previous: u64,
) -> Result<(), SstableError> {
    let behind = position.weight > 0;
    let kind = match (before.is_live(), after.is_live(), behind) {
        (true, _, false) => kind::INCL_START,
        (true, _, true) => kind::EXCL_START,
        (false, true, false) => kind::EXCL_END,
        (false, true, true) => kind::INCL_END,
        (false, false, false) => kind::EXCL_END_INCL_START,
        (false, false, true) => kind::INCL_END_EXCL_START,
    };
    out.push(flags::IS_MARKER);
    let start = out.len();
    out.push(kind);
    let count_at = out.len();
    out.extend_from_slice(&[0, 0]);
    let count = append_values(layout, out, position.prefix)?;
    out[count_at..count_at + 2].copy_from_slice(&(count as u16).to_be_bytes());
    scratch.name.clear();
    scratch.name.extend_from_slice(&out[start..]);

    let body = &mut scratch.body;
    body.clear();
    vint::append_unsigned(body, previous);
    for deletion in [before, after] {
        if !deletion.is_live() {
            append_deletion(layout, body, deletion);
        }
    }
    vint::append_unsigned(out, body.len() as u64);
    out.extend_from_slice(body);
    Ok(())
}

/// Appends the header of a partition.
pub(crate) fn append_partition_start(layout: &Layout, out: &mut Vec<u8>, key: &[u8], deletion: DeletionTime) {
    crate::input::append_short_sized(out, key);
    append_whole_deletion(layout, out, deletion);
}

const _: () = assert!(NO_TIMESTAMP == i64::MIN, "the format says `not deleted` with the smallest timestamp");
