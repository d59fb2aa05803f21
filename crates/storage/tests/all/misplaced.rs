//! Table files that were put in a table's folder by hand and are of another node's tablets: no answer leaves
//! out their rows in silence, and they can be taken in.
#![allow(clippy::disallowed_methods)]

use std::path::Path;

use model::Token;
use model::partition_key::DecoratedKey;
use reactor::Deadline;
use storage::{FailurePolicy, ImportSource, ScrubMode, StorageError};

use crate::failing::{POLICIES, accepting, all, config, names, run, stopped, table_folder};
use crate::table::{ID, changes_with, write};
use FailurePolicy::{BestEffort, Die, Ignore, Stop, StopParanoid};

/// Puts a file in a folder that has rows of two tablets, as a node makes it whose table has one.
fn misplace(folder: &Path) {
    let other = tempfile::tempdir().unwrap();
    let of_other = config(other.path(), Ignore);
    run(async move {
        let storage = cluster::open_storage(of_other, 0, 1).await.expect("an open storage");
        for change in changes_with(0, |_| ()) {
            cluster::change_schema(&change).await.expect("a schema change");
        }
        for upper in [false, true] {
            let is_there =
                |key: &String| (DecoratedKey::new(key.clone().into_bytes()).token > Token(0)) == upper;
            let key = (0..).map(|number| format!("other{number}")).find(is_there).expect("a key");
            storage.apply(&write(&key, "c", "x", 1), Deadline::NEVER).await.expect("a write");
        }
        storage.flush(ID).await.expect("a flush");
    });
    let from = table_folder(other.path());
    for name in names(&from).iter().filter(|name| name.starts_with("me-1-")) {
        std::fs::copy(from.join(name), folder.join(name.replacen("-1-", "-77-", 1))).unwrap();
    }
}

#[test]
fn a_file_of_other_tablets_ends_the_start_or_is_set_aside_or_makes_reads_fail_and_is_taken_in() {
    for policy in POLICIES {
        let (directory, _) = stopped("-Data.db");
        let folder = table_folder(directory.path());
        misplace(&folder);
        let config = config(directory.path(), policy);
        run(async move {
            let names_the_file = |error: StorageError| match error {
                StorageError::TableFileCorrupt { path, reason } => {
                    assert!(path.starts_with(&folder) && reason.contains("outside the tablet"), "{reason}");
                }
                other => panic!("{policy:?}: {other}"),
            };
            let storage = match (policy, cluster::open_storage(config, 0, 1).await) {
                (Die | StopParanoid | Stop, Err(error)) => return names_the_file(error),
                (BestEffort | Ignore, Ok(storage)) => storage,
                (_, other) => panic!("{policy:?}: {:?}", other.map(|_| "a start")),
            };
            if policy == Ignore {
                names_the_file(all(&storage).await.expect_err("rows that are not read"));
                let scrubbed = storage.scrub(ID, ScrubMode::Validate).await.expect("a look");
                assert_eq!(scrubbed.damaged_files, 1, "one file, though two tablets may need it");
                storage.scrub(ID, ScrubMode::Skip).await.expect("a scrub");
            }
            assert_eq!(all(&storage).await.expect("the other rows"), "0123456789", "{policy:?}");
            let from = ImportSource { directory: Some(folder.join("quarantine")), keep: false };
            assert_eq!(storage.import(ID, &from).await.expect("an import").files, 1);
            let found = all(&storage).await.expect("a read");
            assert_eq!(found.matches('x').count(), 2, "{policy:?}: {found}");
            assert_eq!(found.replace('x', ""), "0123456789", "{policy:?}");
        });
    }
}

#[test]
fn yesterdays_directory_opens_as_it_is() {
    // Until now a number named its tablet, so files have any numbers, and large steps between them.
    for number in [1u64, 2, 4096, (1 << 31) - 2, 1 << 31, 1 << 40] {
        let (directory, _) = stopped("-Data.db");
        let folder = table_folder(directory.path());
        for name in names(&folder).iter().filter(|name| name.starts_with("me-1-")) {
            std::fs::rename(folder.join(name), folder.join(name.replacen("-1-", &format!("-{number}-"), 1)))
                .unwrap();
        }
        let mut config = config(directory.path(), Die);
        if number != 1 {
            // Under its own number it is missing.
            config = accepting(config);
        }
        for life in 0..2u64 {
            let (config, folder) = (config.clone(), folder.clone());
            run(async move {
                let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
                assert_eq!(all(&storage).await.expect("a read"), "0123456789", "{number}, life {life}");
                storage.apply(&write("key", "0", "0", 100), Deadline::NEVER).await.expect("a write");
                storage.flush(ID).await.expect("a flush");
                let kept = folder.join(format!("me-{number}-big-Data.db"));
                assert!(kept.exists(), "it keeps its number");
                let files = storage.table_files(ID).expect("the table");
                let newest = files.iter().map(|file| file.generation).filter(|other| *other != number).max();
                // Others are counted on from the greatest below, which the manifest still names.
                let expected = if number < (1 << 31) { number + life + 1 } else { life + 2 };
                assert_eq!(newest, Some(expected), "{number}, life {life}");
            });
        }
    }
}
