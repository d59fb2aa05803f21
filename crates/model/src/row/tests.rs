//! Rows come back as they were built, and no bytes make a reader panic.

use super::*;
use proptest::prelude::*;

#[test]
fn a_row_comes_back() {
    let cells = [
        CellView { column: ColumnId(2), timestamp: 5, path: None, kind: CellKind::Live(b"abc") },
        CellView {
            column: ColumnId(3),
            timestamp: -6,
            path: None,
            kind: CellKind::Expiring { value: b"", ttl: 9, expires_at: 99 },
        },
        CellView {
            column: ColumnId(7),
            timestamp: 4,
            path: None,
            kind: CellKind::CollectionDeletion { local_time: 3 },
        },
        CellView {
            column: ColumnId(7),
            timestamp: 6,
            path: Some(b"k"),
            kind: CellKind::Tombstone { local_time: 8 },
        },
        CellView { column: ColumnId(7), timestamp: 6, path: Some(b"l"), kind: CellKind::Live(b"v") },
    ];
    let liveness = Liveness { timestamp: 1, ttl: 2, expires_at: 3 };
    let deletion = DeletionTime { timestamp: 4, local_time: 5 };
    let mut bytes = Vec::new();
    let mut builder = RowBuilder::new(&mut bytes, liveness, deletion);
    cells.iter().for_each(|cell| builder.cell(*cell));
    builder.finish();
    let row = RowView::parse(&bytes).unwrap();
    assert_eq!((row.liveness(), row.deletion()), (liveness, deletion));
    assert_eq!(row.cells().collect::<Vec<_>>(), cells);
    assert_eq!(row.cell(ColumnId(3)), Some(cells[1]));
    assert_eq!(row.cell(ColumnId(4)), None);
    for end in 0..bytes.len() {
        assert!(RowView::parse(&bytes[..end]).is_err(), "{end} bytes are not a row");
    }
}

proptest! {
    #[test]
    fn whatever_parses_reads_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(row) = RowView::parse(&bytes) {
            let _ = (row.liveness(), row.deletion(), row.is_empty());
            let claimed = row.cells().size_hint().1.unwrap();
            prop_assert_eq!(row.cells().count(), claimed);
        }
    }
}
