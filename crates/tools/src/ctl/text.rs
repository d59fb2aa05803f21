//! Tables, sizes and shares as nodetool prints them.
//!
//! Source: Cassandra 5.0 `TableBuilder`, `FileUtils.stringifyFileSize`.

use std::io::Write;

/// Writes to standard output.
pub(super) fn print(text: &str) {
    // A reader that has gone has seen enough.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

/// Rows of columns that line up.
pub(crate) struct Table {
    delimiter: &'static str,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(delimiter: &'static str) -> Self {
        Self { delimiter, rows: Vec::new() }
    }

    pub(crate) fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// All rows, each with its line end.
    pub(crate) fn print(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            for (column, width) in widths.iter().enumerate() {
                let cell = row.get(column).map_or("", String::as_str);
                text.push_str(cell);
                text.extend(std::iter::repeat_n(' ', width - cell.chars().count()));
                if column + 1 < columns {
                    text.push_str(self.delimiter);
                }
            }
            text.push('\n');
        }
        text
    }
}

/// Bytes in the largest unit below them, with two decimals at most.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    for (unit, shift) in UNITS {
        if bytes >= 1 << shift {
            let number = format!("{:.2}", bytes as f64 / (1u64 << shift) as f64);
            return format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'));
        }
    }
    format!("{bytes} bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new("  ");
        table.row(["--", "Address", "Load"]);
        table.row(["UN", "127.0.0.1", "1 KiB"]);
        assert_eq!(table.print(), "--  Address    Load \nUN  127.0.0.1  1 KiB\n");
    }

    #[test]
    fn sizes_have_two_decimals_at_most() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (1_234_567, "1.18 MiB"),
            (5 << 40, "5 TiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
