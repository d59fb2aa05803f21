//! Looks for damage in a table's files and reports where it is; changes nothing.
//!
//! This is `nodetool verify`. A file that is found damaged is remembered as such: compactions leave it alone,
//! a scrub repairs it. Invariant: a file that leaves meanwhile, by a compaction or with its table, does not
//! count as damage.

use std::path::PathBuf;
use std::rc::Rc;

use model::TableId;
use sstable::{Sstable, VerifyDepth};

use super::running::CompactionKind;
use crate::error::StorageError;
use crate::shard::Storage;
use crate::tablet::{TableFile, Tablet};

/// How deeply files are checked, and the handling of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifyOptions {
    /// How much of each file is read.
    pub depth: VerifyDepth,
    /// Whether `disk_failure_policy` acts on damage as if a read had met it.
    pub tells_policy: bool,
}

/// A damaged file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedFile {
    /// Its data component.
    pub path: PathBuf,
    /// The damaged component and the kind of damage.
    pub reason: String,
}

/// The result of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Number of files examined.
    pub files: usize,
    /// The damaged ones among them.
    pub damaged: Vec<DamagedFile>,
    /// Whether an operator stopped it before all files were examined.
    pub stopped: bool,
}

impl Storage {
    /// Looks for damage in the files that a table has on this shard.
    ///
    /// # Errors
    /// [`StorageError::UnknownTable`]; [`StorageError::Draining`]. Damage, and a disk that does not read, are
    /// findings.
    pub async fn verify(&self, table: TableId, options: VerifyOptions) -> Result<VerifyReport, StorageError> {
        let store = self.table_store(table)?;
        let mut report = VerifyReport::default();
        for tablet in &store.tablets() {
            for file in tablet.left_out() {
                let path = file.descriptor.path(&tablet.directory, sstable::Component::Data);
                let is_counted = report.damaged.iter().any(|damaged| damaged.path == path);
                if file.is_shared && (is_counted || self.0.shard != 0) {
                    continue;
                }
                report.files += 1;
                let reason =
                    file.refuses.map_or_else(|| "it is not read".to_owned(), |error| error.to_string());
                report.damaged.push(DamagedFile { path, reason });
            }
            for file in tablet.files().iter() {
                if self.0.draining.get() {
                    return Err(StorageError::Draining);
                }
                if !self.verify_file(tablet, file, options, &mut report).await {
                    report.stopped = true;
                    return Ok(report);
                }
            }
        }
        Ok(report)
    }

    /// Returns false if an operator stopped it.
    async fn verify_file(
        &self,
        tablet: &Rc<Tablet>,
        file: &Rc<TableFile>,
        options: VerifyOptions,
        report: &mut VerifyReport,
    ) -> bool {
        let table = tablet.table();
        let bytes = file.sstable().bytes_on_disk();
        let entered = self.0.compactions.enter(CompactionKind::Verify, &table, bytes, 1);
        let (directory, descriptor) = (tablet.directory.clone(), file.sstable().descriptor());
        let tokens = (file.sstable().first_key().0, file.sstable().last_key().0);
        let go_on = |done: u64| {
            entered.running.completed.set(done.min(bytes));
            !entered.running.is_stopped() && !self.0.draining.get()
        };
        let verified = Sstable::verify(&directory, descriptor, &table, options.depth, go_on).await;
        if tablet.has_left() || !tablet.files().iter().any(|other| Rc::ptr_eq(other, file)) {
            return true;
        }
        report.files += 1;
        let (first, last) = tablet.tokens();
        let reason = match verified {
            Ok(false) => {
                report.files -= 1;
                return false;
            }
            Ok(true) if tokens.0 < first || last < tokens.1 => "it has tokens outside its tablet".to_owned(),
            Ok(true) => return true,
            Err(error) => {
                let error = file.failed(error);
                if options.tells_policy {
                    self.note_read_error(&error);
                }
                error.to_string()
            }
        };
        reactor::error!("a table file does not pass verification"; file = file.path().display(), reason = &reason);
        report.damaged.push(DamagedFile { path: file.path(), reason });
        true
    }
}
