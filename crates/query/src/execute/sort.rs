//! Sorts the rows of an answer by ORDER BY if they come from several partitions.

use std::cmp::Ordering;

use model::compare::compare;
use statement::prepare::select::SelectPlan;

/// Sorts the rows that begin at `starts` and run to the end of `out`. Keeps `limit` of them, without the
/// values that were added only for sorting, and returns their number.
///
/// Rows without a value, of partitions that only have a static row, come first, as in Cassandra's
/// `ColumnComparator`, or last if the partitions are read backwards.
pub(super) fn sort_rows(plan: &SelectPlan, out: &mut Vec<u8>, starts: &[usize], limit: u64) -> usize {
    let Some(&first) = starts.first() else { return 0 };
    let rows: Vec<&[u8]> = starts
        .iter()
        .enumerate()
        .map(|(at, start)| &out[*start..starts.get(at + 1).copied().unwrap_or(out.len())])
        .collect();
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by(|a, b| compare_rows(plan, rows[*a], rows[*b]));
    let kept = order.len().min(usize::try_from(limit).unwrap_or(usize::MAX));
    let mut sorted = Vec::with_capacity(out.len() - first);
    for at in &order[..kept] {
        let mut end = 0;
        for _ in 0..plan.selection.shown {
            end += value(rows[*at], end).1;
        }
        sorted.extend_from_slice(&rows[*at][..end]);
    }
    out.truncate(first);
    out.extend_from_slice(&sorted);
    kept
}

/// The value at an offset of a row, and the bytes it takes with its length.
fn value(row: &[u8], at: usize) -> (Option<&[u8]>, usize) {
    let length = i32::from_be_bytes(row[at..at + 4].try_into().expect("a value begins with its length"));
    match usize::try_from(length) {
        Ok(length) => (Some(&row[at + 4..at + 4 + length]), 4 + length),
        Err(_) => (None, 4),
    }
}

fn nth(row: &[u8], place: usize) -> Option<&[u8]> {
    let mut at = 0;
    for _ in 0..place {
        at += value(row, at).1;
    }
    value(row, at).0
}

fn compare_rows(plan: &SelectPlan, a: &[u8], b: &[u8]) -> Ordering {
    for (place, ty, descending) in &plan.sort {
        let (a, b) = (nth(a, *place), nth(b, *place));
        let order = match (a, b) {
            (Some(a), Some(b)) => compare(ty, a, b),
            (None, None) => Ordering::Equal,
            (None, Some(_)) | (Some(_), None) => {
                let first_is_less = a.is_none() != plan.reversed;
                return if first_is_less { Ordering::Less } else { Ordering::Greater };
            }
        };
        let order = if *descending { order.reverse() } else { order };
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}
