//! Clustering restrictions as slices of a partition.
//!
//! Each combination of equalities is a prefix; the last clause may bound the column behind it. Descending
//! columns swap the bounds of a slice, and tuples over columns of both directions become several slices. The
//! result is sorted, without overlaps and without empty slices.

use model::Table;
use model::clustering::{
    CLUSTERING_VALUE_BYTES_MAX, Clustering, ClusteringOrder, OwnedPosition, Position, Slice, append_component,
};
use smallvec::SmallVec;

use super::Restrictions;
use super::clause::{ALTERNATIVES_MAX, Asked, Clause, Row, RowTerm, Test, bind_value, null_value, too_many};
use crate::StatementError;
use crate::steps::ShortSteps;
use crate::terms::{Binding, Bound};

/// Disjoint slices of a partition in ascending clustering order; an empty list asks for the static row alone.
pub type Slices = SmallVec<[Slice; 1]>;

/// Puts the slices in `out`, in ascending order; buffers in `out` are reused if they fit.
///
/// # Errors
/// [`StatementError::Invalid`] for null or left-out values and for too many combinations.
pub fn fill(
    restrictions: &Restrictions,
    table: &Table,
    binding: &Binding<'_>,
    out: &mut Slices,
) -> Result<(), StatementError> {
    if restrictions.clustering.iter().all(|clause| matches!(&clause.test, Test::Equal(RowTerm::Parts(_)))) {
        return one_prefix(restrictions, binding, out);
    }
    let orders = table.clustering_orders();
    let mut prefixes: Vec<Vec<u8>> = vec![Vec::new()];
    let mut slices: Vec<Slice> = Vec::new();
    let mut bounded = false;
    for clause in &restrictions.clustering {
        match &clause.test {
            Test::Equal(row) => {
                let asked = if clause.multi { Asked::Tuple } else { Asked::Column };
                let row = row.bind(&clause.names, asked, binding)?;
                for prefix in &mut prefixes {
                    append_row(prefix, &row);
                }
            }
            Test::In(terms) => {
                let asked = if clause.multi { Asked::In } else { Asked::Column };
                let rows = terms.bind(&clause.names, asked, binding)?;
                if prefixes.len() * rows.len() > ALTERNATIVES_MAX {
                    return Err(too_many());
                }
                let mut longer = Vec::with_capacity(prefixes.len() * rows.len());
                for prefix in &prefixes {
                    for row in &rows {
                        reactor::give_way();
                        let mut prefix = prefix.clone();
                        append_row(&mut prefix, row);
                        longer.push(prefix);
                    }
                }
                prefixes = longer;
            }
            Test::Slice { lower, upper } => {
                // A null bound of one column is before every value, in reading order; in a tuple it is
                // refused.
                let descending = orders[clause.first].reversed;
                let is_null = |bound: &Option<(RowTerm, bool)>| match bound {
                    Some((row, _)) if !clause.multi => match row.single() {
                        Some(term) => Ok::<_, StatementError>(term.bind(binding)? == Bound::Null),
                        None => Ok(false),
                    },
                    _ => Ok(false),
                };
                let (lower_null, upper_null) = (is_null(lower)?, is_null(upper)?);
                if (lower_null && descending) || (upper_null && !descending) {
                    out.clear();
                    return Ok(());
                }
                let lower = lower.as_ref().filter(|_| !lower_null);
                let upper = upper.as_ref().filter(|_| !upper_null);
                let lower = lower.map(|bound| bound_values(clause, bound, binding)).transpose()?;
                let upper = upper.map(|bound| bound_values(clause, bound, binding)).transpose()?;
                for prefix in &prefixes {
                    reactor::give_way();
                    let above = half(prefix, clause.first, &lower, true, orders);
                    let below = half(prefix, clause.first, &upper, false, orders);
                    slices.extend(intersect(&above, &below, orders));
                }
                bounded = true;
            }
            Test::Contains(_) | Test::Looked(_) => {
                return Err(StatementError::Internal("a test of rows bounds no slice".to_owned()));
            }
        }
    }
    if !bounded {
        slices = of_prefixes(prefixes, restrictions.null_tail);
    }
    out.clear();
    out.extend(normalise(slices, orders));
    Ok(())
}

/// The slices that begin with prefixes, each with so many nulls behind it.
fn of_prefixes(mut prefixes: Vec<Vec<u8>>, null_tail: usize) -> Vec<Slice> {
    let steps = ShortSteps::default();
    prefixes.iter_mut().for_each(|prefix| append_nulls(prefix, null_tail));
    prefixes.iter().inspect(|_| steps.step()).map(|prefix| Slice::prefix(prefix)).collect()
}

fn bound_values<'a>(
    clause: &Clause,
    (row, inclusive): &'a (RowTerm, bool),
    binding: &Binding<'a>,
) -> Result<(Row<'a>, bool), StatementError> {
    let names = &clause.names[..row.width()];
    let asked = if clause.multi { Asked::Bound } else { Asked::Column };
    row.bind(names, asked, binding).map(|row| (row, *inclusive))
}

/// Refuses clustering values that are together longer than a key may be: they can be asked for, and no row
/// has them, but not written.
///
/// # Errors
/// [`StatementError::Invalid`] in Cassandra's words.
#[inline]
pub fn check_lengths(rows: &Slices) -> Result<(), StatementError> {
    // A prefix this short has no value too long, and no values that are so together.
    let short = |row: &Slice| row.start.prefix.len().max(row.end.prefix.len()) <= CLUSTERING_VALUE_BYTES_MAX;
    if rows.iter().all(short) { Ok(()) } else { check_each(rows) }
}

#[cold]
fn check_each(rows: &Slices) -> Result<(), StatementError> {
    for prefix in rows.iter().flat_map(|row| [&row.start.prefix, &row.end.prefix]) {
        let length: usize = Clustering(prefix).components().flatten().map(<[u8]>::len).sum();
        if length > CLUSTERING_VALUE_BYTES_MAX {
            return Err(too_long(length));
        }
    }
    Ok(())
}

#[cold]
fn too_long(length: usize) -> StatementError {
    StatementError::Invalid(format!(
        "Key length of {length} is longer than maximum of {CLUSTERING_VALUE_BYTES_MAX}"
    ))
}

/// Refuses null as the bound of a range that is deleted: a range that began before all values would be
/// everything.
///
/// # Errors
/// [`StatementError::Invalid`] naming the column.
pub fn check_bounds_given(restrictions: &Restrictions, binding: &Binding<'_>) -> Result<(), StatementError> {
    for clause in &restrictions.clustering {
        let Test::Slice { lower, upper } = &clause.test else { continue };
        for (row, _) in lower.iter().chain(upper) {
            if let Some(term) = row.single().filter(|_| !clause.multi)
                && term.bind(binding)? == Bound::Null
            {
                return Err(null_value(&clause.names[0]));
            }
        }
    }
    Ok(())
}

/// The common case: only equalities, into existing buffers.
#[inline]
fn one_prefix(
    restrictions: &Restrictions,
    binding: &Binding<'_>,
    out: &mut Slices,
) -> Result<(), StatementError> {
    out.truncate(1);
    if out.is_empty() {
        out.push(Slice::all());
    }
    let slice = &mut out[0];
    (slice.start.weight, slice.end.weight) = (-1, 1);
    slice.start.prefix.clear();
    for clause in &restrictions.clustering {
        let Test::Equal(RowTerm::Parts(parts)) = &clause.test else { continue };
        if clause.multi {
            let Test::Equal(row) = &clause.test else { continue };
            append_row(&mut slice.start.prefix, &row.bind(&clause.names, Asked::Tuple, binding)?);
            continue;
        }
        for (part, name) in parts.iter().zip(&clause.names) {
            append_component(&mut slice.start.prefix, Some(&bind_value(part, name, binding)?));
        }
    }
    if restrictions.null_tail != 0 {
        append_nulls(&mut slice.start.prefix, restrictions.null_tail);
    }
    slice.end.prefix.clear();
    slice.end.prefix.extend_from_slice(&slice.start.prefix);
    Ok(())
}

#[cold]
fn append_nulls(prefix: &mut Vec<u8>, count: usize) {
    (0..count).for_each(|_| append_component(prefix, None));
}

fn append_row(prefix: &mut Vec<u8>, row: &Row<'_>) {
    row.iter().for_each(|value| append_component(prefix, Some(value)));
}

/// The part of a prefix above a lower bound, or below an upper one: disjoint slices in any order.
///
/// `(a, b) > (x, y)` is `a > x` or `a = x and b > y`: one slice for each column, for any directions.
fn half(
    prefix: &[u8],
    first: usize,
    bound: &Option<(Row<'_>, bool)>,
    lower: bool,
    orders: &[ClusteringOrder],
) -> Vec<Slice> {
    let Some((row, inclusive)) = bound else { return vec![Slice::prefix(prefix)] };
    let mut slices = Vec::with_capacity(row.len());
    let mut equal = prefix.to_vec();
    for (at, value) in row.iter().enumerate() {
        let mut with_value = equal.clone();
        append_component(&mut with_value, Some(value));
        let inclusive = *inclusive && at + 1 == row.len();
        // Greater rows are behind in an ascending column, before in a descending one.
        let greater_is_behind = !orders[first + at].reversed;
        let position = |weight| OwnedPosition { prefix: with_value.clone(), weight };
        slices.push(if lower == greater_is_behind {
            Slice { start: position(if inclusive { -1 } else { 1 }), end: Position::after(&equal).to_owned() }
        } else {
            Slice {
                start: Position::before(&equal).to_owned(),
                end: position(if inclusive { 1 } else { -1 }),
            }
        });
        equal = with_value;
    }
    slices
}

fn intersect(a: &[Slice], b: &[Slice], orders: &[ClusteringOrder]) -> Vec<Slice> {
    let mut both = Vec::new();
    for x in a {
        for y in b {
            let start =
                if x.start.as_ref().compare(y.start.as_ref(), orders).is_gt() { &x.start } else { &y.start };
            let end = if x.end.as_ref().compare(y.end.as_ref(), orders).is_lt() { &x.end } else { &y.end };
            both.push(Slice { start: start.clone(), end: end.clone() });
        }
    }
    both
}

/// Sorted, disjoint, none empty.
fn normalise(mut slices: Vec<Slice>, orders: &[ClusteringOrder]) -> Vec<Slice> {
    slices.retain(|slice| !slice.is_empty(orders));
    let steps = ShortSteps::default();
    slices.sort_by(|a, b| {
        steps.step();
        a.start.as_ref().compare(b.start.as_ref(), orders)
    });
    let mut merged: Vec<Slice> = Vec::with_capacity(slices.len());
    for slice in slices {
        steps.step();
        match merged.last_mut() {
            Some(last) if slice.start.as_ref().compare(last.end.as_ref(), orders).is_le() => {
                if slice.end.as_ref().compare(last.end.as_ref(), orders).is_gt() {
                    last.end = slice.end;
                }
            }
            _ => merged.push(slice),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::CqlType;

    fn orders(reversed: [bool; 2]) -> Vec<ClusteringOrder> {
        reversed.map(|reversed| ClusteringOrder { ty: CqlType::Tinyint, reversed }).to_vec()
    }

    fn row(a: i8, b: i8) -> Vec<u8> {
        let mut out = Vec::new();
        append_component(&mut out, Some(&a.to_be_bytes()));
        append_component(&mut out, Some(&b.to_be_bytes()));
        out
    }

    fn values(values: &[i8]) -> Row<'static> {
        values.iter().map(|v| std::borrow::Cow::Owned(v.to_be_bytes().to_vec())).collect()
    }

    /// All rows of a 5 x 5 partition that lie in the slices, as numbers.
    fn rows_in(slices: &[Slice], orders: &[ClusteringOrder]) -> Vec<(i8, i8)> {
        let all = (0..5).flat_map(|a| (0..5).map(move |b| (a, b)));
        all.filter(|(a, b)| slices.iter().any(|slice| slice.contains(&row(*a, *b), orders))).collect()
    }

    #[test]
    fn tuples_bound_rows_in_every_mix_of_directions() {
        for reversed in [[false, false], [true, true], [false, true], [true, false]] {
            let orders = orders(reversed);
            for inclusive in [true, false] {
                let lower = Some((values(&[1, 3]), inclusive));
                let upper = Some((values(&[3]), inclusive));
                let above = half(&[], 0, &lower, true, &orders);
                let below = half(&[], 0, &upper, false, &orders);
                let slices = normalise(intersect(&above, &below, &orders), &orders);
                let expected: Vec<(i8, i8)> = (0..5)
                    .flat_map(|a| (0..5).map(move |b| (a, b)))
                    .filter(|(a, b)| {
                        if inclusive { (*a, *b) >= (1, 3) && *a <= 3 } else { (*a, *b) > (1, 3) && *a < 3 }
                    })
                    .collect();
                assert_eq!(rows_in(&slices, &orders), expected, "{reversed:?} {inclusive}");
                for pair in slices.windows(2) {
                    assert!(pair[0].end.as_ref().compare(pair[1].start.as_ref(), &orders).is_lt());
                }
            }
        }
    }

    #[test]
    fn overlaps_melt_and_empty_slices_go() {
        let orders = orders([false, false]);
        let prefix = |a: i8| {
            let mut out = Vec::new();
            append_component(&mut out, Some(&a.to_be_bytes()));
            out
        };
        let slices = vec![
            Slice::prefix(&prefix(2)),
            Slice {
                start: Position::after(&prefix(3)).to_owned(),
                end: Position::before(&prefix(3)).to_owned(),
            },
            Slice::prefix(&row(2, 1)),
            Slice::prefix(&prefix(1)),
            Slice::prefix(&prefix(1)),
        ];
        assert_eq!(normalise(slices, &orders), [Slice::prefix(&prefix(1)), Slice::prefix(&prefix(2))]);
    }
}
