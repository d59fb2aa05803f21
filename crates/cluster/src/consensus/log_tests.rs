//! The files of a group on a real disk: each one cut at each byte, with each byte changed, and gone.
#![allow(clippy::disallowed_methods)] // a test harms files

use std::path::{Path, PathBuf};

use super::files::LogError;
use super::{Entry, GroupLog, HardState, LogLimits, Members, Payload, Recovered, Snapshot};

const LIMITS: LogLimits = LogLimits { bytes: 1 << 20, entries: 1000 };

fn entry(index: u64) -> Entry {
    Entry { index, term: 2, payload: Payload::Command(vec![index as u8; 3]) }
}

fn snapshot(index: u64, term: u64) -> Snapshot {
    Snapshot { index, term, members: Members::lone(1), state: b"a state".to_vec() }
}

fn run<T: 'static>(work: impl AsyncFnOnce() -> T + 'static) -> T {
    reactor::run_one(reactor::Config::default(), async move { work().await })
}

fn open(folder: &Path) -> Result<Recovered, LogError> {
    let folder = folder.to_owned();
    run(async move || GroupLog::open(&folder, LIMITS).await.map(|(_, recovered)| recovered))
}

/// A group of six entries, the last two of which are committed by the last batch; five are behind a snapshot.
fn written() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("group0");
    let of_run = folder.clone();
    run(async move || {
        GroupLog::create(&of_run, &snapshot(1, 1)).await.unwrap();
        let (log, _) = GroupLog::open(&of_run, LIMITS).await.unwrap();
        let state = |commit| Some(HardState { term: 2, vote: Some(1), commit });
        log.append(state(1), vec![entry(2), entry(3)]).await.unwrap();
        let kept = log.replace(&snapshot(2, 2), state(3).unwrap(), &[entry(3)]).await.unwrap();
        assert!(kept);
        log.append(None, vec![entry(4)]).await.unwrap();
        // Another leader's entry takes the place of one that was not committed.
        log.append(state(3), vec![entry(4), entry(5)]).await.unwrap();
        log.append(state(4), vec![entry(6), entry(7)]).await.unwrap();
    });
    (directory, folder)
}

fn copy(folder: &Path) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("group0");
    std::fs::create_dir(&to).unwrap();
    for file in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
    (directory, to)
}

fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// The end of the bytes that are not zero: the log keeps space behind its end.
fn used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

#[test]
fn what_was_appended_is_found_again() {
    let (_directory, folder) = written();
    assert_eq!(files(&folder), ["acknowledged", "log-2", "snapshot-2"]);
    for _ in 0..2 {
        let found = open(&folder).unwrap();
        assert_eq!(found.snapshot, snapshot(2, 2));
        assert_eq!(found.hard_state, HardState { term: 2, vote: Some(1), commit: 4 });
        assert_eq!(found.entries, (3..=7).map(entry).collect::<Vec<_>>());
    }
}

#[test]
fn files_that_are_gone_cut_or_changed_are_named_and_never_guessed() {
    let (_directory, folder) = written();
    let whole = open(&folder).unwrap();
    let mut refused = 0;
    for name in files(&folder) {
        let bytes = std::fs::read(folder.join(&name)).unwrap();
        let mut harmed: Vec<Option<Vec<u8>>> = vec![None];
        harmed.extend((0..used(&bytes)).map(|cut| Some(bytes[..cut].to_vec())));
        harmed.extend((0..used(&bytes)).map(|at| {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            Some(changed)
        }));
        for (number, harm) in harmed.into_iter().enumerate() {
            let (_directory, folder) = copy(&folder);
            let path = folder.join(&name);
            match harm {
                Some(bytes) => std::fs::write(&path, bytes).unwrap(),
                None => std::fs::remove_file(&path).unwrap(),
            }
            let before = std::fs::read(&path).ok();
            let Err(error) = open(&folder).map(|found| assert_eq!(found, whole, "{name} {number}")) else {
                panic!("{name}, harm {number}: the start did not notice");
            };
            assert!(error.to_string().contains(&name), "{name} {number}: {error}");
            assert_eq!(std::fs::read(&path).ok(), before, "{name} {number}: it stays as it was");
            refused += 1;
        }
    }
    assert!(refused > 500, "{refused} refusals");
}

#[test]
fn an_append_that_nobody_was_told_of_may_be_torn() {
    let (_directory, folder) = written();
    let whole = open(&folder).unwrap();
    let path = folder.join("log-2");
    let bytes = std::fs::read(&path).unwrap();
    let end = used(&bytes);
    // The beginning of one more record.
    for length in 1..30 {
        let (_directory, folder) = copy(&folder);
        let mut torn = bytes.clone();
        torn.resize(torn.len().max(end + 40), 0);
        torn[end + 8..end + 8 + length].fill(0xab);
        std::fs::write(folder.join("log-2"), torn).unwrap();
        assert_eq!(open(&folder).unwrap(), whole, "{length} bytes");
        assert_eq!(open(&folder).unwrap(), whole, "{length} bytes, at the second start");
    }
}
