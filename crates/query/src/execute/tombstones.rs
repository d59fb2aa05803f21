//! Tombstones that a read passes: counts, warnings, refusals, and the end of pages that pass too many.
//!
//! Counts and texts are Cassandra 5's (`ReadCommand.withMetricsRecording`): a read that passes more than
//! `tombstone_failure_threshold` fails on its replica. A page ends after `query_tombstone_page_limit` of
//! them, even if it is empty, so that a client that pages gets past any number of them, each page within its
//! time.

use model::Table;
use model::clustering::{Clustering, Slice};
use model::token::murmur3_token;
use model::type_parser::quote_identifier as quote;
use replication::Consistency;
use statement::restrictions::keys;
use statement::terms::constant::literal_text;
use storage::{Dead, PartitionRange, ReadCommand};

use super::guard::{self, is_local};
use crate::QueryError;
use crate::engine::Engine;

/// A read's limits.
#[derive(Debug, Clone, Copy)]
pub struct TombstoneLimits {
    /// Most tombstones that a read may count.
    pub fail: u64,
    /// Number of dead items after which a page ends.
    pub page: u64,
}

impl TombstoneLimits {
    /// No limits.
    pub const NONE: Self = Self { fail: u64::MAX, page: u64::MAX };
}

/// Counts of a read.
#[derive(Debug)]
pub(super) struct Tombstones {
    limits: TombstoneLimits,
    /// Tombstones counted in this read, as defined by Cassandra.
    pub(super) seen: u64,
    /// Tombstones counted in earlier reads.
    pub(super) told: u64,
    /// Dead items passed since the page began, without those in rows that are shown.
    passed: u64,
}

impl Tombstones {
    pub(super) fn new(limits: TombstoneLimits) -> Self {
        Self { limits, seen: 0, told: 0, passed: 0 }
    }

    pub(super) fn add(&mut self, table: &Table, dead: Dead) {
        if !is_local(table) {
            self.seen = self.seen.saturating_add(u64::from(dead.tombstones));
        }
        self.passed = self.passed.saturating_add(u64::from(dead.passed));
    }

    /// Whether the read must fail.
    #[inline]
    pub(super) fn are_too_many(&self) -> bool {
        self.seen > self.limits.fail
    }

    /// Resets the count that ends a page.
    pub(super) fn begin_page(&mut self) {
        self.passed = 0;
    }

    /// Whether the page ends here because of them.
    pub(super) fn end_page(&self) -> bool {
        self.passed >= self.limits.page
    }
}

/// Checks a read that passed `seen` tombstones and shows `rows`.
///
/// # Errors
/// [`QueryError::TooManyTombstones`] if there are more than allowed.
pub(super) fn check(
    engine: &Engine,
    command: &ReadCommand,
    level: Consistency,
    seen: u64,
    warn: impl FnOnce(u64),
) -> Result<(), QueryError> {
    let guardrails = &engine.config().guardrails;
    if seen > guard::tombstone_limits(guardrails).fail {
        reactor::warn!(
            "a read was given up after {} tombstones (see tombstone_failure_threshold): {}",
            seen,
            statement(command, (None, None))
        );
        return Err(too_many(engine, level));
    }
    if guard::warns_of_tombstones(guardrails, seen) {
        warn(seen);
    }
    Ok(())
}

/// The error of a read that passed too many tombstones.
pub(super) fn too_many(engine: &Engine, level: Consistency) -> QueryError {
    let address = engine.config().listen_address;
    QueryError::TooManyTombstones { consistency: level.into(), required: 1, address }
}

/// The warning of a read that showed `rows` and passed `tombstones`, in Cassandra's words.
#[cold]
pub(super) fn warning(
    command: &ReadCommand,
    limits: (Option<u64>, Option<u64>),
    last_key: &[u8],
    rows: usize,
    tombstones: u64,
) -> String {
    let token = match &command.range {
        PartitionRange::Key(key) => key.token,
        PartitionRange::Between { .. } => murmur3_token(last_key),
    };
    let mut query = statement(command, limits);
    if query.chars().count() > 512 {
        query = query.chars().take(512).collect();
    }
    format!(
        "Read {rows} live rows and {tombstones} tombstone cells for query {query}; token {} (see tombstone_warn_threshold)",
        token.0
    )
}

/// The read as a statement.
fn statement(command: &ReadCommand, (limit, per_partition): (Option<u64>, Option<u64>)) -> String {
    let table = &command.table;
    let mut text = format!("SELECT * FROM {}.{}", quote(table.keyspace()), quote(table.name()));
    let mut parts = Vec::new();
    match &command.range {
        PartitionRange::Key(key) => {
            for (column, value) in table.partition_key().iter().zip(keys::split(table, &key.key)) {
                parts.push(format!("{} = {}", quote(&column.name), literal_text(&column.ty, Some(value))));
            }
        }
        PartitionRange::Between { from, to } => {
            let columns: Vec<_> = table.partition_key().iter().map(|column| quote(&column.name)).collect();
            let columns = columns.join(", ");
            if from.token != model::Token::MINIMUM {
                parts.push(format!(
                    "token({columns}) {} {}",
                    if from.inclusive { ">=" } else { ">" },
                    from.token.0
                ));
            }
            if to.token != model::Token::MAXIMUM {
                parts.push(format!(
                    "token({columns}) {} {}",
                    if to.inclusive { "<=" } else { "<" },
                    to.token.0
                ));
            }
        }
    }
    if let [slice] = command.slices.as_slice() {
        slice_text(table, slice, &mut parts);
    }
    if !parts.is_empty() {
        text.push_str(" WHERE ");
        text.push_str(&parts.join(" AND "));
    }
    if let Some(most) = per_partition {
        text.push_str(&format!(" PER PARTITION LIMIT {most}"));
    }
    if let Some(most) = limit {
        text.push_str(&format!(" LIMIT {most}"));
    }
    text.push_str(" ALLOW FILTERING");
    text
}

fn slice_text(table: &Table, slice: &Slice, parts: &mut Vec<String>) {
    let starts: Vec<_> = Clustering(&slice.start.prefix).components().collect();
    let ends: Vec<_> = Clustering(&slice.end.prefix).components().collect();
    for (at, column) in table.clustering().iter().enumerate() {
        let (start, end) = (starts.get(at), ends.get(at));
        let mut part = |sign: &str, value: Option<&[u8]>| {
            parts.push(format!("{} {sign} {}", quote(&column.name), literal_text(&column.ty, value)));
        };
        match (start, end) {
            (None, None) => break,
            (Some(start), Some(end)) if start == end => part("=", *start),
            (start, end) => {
                // Of columns in descending order the slice begins at the greater value.
                let reversed = table.clustering_orders()[at].reversed;
                if let Some(start) = start {
                    let inclusive = slice.start.weight < 0 || starts.len() > at + 1;
                    part(sign(reversed, inclusive), *start);
                }
                if let Some(end) = end {
                    let inclusive = slice.end.weight > 0 || ends.len() > at + 1;
                    part(sign(!reversed, inclusive), *end);
                }
            }
        }
    }
}

fn sign(less: bool, inclusive: bool) -> &'static str {
    match (less, inclusive) {
        (true, true) => "<=",
        (true, false) => "<",
        (false, true) => ">=",
        (false, false) => ">",
    }
}
