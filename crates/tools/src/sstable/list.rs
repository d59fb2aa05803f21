//! `list`: one line for each table file in a folder and those below it.

use std::path::{Path, PathBuf};

use ::sstable::sort_names;
use reactor::file::read_dir;

use super::ToolError;
use super::target::Target;
use super::text::timestamp_text;
use crate::output::Output;

/// How deep folders are followed: data, keyspace, table, and its snapshots.
const DEPTH_MAX: usize = 5;
/// Most folders that are looked into.
const FOLDERS_MAX: usize = 100_000;

const HEADINGS: [&str; 10] = [
    "file",
    "disk bytes",
    "data bytes",
    "partitions",
    "rows",
    "tombstones",
    "least token",
    "greatest token",
    "least timestamp",
    "greatest timestamp",
];
/// Columns from here on stand to the right, until [`TEXT_FROM`].
const NUMBERS_FROM: usize = 1;
const TEXT_FROM: usize = 8;

/// Prints the table. Files that cannot be opened are reported on standard error, and make the command fail at
/// the end.
pub(super) async fn list(dir: &Path) -> Result<(), ToolError> {
    let mut rows: Vec<[String; HEADINGS.len()]> = vec![HEADINGS.map(str::to_owned)];
    let mut problems = 0;
    let mut folders = vec![(dir.to_owned(), 0)];
    let mut seen = 0;
    while let Some((folder, depth)) = folders.pop() {
        seen += 1;
        let entries = read_dir(&folder).await.map_err(ToolError::io(&folder))?;
        if depth < DEPTH_MAX && seen + folders.len() < FOLDERS_MAX {
            let below = entries.iter().filter(|entry| entry.is_dir).rev();
            folders.extend(below.map(|entry| (folder.join(&entry.name), depth + 1)));
        }
        let names = entries.iter().filter(|entry| !entry.is_dir).map(|entry| entry.name.as_str());
        let sorted = sort_names(names);
        for name in &sorted.unsupported {
            if name.ends_with("-TOC.txt") {
                eprintln!("{}: a version that is not read", folder.join(name).display());
            }
        }
        for name in &sorted.leftovers() {
            eprintln!("{}: left over from a crash", folder.join(name).display());
        }
        for descriptor in sorted.complete {
            match row(dir, &Target { dir: folder.clone(), descriptor }).await {
                Ok(row) => rows.push(row),
                Err(error) => {
                    problems += 1;
                    eprintln!("ceto sstable: {error}");
                }
            }
        }
    }
    print(&rows)?;
    if problems == 0 {
        Ok(())
    } else {
        Err(ToolError::Problems { path: PathBuf::from(dir), count: problems })
    }
}

async fn row(root: &Path, target: &Target) -> Result<[String; HEADINGS.len()], ToolError> {
    let opened = target.open().await?;
    let (sstable, stats) = (&opened.sstable, opened.sstable.stats());
    let name = target.dir.join(target.descriptor.to_string());
    let name = name.strip_prefix(root).unwrap_or(&name).display().to_string();
    Ok([
        name,
        sstable.bytes_on_disk().to_string(),
        sstable.data_bytes().to_string(),
        stats.partition_sizes.count().to_string(),
        stats.rows.to_string(),
        stats.tombstones.count_until(i64::MAX).to_string(),
        sstable.first_key().0.0.to_string(),
        sstable.last_key().0.0.to_string(),
        timestamp_text(stats.min_timestamp),
        timestamp_text(stats.max_timestamp),
    ])
}

fn print(rows: &[[String; HEADINGS.len()]]) -> Result<(), ToolError> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; HEADINGS.len()] = std::array::from_fn(width);
    let mut output = Output::new();
    for row in rows {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (text, width))| {
            if (NUMBERS_FROM..TEXT_FROM).contains(&column) {
                format!("{text:>width$}")
            } else {
                format!("{text:<width$}")
            }
        });
        output.line(cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(output.finish()?)
}
