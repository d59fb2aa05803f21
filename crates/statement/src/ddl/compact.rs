//! COMPACT STORAGE: the rules for such a table, and the hidden columns it has.
//!
//! Rules, messages and names are those of Cassandra 5's `CreateTableStatement`. The columns must be those
//! that Cassandra makes: its tools use them to read our table files, and dropping COMPACT STORAGE makes them
//! visible.

use model::schema::CompactShape;
use model::{Column, ColumnId, ColumnKind, CqlType};

use super::mistake::invalid;
use crate::StatementError;

/// Refuses columns that COMPACT STORAGE cannot have. `values` are those outside of the key, by name;
/// `statics` how many of them are declared static.
///
/// # Errors
/// [`StatementError::Invalid`] in Cassandra's words.
pub(super) fn check(
    values: &[(&str, &CqlType)],
    statics: usize,
    has_clustering: bool,
) -> Result<(), StatementError> {
    if values.iter().any(|(_, ty)| ty.is_multi_cell()) {
        return Err(invalid("Non-frozen collections and UDTs are not supported with COMPACT STORAGE"));
    }
    if statics > 0 {
        return Err(invalid("Static columns are not supported in COMPACT STORAGE tables"));
    }
    if !has_clustering && values.is_empty() {
        return Err(invalid("No definition found that is not part of the PRIMARY KEY"));
    }
    if has_clustering && values.len() > 1 {
        let names: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
        return Err(invalid(format!(
            "COMPACT STORAGE with composite PRIMARY KEY allows no more than one column not part of the PRIMARY KEY \
             (got: {})",
            names.join(", ")
        )));
    }
    Ok(())
}

/// Adds the columns that the statement did not declare, with ids greater than the declared ones.
pub(super) fn complete(columns: &mut Vec<Column>) -> CompactShape {
    if columns.iter().any(|column| column.kind == ColumnKind::Clustering) {
        if !columns.iter().any(|column| column.kind == ColumnKind::Regular) {
            let name = unused(columns, "value", 0);
            add(columns, name, CqlType::Empty, ColumnKind::Regular);
        }
        return CompactShape::Dense;
    }
    for column in columns.iter_mut().filter(|column| column.kind == ColumnKind::Regular) {
        column.kind = ColumnKind::Static;
    }
    let counts = columns.iter().any(|column| column.ty.is_counter());
    let name = unused(columns, "column", 1);
    add(columns, name, CqlType::Text, ColumnKind::Clustering);
    let name = unused(columns, "value", 0);
    let ty = if counts { CqlType::Counter } else { CqlType::Blob };
    add(columns, name, ty, ColumnKind::Regular);
    CompactShape::Static
}

/// The first name that no column has of `stem`, `stem1`, `stem2`…; the bare stem only counting from 0.
fn unused(columns: &[Column], stem: &str, first: usize) -> String {
    let names = (first..).map(|number| if number == 0 { stem.to_owned() } else { format!("{stem}{number}") });
    let mut free = names.filter(|name| !columns.iter().any(|column| column.name == *name));
    free.next().expect("columns are finite")
}

fn add(columns: &mut Vec<Column>, name: String, ty: CqlType, kind: ColumnKind) {
    let id = u16::try_from(columns.len()).expect("two more than COLUMNS_MAX at most");
    columns.push(Column { id: ColumnId(id), name, ty, kind, position: 0, reversed: false });
}
