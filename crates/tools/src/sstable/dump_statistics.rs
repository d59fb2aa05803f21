//! `dump-statistics`: the contents of Statistics.db as readable text.

use ::sstable::{Cardinality, CommitLogPosition, Component, Statistics};
use model::CqlType;
use model::deletion::NO_LOCAL_TIME;
use model::hex;

use super::ToolError;
use super::target::Target;
use super::text::{seconds_text, timestamp_text, value};
use crate::output::Output;

/// Prints the Statistics of one table file.
pub(super) async fn dump(target: &Target) -> Result<(), ToolError> {
    let statistics = target.statistics().await?;
    let mut output = Output::new();
    for (name, text) in lines(target, &statistics) {
        output.line(&format!("{name:<28}{text}"))?;
    }
    Ok(output.finish()?)
}

fn lines(target: &Target, statistics: &Statistics) -> Vec<(&'static str, String)> {
    let (stats, header) = (&statistics.stats, &statistics.header);
    let mut lines = vec![
        ("file", target.path(Component::Statistics).display().to_string()),
        ("version", target.descriptor.version.letters().to_owned()),
        ("partitions", stats.partition_sizes.count().to_string()),
    ];
    if let Ok(Some(cardinality)) = Cardinality::decode(&statistics.cardinality) {
        lines.push(("partitions, estimated", cardinality.estimate().to_string()));
    }
    lines.extend([
        ("rows", stats.rows.to_string()),
        ("columns set", stats.columns_set.to_string()),
        ("partition bytes, mean", format!("{:.0}", stats.partition_sizes.mean())),
        ("partition cells, mean", format!("{:.1}", stats.cells_per_partition.mean())),
        ("filter false positives", statistics.fp_chance.to_string()),
        (
            "compression ratio",
            if stats.compression_ratio < 0.0 {
                "not compressed".to_owned()
            } else {
                format!("{:.3}", stats.compression_ratio)
            },
        ),
        ("timestamps", range(stats.min_timestamp, stats.max_timestamp, timestamp_text)),
        (
            "local deletion times",
            format!("{} to {}", local(stats.min_local_deletion_time), local(stats.max_local_deletion_time)),
        ),
        ("times to live", format!("{} s to {} s", stats.min_ttl, stats.max_ttl)),
        ("tombstones, expiring cells", stats.tombstones.count_until(i64::MAX).to_string()),
        ("level", stats.level.to_string()),
        (
            "repaired at",
            if stats.repaired_at_ms == 0 {
                "never".to_owned()
            } else {
                seconds_text(stats.repaired_at_ms / 1000)
            },
        ),
        ("pending repair", optional(stats.pending_repair)),
        ("written by host", optional(stats.originating_host)),
        ("legacy counters", stats.legacy_counters.to_string()),
        ("least clustering", clustering(&stats.min_clustering, &header.clusterings)),
        ("greatest clustering", clustering(&stats.max_clustering, &header.clusterings)),
    ]);
    for (start, end) in &stats.commit_log_intervals {
        lines.push(("commit log", format!("{} to {}", position(*start), position(*end))));
    }
    lines.extend([
        ("least timestamp encoded", timestamp_text(header.minima.timestamp)),
        ("least deletion time encoded", seconds_text(i64::from(header.minima.local_deletion_time))),
        ("least time to live encoded", format!("{} s", header.minima.ttl)),
        ("partition key", header.key_class.clone()),
    ]);
    for (ty, reversed) in &header.clusterings {
        lines.push(("clustering column", format!("{ty}{}", if *reversed { ", descending" } else { "" })));
    }
    lines.extend(header.statics.iter().map(|c| ("static column", format!("{} {}", c.name, c.ty))));
    lines.extend(header.regulars.iter().map(|c| ("column", format!("{} {}", c.name, c.ty))));
    lines
}

fn range(least: i64, greatest: i64, text: impl Fn(i64) -> String) -> String {
    if least > greatest || (least == i64::MIN && greatest == i64::MAX) {
        return "none".to_owned();
    }
    format!("{} to {} ({least} to {greatest})", text(least), text(greatest))
}

fn local(time: u32) -> String {
    if time == NO_LOCAL_TIME { "never".to_owned() } else { seconds_text(i64::from(time)) }
}

fn optional(uuid: Option<[u8; 16]>) -> String {
    uuid.map_or_else(|| "none".to_owned(), |uuid| uuid::Uuid::from_bytes(uuid).to_string())
}

fn position(position: CommitLogPosition) -> String {
    format!("segment {} offset {}", position.segment, position.offset)
}

fn clustering(components: &[Vec<u8>], types: &[(CqlType, bool)]) -> String {
    let text = |(at, bytes): (usize, &Vec<u8>)| match types.get(at) {
        Some((ty, _)) => value(ty, bytes).to_string(),
        None => hex::blob(bytes),
    };
    let components: Vec<String> = components.iter().enumerate().map(text).collect();
    format!("[{}]", components.join(", "))
}
