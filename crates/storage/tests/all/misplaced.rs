//! Table files that were put in a table's folder by hand and are of another node's tablets: no answer leaves
//! out their rows in silence, and they can be taken in.
#![allow(clippy::disallowed_methods)]

use std::path::Path;

use storage::{FailurePolicy, ImportSource, ScrubMode, StorageError};

use crate::failing::{POLICIES, accepting, all, config, names, run, stopped, table_folder};
use crate::table::ID;
use FailurePolicy::{BestEffort, Die, Ignore, Stop, StopParanoid};

/// Gives the one table file in a folder a number of the table's other tablet.
fn misplace(folder: &Path) {
    let file = names(folder).into_iter().find(|name| name.ends_with("-Data.db")).expect("a table file");
    let number: u64 = file.split('-').nth(1).and_then(|number| number.parse().ok()).expect("a number");
    for name in names(folder).iter().filter(|name| name.starts_with("me-")) {
        let other = name.replacen(&format!("-{number}-"), &format!("-{}-", number + 1), 1);
        std::fs::rename(folder.join(name), folder.join(other)).unwrap();
    }
}

#[test]
fn a_file_of_other_tablets_ends_the_start_or_is_set_aside_or_makes_reads_fail_and_is_taken_in() {
    for policy in POLICIES {
        let (directory, _) = stopped("-Data.db");
        let folder = table_folder(directory.path());
        misplace(&folder);
        // Under its own number it is missing.
        let config = accepting(config(directory.path(), policy));
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
                storage.scrub(ID, ScrubMode::Skip).await.expect("a scrub");
            }
            assert_eq!(all(&storage).await.expect("the other rows"), "56789", "{policy:?}");
            let from = ImportSource { directory: Some(folder.join("quarantine")), keep: false };
            assert_eq!(storage.import(ID, &from).await.expect("an import").files, 1);
            assert_eq!(all(&storage).await.expect("a read"), "0123456789", "{policy:?}");
        });
    }
}
