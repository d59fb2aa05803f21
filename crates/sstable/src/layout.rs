//! The mapping of one file's rows to the table: the column of each slot of the file, and the length of
//! values.
//!
//! It is resolved once when a file is opened or created, so that coding a row looks nothing up by name. A
//! column that the table does not have (any more), or has in another shape, keeps its slot and is skipped by
//! the file's own types.

use model::Table;
use model::clustering::ClusteringOrder;
use model::schema::{ColumnId, ColumnKind};
use model::types::CqlType;

use crate::statistics::{EncodingMinima, HeaderColumn, SerializationHeader};

/// Slot of a column that the file does not have.
const NO_SLOT: u16 = u16::MAX;

/// One column of the file, by slot.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    /// The table's column; `None` if its cells are skipped.
    pub(crate) id: Option<ColumnId>,
    /// Name in the file.
    pub(crate) name: String,
    /// Whether the column has one cell per element.
    pub(crate) complex: bool,
    /// Bytes of every value, if the type has a fixed length.
    pub(crate) value_length: Option<usize>,
    /// Whether values are counter contexts.
    pub(crate) counter: bool,
    /// Cells up to this timestamp belong to a dropped column of the same name; the smallest number if there
    /// is none.
    pub(crate) dropped_at_us: i64,
    /// The table's column, if its cells are all read, have no paths and are no counters.
    pub(crate) plain: Option<ColumnId>,
}

/// The static or the regular columns of the file.
#[derive(Debug, Clone)]
pub(crate) struct Slots {
    pub(crate) list: Vec<Slot>,
    by_id: Vec<u16>,
    /// Whether slots ascend with column ids, so that a row decodes without sorting.
    pub(crate) in_id_order: bool,
}

impl Slots {
    fn resolve(columns: &[HeaderColumn], kind: ColumnKind, table: &Table) -> Self {
        let mut by_id = Vec::new();
        let mut list = Vec::with_capacity(columns.len());
        for (slot, column) in columns.iter().enumerate() {
            let complex = column.ty.is_multi_cell();
            let known =
                table.column(&column.name).filter(|c| c.kind == kind && c.ty.is_multi_cell() == complex);
            let id = known.map(|column| column.id);
            if let Some(id) = id {
                let at = usize::from(id.0);
                if by_id.len() <= at {
                    by_id.resize(at + 1, NO_SLOT);
                }
                by_id[at] = slot as u16;
            }
            let counter = column.ty.is_counter();
            let dropped = table.definition().dropped.get(&column.name);
            list.push(Slot {
                id,
                name: column.name.clone(),
                complex,
                value_length: if complex { None } else { column.ty.fixed_value_length() },
                counter,
                dropped_at_us: dropped.map_or(i64::MIN, |dropped| dropped.dropped_at_us),
                plain: id.filter(|_| !complex && !counter && dropped.is_none()),
            });
        }
        let in_id_order = list.iter().filter_map(|slot| slot.id).is_sorted();
        Self { list, by_id, in_id_order }
    }

    /// The slot of a column; `None` if the file has none for it.
    #[inline]
    pub(crate) fn of(&self, id: ColumnId) -> Option<usize> {
        let slot = *self.by_id.get(usize::from(id.0))?;
        (slot != NO_SLOT).then_some(usize::from(slot))
    }
}

/// The coding of one file's rows.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(crate) minima: EncodingMinima,
    /// Bytes of every value of a clustering column, if the type has a fixed length.
    pub(crate) clusterings: Vec<Option<usize>>,
    pub(crate) orders: Vec<ClusteringOrder>,
    pub(crate) statics: Slots,
    pub(crate) regulars: Slots,
    pub(crate) unsigned_times: bool,
}

/// Most static or regular columns of a file; slots are 16-bit numbers.
pub(crate) const SLOTS_MAX: usize = 32_767;

impl Layout {
    /// Resolves a file's header against the table; the error names the difference that makes it impossible.
    pub(crate) fn resolve(
        header: &SerializationHeader,
        table: &Table,
        unsigned_times: bool,
    ) -> Result<Self, &'static str> {
        let orders = table.clustering_orders();
        if header.clusterings.len() != orders.len() {
            return Err("the number of clustering columns");
        }
        for ((ty, reversed), order) in header.clusterings.iter().zip(orders) {
            if *reversed != order.reversed {
                return Err("the clustering order");
            }
            // Types that were altered compatibly may differ in name, never in the length of their values.
            if ty.fixed_value_length() != order.ty.fixed_value_length() && !matches!(ty, CqlType::Custom(_)) {
                return Err("the type of a clustering column");
            }
        }
        if header.statics.len() > SLOTS_MAX || header.regulars.len() > SLOTS_MAX {
            return Err("the number of columns");
        }
        Ok(Self {
            minima: header.minima,
            clusterings: header.clusterings.iter().map(|(ty, _)| ty.fixed_value_length()).collect(),
            orders: orders.to_vec(),
            statics: Slots::resolve(&header.statics, ColumnKind::Static, table),
            regulars: Slots::resolve(&header.regulars, ColumnKind::Regular, table),
            unsigned_times,
        })
    }
}
