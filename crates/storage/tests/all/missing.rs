//! Missing data: each file and folder that a node keeps is removed, emptied or cut. A start has all rows, or
//! refuses and names what is missing; it goes on without it only if exactly that is accepted.
#![allow(clippy::disallowed_methods)]

use std::path::{Path, PathBuf};

use model::schema::SchemaChange;
use storage::{FailurePolicy, Identity, StorageConfig, StorageError};

use crate::failing::{all, config, names, opened, put, run, stopped, table_folder};
use crate::table::{ID, changes, write};

const ROWS: &str = "0123456789";

fn die(directory: &Path) -> StorageConfig {
    config(directory, FailurePolicy::Die)
}

/// Starts once; returns all rows, or the error.
fn start(config: StorageConfig) -> Result<String, StorageError> {
    run(async move {
        let storage = cluster::open_storage(config, 0, 1).await?;
        all(&storage).await
    })
}

/// Checks that a start is refused twice for the file that `path` names, and is not if exactly this loss is
/// accepted.
fn refused(directory: &Path, path: &Path) -> String {
    let error = start(die(directory)).expect_err("a start without something that must be there");
    let StorageError::Missing { what, token } = &error else { panic!("{}: {error}", path.display()) };
    let text = error.to_string();
    assert!(text.contains(&path.display().to_string()) && text.contains(token), "{}: {text}", path.display());
    let again = start(die(directory)).expect_err("nothing has changed");
    assert!(matches!(&again, StorageError::Missing { what: same, .. } if same == what), "{again}");
    let mut other = die(directory);
    other.accept_missing.push("00000000".to_owned());
    start(other).expect_err("the word of another loss");
    token.clone()
}

/// Paths below a folder, files and folders.
fn below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            let inner = if path.is_dir() { below(&path) } else { Vec::new() };
            std::iter::once(path).chain(inner)
        })
        .collect()
}

/// Calls `harm` with every path below a node's folder in turn, each on a node of its own, and starts the
/// node: it has all rows, or refuses twice with the same words; after the path is restored nothing is lost.
fn harmed(what: &str, harm: impl Fn(&Path)) -> usize {
    let (template, _) = stopped("-Data.db");
    let mut refusals = 0;
    for path in below(template.path()) {
        // A fresh copy each time, since a start changes its files.
        let copy = tempfile::tempdir().unwrap();
        copy_all(template.path(), copy.path());
        let place = copy.path().join(path.strip_prefix(template.path()).unwrap());
        harm(&place);
        match start(die(copy.path())) {
            Ok(rows) => assert_eq!(rows, ROWS, "{what} {place:?}"),
            Err(error) => {
                assert!(
                    error.to_string().contains(&copy.path().display().to_string()),
                    "{what} {place:?}: {error}"
                );
                let again = start(die(copy.path())).expect_err("nothing has changed");
                assert_eq!(error.to_string(), again.to_string(), "{what} {place:?}");
                refusals += 1;
                // An operator restores it.
                if place.is_dir() {
                    std::fs::remove_dir_all(&place).unwrap();
                } else if place.exists() {
                    std::fs::remove_file(&place).unwrap();
                }
                if path.is_dir() {
                    copy_all(&path, &place);
                } else {
                    std::fs::copy(&path, &place).unwrap();
                }
                let back = start(die(copy.path()));
                assert_eq!(back.as_deref().ok(), Some(ROWS), "{what} {place:?}, put back: {back:?}");
            }
        }
    }
    refusals
}

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let place = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_all(&entry.path(), &place);
        } else {
            std::fs::copy(entry.path(), place).unwrap();
        }
    }
}

#[test]
fn whatever_is_removed_is_missed_or_not_needed() {
    let refusals = harmed("removed", |path| {
        if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }.unwrap();
    });
    assert!(refusals > 10, "{refusals} refusals");
}

#[test]
fn whatever_is_emptied_is_missed_or_not_needed() {
    let refusals = harmed("emptied", |path| {
        if path.is_dir() {
            std::fs::remove_dir_all(path).unwrap();
            std::fs::create_dir(path).unwrap();
        } else {
            std::fs::write(path, []).unwrap();
        }
    });
    assert!(refusals > 10, "{refusals} refusals");
}

#[test]
fn whatever_is_a_folder_in_place_of_a_file_is_told() {
    let refusals = harmed("a folder", |path| {
        if path.is_file() {
            std::fs::remove_file(path).unwrap();
            std::fs::create_dir(path).unwrap();
        }
    });
    assert!(refusals > 5, "{refusals} refusals");
}

#[test]
fn a_table_file_that_lost_its_toc_gets_it_back() {
    let (directory, toc) = stopped("-TOC.txt");
    std::fs::remove_file(&toc).unwrap();
    assert_eq!(start(die(directory.path())).unwrap(), ROWS);
    assert!(toc.exists());
    assert_eq!(start(die(directory.path())).unwrap(), ROWS);
}

/// Removes the table files of a folder.
fn remove_set(folder: &Path) {
    for name in names(folder).into_iter().filter(|name| name.starts_with("me-")) {
        std::fs::remove_file(folder.join(name)).unwrap();
    }
}

#[test]
fn a_loss_that_is_accepted_is_told_once() {
    let (directory, data) = stopped("-Data.db");
    let folder = data.parent().unwrap();
    remove_set(folder);
    let token = refused(directory.path(), folder);
    let mut accepting = die(directory.path());
    accepting.accept_missing.push(token);
    assert_eq!(start(accepting).unwrap(), "56789", "what the commit log has");
    assert_eq!(start(die(directory.path())).unwrap(), "56789", "without the word");
}

/// A stopped node with a table and ten rows, five of them in a table file, whose `schema` folder is a backup
/// from before the table was made; beside it that folder as it should be.
fn with_an_older_schema() -> (tempfile::TempDir, tempfile::TempDir) {
    let (directory, backup) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let [keyspace, table] = changes();
    let of_run = die(directory.path());
    run(async move {
        let _storage = cluster::open_storage(of_run, 0, 1).await.expect("an open storage");
        cluster::change_schema(&keyspace).await.expect("a keyspace");
    });
    copy_all(&directory.path().join("schema"), backup.path());
    let of_run = die(directory.path());
    run(async move {
        let storage = cluster::open_storage(of_run, 0, 1).await.expect("an open storage");
        cluster::change_schema(&table).await.expect("a table");
        put(&storage, 0, 5).await;
        storage.flush(ID).await.expect("a flush");
        put(&storage, 5, 10).await;
    });
    let kept = tempfile::tempdir().unwrap();
    copy_all(&directory.path().join("schema"), kept.path());
    replace_all(backup.path(), &directory.path().join("schema"));
    (directory, kept)
}

fn replace_all(from: &Path, to: &Path) {
    std::fs::remove_dir_all(to).unwrap();
    copy_all(from, to);
}

#[test]
fn a_schema_that_lost_an_acknowledged_change_stops_the_start() {
    let (directory, kept) = with_an_older_schema();
    let schema = directory.path().join("schema");
    let error = start(die(directory.path())).expect_err("a schema without the table").to_string();
    assert!(error.contains("the schema changes from 5 to 6"), "{error}");
    refused(directory.path(), &schema.join("group0"));
    replace_all(kept.path(), &schema);
    assert_eq!(start(die(directory.path())).unwrap(), ROWS);
}

#[test]
fn entries_of_a_table_that_was_never_dropped_stop_the_start() {
    let (directory, _kept) = with_an_older_schema();
    // A manifest of that earlier day has no table file either.
    std::fs::remove_dir_all(directory.path().join("manifest")).unwrap();
    let mut accepting = die(directory.path());
    accepting.accept_missing.push(refused(directory.path(), &directory.path().join("manifest")));
    let error = start(accepting).expect_err("writes of an unknown table");
    assert!(error.to_string().contains("write(s) in the commit log and was never dropped"), "{error}");
}

#[test]
fn writes_of_a_dropped_table_are_no_loss() {
    let directory = tempfile::tempdir().unwrap();
    let of_run = die(directory.path());
    run(async move {
        let storage = opened(of_run).await;
        storage.apply(&write("key", "1", "1", 1), reactor::Deadline::NEVER).await.expect("a write");
        let (keyspace, name) = ("k".to_owned(), "t".to_owned());
        let dropped = SchemaChange::DropTable { keyspace, name, id: ID };
        cluster::change_schema(&dropped).await.expect("a drop");
    });
    run(async move { drop(cluster::open_storage(die(directory.path()), 0, 1).await.expect("a start")) });
}

/// Puts the schema log of an earlier version in the place of group 0.
fn turn_back(directory: &Path, magic: &[u8; 8]) {
    std::fs::remove_dir_all(directory.join("schema/group0")).unwrap();
    let log = storage::records::encode(magic, changes().iter().map(SchemaChange::encode));
    std::fs::write(directory.join("schema/schema.log"), log).unwrap();
}

#[test]
fn a_directory_of_a_version_without_a_manifest_is_taken_and_listed() {
    let (directory, data) = stopped("-Data.db");
    std::fs::remove_dir_all(directory.path().join("manifest")).unwrap();
    turn_back(directory.path(), b"cetoddl\n");
    assert_eq!(start(die(directory.path())).unwrap(), ROWS);
    remove_set(data.parent().unwrap());
    refused(directory.path(), data.parent().unwrap());
}

#[test]
fn a_schema_log_of_an_earlier_version_is_taken_over_once_and_missed_if_it_is_gone_or_cut() {
    let (directory, _) = stopped("-Data.db");
    turn_back(directory.path(), b"cetodd2\n");
    let (log, group0) = (directory.path().join("schema/schema.log"), directory.path().join("schema/group0"));
    let whole = std::fs::read(&log).unwrap();
    // The manifest has the numbers that group 0 gave; a log of two changes is shorter.
    refused(directory.path(), &log);
    std::fs::remove_file(&log).unwrap();
    refused(directory.path(), &group0);
    assert!(!group0.exists(), "nothing was made in its place");
    std::fs::write(&log, &whole).unwrap();
    let token = refused(directory.path(), &log);
    let mut accepting = die(directory.path());
    accepting.accept_missing.push(token);
    assert_eq!(start(accepting).unwrap(), ROWS);
    let aside = directory.path().join("schema/schema.log.migrated");
    assert!(aside.exists() && !log.exists() && group0.exists());
    assert_eq!(start(die(directory.path())).unwrap(), ROWS);
    // A start that ended before the log was put aside goes on; a log that was changed since is not ignored.
    std::fs::rename(&aside, &log).unwrap();
    assert_eq!(start(die(directory.path())).unwrap(), ROWS);
    assert!(aside.exists() && !log.exists());
    let [keyspace, _] = changes();
    std::fs::write(&log, storage::records::encode(b"cetodd2\n", [keyspace.encode()])).unwrap();
    let error = start(die(directory.path())).expect_err("two schemas");
    assert!(matches!(error, StorageError::TwoSchemas { .. }), "{error}");
}

#[test]
fn a_set_that_nobody_began_is_set_aside_and_not_deleted() {
    let (directory, _) = stopped("-Data.db");
    let folder = table_folder(directory.path());
    for name in
        names(&folder).into_iter().filter(|name| name.starts_with("me-") && !name.ends_with("TOC.txt"))
    {
        let parts: Vec<&str> = name.splitn(3, '-').collect();
        std::fs::copy(folder.join(&name), folder.join(format!("me-900-{}", parts[2]))).unwrap();
    }
    assert_eq!(start(die(directory.path())).unwrap(), ROWS);
    assert!(folder.join("quarantine/me-900-big-Data.db").exists());
    assert!(!folder.join("me-900-big-Data.db").exists());
}

/// Opens a node's identity; returns its host id.
fn identify(directory: &Path) -> Result<[u8; 16], StorageError> {
    let places = die(directory);
    let directory = directory.to_owned();
    run(async move { Ok(Identity::open(&directory, "a cluster", &places).await?.host_id) })
}

#[test]
fn a_folder_that_was_marked_and_is_another_ones_or_gone_refuses_the_identity() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let id = identify(first.path()).unwrap();
    assert_eq!(identify(first.path()).unwrap(), id);
    identify(second.path()).unwrap();
    for folder in ["data", "commitlog", "schema", "manifest", "hints"] {
        let (mine, theirs) = (first.path().join(folder), second.path().join(folder));
        let aside = first.path().join("aside");
        std::fs::rename(&mine, &aside).unwrap();
        let told = identify(first.path()).expect_err(folder).to_string();
        assert!(told.contains(&mine.display().to_string()), "{told}");
        assert!(!mine.exists(), "nothing was made in its place");
        copy_all(&theirs, &mine);
        let told = identify(first.path()).expect_err(folder).to_string();
        assert!(told.contains("of node"), "{told}");
        std::fs::remove_dir_all(&mine).unwrap();
        std::fs::rename(&aside, &mine).unwrap();
        assert_eq!(identify(first.path()).unwrap(), id);
    }
    let path = first.path().join("identity");
    let kept = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let told = identify(first.path()).expect_err("no identity");
    assert!(told.to_string().contains(&path.display().to_string()), "{told}");
    std::fs::write(&path, kept).unwrap();
    assert_eq!(identify(first.path()).unwrap(), id);
}
