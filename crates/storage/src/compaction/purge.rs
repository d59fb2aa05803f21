//! Which tombstones a compaction may forget.
//!
//! A tombstone may go when its time is over, by the table's `gc_grace_seconds` and `tombstone_gc`, and
//! nothing outside the merge is as old as it: neither a file that may have the partition nor a memtable.
//! Operators may have a table keep all of its tombstones for a while ([`Storage::set_tombstone_gc`]), and a
//! tablet of which a replica joins or leaves keeps them until it is done.

use std::collections::BTreeMap;
use std::rc::Rc;

use model::schema::TableOptions;
use model::{Table, TableId, Token};

use crate::error::StorageError;
use crate::shard::Storage;
use crate::tablet::{TableFile, Tablet};

/// Name of the table extension with the mode, as in `{'mode': 'timeout'}`.
const EXTENSION: &str = "tombstone_gc";

impl Storage {
    /// Tombstones of the table with a local time before this may go from the tablet; 0 if none may.
    pub(super) fn gc_before(&self, tablet: &Tablet, table: &Table, now: u32) -> u32 {
        if tablet.lacks_rows() {
            // The data they shadow may be in a file that is not read now, and would come back with it.
            return 0;
        }
        if tablet.keeps_tombstones() {
            return 0;
        }
        self.purge_horizon(table, now)
    }

    /// Tombstones of the table with a local time before this, in seconds, may be gone where `now` is the
    /// time; 0 if none may. A write that is older must not be applied: what deleted its data may be
    /// forgotten.
    pub fn purge_horizon(&self, table: &Table, now: u32) -> u32 {
        gc_before(table.options(), || self.has_one_copy(table), now)
    }

    fn has_one_copy(&self, table: &Table) -> bool {
        let schema = self.borrow_schema();
        let keyspace = schema.keyspace(table.keyspace());
        keyspace.is_some_and(|keyspace| has_one_copy(&keyspace.options.replication))
    }

    /// Whether compactions of the table on this shard may drop tombstones, as far as operators are concerned.
    ///
    /// # Errors
    /// [`StorageError::UnknownTable`].
    pub fn tombstone_gc(&self, table: TableId) -> Result<bool, StorageError> {
        Ok(!self.table_store(table)?.tablets().iter().any(|tablet| tablet.operators_keep_tombstones()))
    }

    /// Lets compactions of the table on this shard drop tombstones, or has them keep all, until the next
    /// start. Compactions at work keep them from the next partition on.
    ///
    /// # Errors
    /// [`StorageError::UnknownTable`].
    pub fn set_tombstone_gc(&self, table: TableId, on: bool) -> Result<(), StorageError> {
        for tablet in &self.table_store(table)?.tablets() {
            tablet.let_operators_keep_tombstones(!on);
            // Compactions for the sake of tombstones become due, or are due no longer.
            self.look_again(tablet);
        }
        Ok(())
    }
}

/// As [`Storage::gc_before`], from the table's options alone.
///
/// `tombstone_gc` has the modes that ScyllaDB documents: `timeout` (the default) waits for
/// `gc_grace_seconds`, `immediate` does not wait, `disabled` keeps all tombstones. `repair` purges data that
/// was repaired; as nothing was repaired, it keeps all. With a single copy nothing can be repaired and
/// nothing has to be: `repair` is then as `immediate`, as in newer ScyllaDB.
fn gc_before(options: &TableOptions, has_one_copy: impl Fn() -> bool, now: u32) -> u32 {
    let mode = options.extensions.get(EXTENSION).map_or("timeout".to_owned(), |bytes| mode_of(bytes));
    match mode.as_str() {
        "disabled" => 0,
        "repair" if !has_one_copy() => 0,
        "immediate" | "repair" => now,
        _ => now.saturating_sub(options.gc_grace_seconds),
    }
}

/// Whether a keyspace with this replication has at most one copy of everything, over all data centers.
fn has_one_copy(replication: &BTreeMap<String, String>) -> bool {
    // A factor that cannot be parsed counts as several copies.
    let copies = replication
        .iter()
        .filter(|(name, _)| *name != "class")
        .map(|(_, text)| text.split('/').next().and_then(|n| n.trim().parse().ok()).unwrap_or(2u64));
    copies.fold(0, u64::saturating_add) <= 1
}

/// The mode in the extension's text: a map such as `{'mode': 'immediate'}`, or the word alone.
fn mode_of(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).to_lowercase();
    let words: Vec<&str> =
        text.split(|c: char| !c.is_ascii_alphabetic() && c != '_').filter(|word| !word.is_empty()).collect();
    let named = words.iter().position(|word| *word == "mode").and_then(|at| words.get(at + 1));
    named.or(words.first().filter(|_| words.len() == 1)).map_or("timeout", |mode| mode).to_owned()
}

/// The files that a merge does not read, and the memtables: the data that tombstones may shadow.
pub(super) struct Outside {
    files: Vec<Rc<TableFile>>,
    /// The tablet's set of files that `files` was taken from.
    of: Rc<Vec<Rc<TableFile>>>,
}

impl Outside {
    /// All files of the tablet but `inputs`.
    pub(super) fn new(tablet: &Tablet, inputs: &[Rc<TableFile>]) -> Self {
        let mut outside = Self { files: Vec::new(), of: tablet.files() };
        outside.fill(inputs);
        outside
    }

    fn fill(&mut self, inputs: &[Rc<TableFile>]) {
        let is_input = |file: &&Rc<TableFile>| inputs.iter().any(|input| Rc::ptr_eq(input, file));
        self.files = self.of.iter().filter(|file| !is_input(file)).cloned().collect();
        self.files.sort_by_key(|file| file.sstable().stats().min_timestamp);
    }

    /// Takes the files again if the tablet's files have changed.
    pub(super) fn refresh(&mut self, tablet: &Tablet, inputs: &[Rc<TableFile>]) {
        let now = tablet.files();
        if !Rc::ptr_eq(&now, &self.of) {
            self.of = now;
            self.fill(inputs);
        }
    }

    /// Timestamp below which tombstones of the partition shadow nothing outside the merge.
    pub(super) fn timestamp_limit(&self, tablet: &Tablet, token: Token, key: &[u8]) -> i64 {
        // Oldest first: the first file that may have the partition decides.
        let files = self.files.iter().find(|file| file.sstable().may_contain(token, key));
        let files = files.map(|file| file.sstable().stats().min_timestamp);
        let memtables = tablet.memtables();
        let memory = memtables
            .iter()
            .filter(|memtable| memtable.contents().find(token, key).is_some())
            .map(|memtable| memtable.timestamp_min());
        files.into_iter().chain(memory).min().unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repair_forgets_where_there_is_one_copy() {
        let check = |replication: &[(&str, &str)], expected: u32| {
            let replication =
                replication.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect();
            let mut options = TableOptions { gc_grace_seconds: 10, ..TableOptions::default() };
            options.extensions.insert(EXTENSION.into(), b"{'mode': 'repair'}".to_vec());
            assert_eq!(gc_before(&options, || has_one_copy(&replication), 100), expected, "{replication:?}");
            options.extensions.clear();
            assert_eq!(gc_before(&options, || has_one_copy(&replication), 100), 90);
        };
        check(&[("class", "SimpleStrategy"), ("replication_factor", "1")], 100);
        check(&[("class", "LocalStrategy")], 100);
        check(&[("class", "NetworkTopologyStrategy"), ("dc1", "1"), ("dc2", "0")], 100);
        check(&[("class", "NetworkTopologyStrategy"), ("dc1", "1"), ("dc2", "1")], 0);
        check(&[("class", "SimpleStrategy"), ("replication_factor", "3")], 0);
        check(&[("class", "SimpleStrategy"), ("replication_factor", "3/1")], 0);
        check(&[("class", "SimpleStrategy"), ("replication_factor", "many")], 0);
    }

    #[test]
    fn the_mode_is_read_from_a_map_or_a_word() {
        for (text, expected) in [
            ("{'mode': 'immediate'}", "immediate"),
            ("{\"mode\":\"repair\",\"propagation_delay_in_seconds\":\"3600\"}", "repair"),
            ("disabled", "disabled"),
            ("{'propagation_delay_in_seconds':'3600','mode':'timeout'}", "timeout"),
            ("", "timeout"),
        ] {
            assert_eq!(mode_of(text.as_bytes()), expected, "{text}");
        }
    }
}
