//! Results as tables: columns side by side, or one row below the other.
//!
//! Source: `print_formatted_result` and `print_formatted_result_vertically` of cqlsh.

use super::style::Text;

/// Lines of a page of rows: a header if it is asked for, and the rows.
pub(super) fn lines(names: &[Text], rows: &[Vec<Text>], has_header: bool) -> Vec<String> {
    let mut widths: Vec<usize> = names.iter().map(|name| name.width).collect();
    for row in rows {
        for (width, value) in widths.iter_mut().zip(row) {
            *width = (*width).max(value.width);
        }
    }
    let mut lines = Vec::with_capacity(rows.len() + 2);
    if has_header {
        let padded: Vec<String> =
            names.iter().zip(&widths).map(|(name, width)| name.to_left(*width)).collect();
        lines.push(format!(" {}", padded.join(" | ").trim_end()));
        let rules: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        lines.push(format!("-{}-", rules.join("-+-")));
    }
    for row in rows {
        let padded: Vec<String> =
            row.iter().zip(&widths).map(|(value, width)| value.to_right(*width)).collect();
        lines.push(format!(" {}", padded.join(" | ")));
    }
    lines
}

/// Lines of rows one below the other; the first is row number `first`, counted from 1.
pub(super) fn expanded(names: &[Text], rows: &[Vec<Text>], first: usize) -> Vec<String> {
    let name_width = names.iter().map(|name| name.width).max().unwrap_or(0);
    let value_width = rows.iter().flatten().map(|value| value.width).max().unwrap_or(0);
    let mut lines = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        lines.push(format!("@ Row {}", first + at));
        lines.push(format!("-{}-+-{}-", "-".repeat(name_width), "-".repeat(value_width)));
        for (name, value) in names.iter().zip(row) {
            lines.push(format!(" {} | {}", name.to_left(name_width), value.text));
        }
        lines.push(String::new());
    }
    lines
}

/// Names in columns, as many side by side as 80 columns allow, each column from top to bottom.
///
/// Source: `cmd.Cmd.columnize` of Python's library.
pub(super) fn columns(names: &[String]) -> Vec<String> {
    const WIDTH: usize = 80;
    let width = |name: &String| super::style::width(name);
    let fits = |rows: usize| {
        let widths: Vec<usize> =
            names.chunks(rows).map(|column| column.iter().map(width).max().unwrap_or(0)).collect();
        let total = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
        (total <= WIDTH).then_some((rows, widths))
    };
    let single = || (names.len().max(1), vec![names.iter().map(width).max().unwrap_or(0)]);
    let (rows, widths) = (1..names.len().max(1)).find_map(fits).unwrap_or_else(single);
    let line = |row: usize| {
        let cells = widths.iter().enumerate().filter_map(|(column, width)| {
            let name = names.get(column * rows + row)?;
            Some(format!("{name}{}", " ".repeat(width - super::style::width(name))))
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    (0..rows.min(names.len())).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::super::style::GREEN;
    use super::*;

    fn texts(words: &[&str]) -> Vec<Text> {
        words.iter().map(|word| Text::of(false, GREEN, word)).collect()
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_value() {
        let rows = [texts(&["1", "long value"]), texts(&["100", "x"])];
        let expected = [" k   | v", "-----+------------", "   1 | long value", " 100 |          x"];
        assert_eq!(lines(&texts(&["k", "v"]), &rows, true), expected);
        assert_eq!(lines(&texts(&["k", "v"]), &rows, false), expected[2..]);
        assert_eq!(lines(&texts(&["key"]), &[], true), [" key", "-----"]);
    }

    #[test]
    fn rows_below_each_other_are_numbered() {
        let expected = ["@ Row 3", "-----+---", " key | 7", ""];
        assert_eq!(expanded(&texts(&["key"]), &[texts(&["7"])], 3), expected);
    }

    #[test]
    fn names_stand_in_columns() {
        let names = |count: usize| (0..count).map(|at| format!("name{at:03}")).collect::<Vec<_>>();
        assert_eq!(columns(&names(3)), ["name000  name001  name002"]);
        let many = columns(&names(20));
        assert_eq!(many.len(), 3);
        assert!(many[0].starts_with("name000  name003") && many[1].ends_with("name019"), "{many:?}");
        assert!(columns(&[]).is_empty());
        assert_eq!(columns(&["x".repeat(90), "y".to_owned()]).len(), 2);
    }
}
