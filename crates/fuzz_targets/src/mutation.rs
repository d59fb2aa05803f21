//! Fuzzes model::mutation::MutationView, a write as bytes.

pub(crate) fn run(data: &[u8]) {
    if let Ok(mutation) = model::mutation::MutationView::parse(data) {
        for (_, row) in mutation.rows() {
            let _ = (row.liveness(), row.deletion(), row.cells().count());
        }
        for (start, end, _) in mutation.tombstones() {
            let _ = (start.prefix.components().count(), end.prefix.components().count());
        }
        let _ = mutation.static_row().map(|row| row.cells().count());
    }
}
