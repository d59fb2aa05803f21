//! Each form that a table file cannot hold is refused, and what statements make is not.

use crate::clustering::append_component;
use crate::deletion::{DeletionTime, Liveness};
use crate::mutation::{MutationBuilder, MutationMisfit, MutationView};
use crate::row::{CellKind, CellView, RowBuilder};
use crate::schema::{Column, ColumnId, ColumnKind, Table, TableDefinition, TableId, TableOptions};
use crate::token::murmur3_token;
use crate::types::CqlType;

const CLUSTERING: ColumnId = ColumnId(0);
const INT: ColumnId = ColumnId(1);
const MAP: ColumnId = ColumnId(2);
const STATIC: ColumnId = ColumnId(3);
const DROPPED: ColumnId = ColumnId(4);
const UNKNOWN: ColumnId = ColumnId(5);

fn table() -> Table {
    let column = |id: ColumnId, kind, ty| Column {
        id,
        name: format!("c{}", id.0),
        ty,
        kind,
        position: 0,
        reversed: false,
    };
    let map = CqlType::Map { key: Box::new(CqlType::Int), value: Box::new(CqlType::Blob), frozen: false };
    Table::new(TableDefinition {
        id: TableId([1; 16]),
        keyspace: "ks".into(),
        name: "t".into(),
        columns: vec![
            column(CLUSTERING, ColumnKind::Clustering, CqlType::Blob),
            column(INT, ColumnKind::Regular, CqlType::Int),
            column(MAP, ColumnKind::Regular, map),
            column(STATIC, ColumnKind::Static, CqlType::Blob),
        ],
        dropped: Default::default(),
        options: TableOptions::default(),
        next_column_id: UNKNOWN.0,
        tablets_log2: 0,
        revision: 0,
    })
}

fn cell<'a>(column: ColumnId, path: Option<&'a [u8]>, kind: CellKind<'a>) -> CellView<'a> {
    CellView { column, timestamp: 1, path, kind }
}

/// Checks a mutation with these cells in its one row, whose clustering has one component.
fn checked(
    key: &[u8],
    component: &[u8],
    statics: &[CellView<'_>],
    cells: &[CellView<'_>],
) -> Result<(), MutationMisfit> {
    let row = |cells: &[CellView<'_>], out: &mut Vec<u8>| {
        let mut builder = RowBuilder::new(out, Liveness::NONE, DeletionTime::LIVE);
        cells.iter().for_each(|cell| builder.cell(*cell));
        builder.finish();
    };
    let mut out = Vec::new();
    let fill = |out: &mut Vec<u8>| {
        if !statics.is_empty() {
            row(statics, out);
        }
    };
    let token = murmur3_token(key);
    let builder = MutationBuilder::new(&mut out, TableId([1; 16]), token, key, DeletionTime::LIVE, fill);
    let mut clustering = Vec::new();
    append_component(&mut clustering, Some(component));
    let mut rows = builder.rows();
    rows.row(&clustering, |out| row(cells, out));
    rows.finish();
    MutationView::parse(&out).expect("a whole mutation").check(&table())
}

const FOUR: CellKind<'_> = CellKind::Live(&[0; 4]);

#[test]
fn what_statements_make_passes() {
    let whole = cell(MAP, None, CellKind::CollectionDeletion { local_time: 1 });
    let cells = [
        cell(INT, None, FOUR),
        whole,
        cell(MAP, Some(&[0, 0, 0, 1]), FOUR),
        cell(MAP, Some(&[0, 0, 0, 2]), CellKind::Tombstone { local_time: 1 }),
        cell(DROPPED, None, FOUR),
    ];
    assert_eq!(checked(b"k", b"c", &[cell(STATIC, None, FOUR)], &cells), Ok(()));
    assert_eq!(checked(b"k", b"", &[], &[cell(INT, None, CellKind::Live(b""))]), Ok(()));
    assert_eq!(checked(&[1; 65_535], &[1; 65_535], &[], &[]), Ok(()));
}

#[test]
fn a_column_of_a_later_definition_is_told_apart() {
    let unknown = Err(MutationMisfit::UnknownColumn { id: UNKNOWN.0 });
    assert_eq!(checked(b"k", b"c", &[], &[cell(UNKNOWN, None, FOUR)]), unknown);
}

#[test]
fn what_no_table_file_holds_is_refused() {
    let one: Option<&[u8]> = Some(&[0, 0, 0, 1]);
    let minus: Option<&[u8]> = Some(&[255, 255, 255, 255]);
    type Case<'a> = (&'a str, &'a [u8], &'a [u8], &'a [CellView<'a>], &'a [CellView<'a>]);
    let refused: [Case<'_>; 11] = [
        ("no key", b"", b"c", &[], &[]),
        ("a long key", &[1; 65_536], b"c", &[], &[]),
        ("a long clustering", b"k", &[1; 65_536], &[], &[]),
        ("a static cell in a row", b"k", b"c", &[], &[cell(STATIC, None, FOUR)]),
        ("a cell in the static row", b"k", b"c", &[cell(INT, None, FOUR)], &[]),
        ("two cells of one column", b"k", b"c", &[], &[cell(INT, None, FOUR), cell(INT, None, FOUR)]),
        ("an int of three bytes", b"k", b"c", &[], &[cell(INT, None, CellKind::Live(&[0; 3]))]),
        ("an element of an int", b"k", b"c", &[], &[cell(INT, one, FOUR)]),
        ("a map without elements", b"k", b"c", &[], &[cell(MAP, None, FOUR)]),
        ("elements out of order", b"k", b"c", &[], &[cell(MAP, one, FOUR), cell(MAP, minus, FOUR)]),
        ("a counter", b"k", b"c", &[], &[cell(INT, None, CellKind::Counter(b""))]),
    ];
    for (what, key, component, statics, cells) in refused {
        let found = checked(key, component, statics, cells);
        assert!(matches!(found, Err(MutationMisfit::Shape(_))), "{what}: {found:?}");
    }
}
