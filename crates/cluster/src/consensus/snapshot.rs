//! A snapshot: the state after an entry of the log, in one file that is written once.
//!
//! ```text
//! snapshot-<index> := magic "cetosn1\n" record[head] record[state]     records as in storage::records
//! head := CBOR {0: index, 1: term, 2: members}      members as of that index
//! ```
//! The file is written under a temporary name, synced, renamed, and its folder synced, so that under its own
//! name it is always whole: anything else there is damage.
//! Format: docs/formats/group0.md.

use std::path::Path;

use minicbor::{Decode, Encode};
use storage::StorageError;
use storage::records::{self, Magic};

use super::Members;
use super::files::{LogError, snapshot_path};

const MAGIC: &Magic = b"cetosn1\n";

/// The state after the entry at `index`, and that entry's place.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Snapshot {
    /// Index of the last entry that the state includes.
    #[n(0)]
    pub index: u64,
    /// Its term.
    #[n(1)]
    pub term: u64,
    /// The members as of that entry.
    #[n(2)]
    pub members: Members,
    /// The owner's state as bytes.
    #[n(3)]
    #[cbor(with = "minicbor::bytes")]
    pub state: Vec<u8>,
}

#[derive(Encode, Decode)]
struct Head {
    #[n(0)]
    index: u64,
    #[n(1)]
    term: u64,
    #[n(2)]
    members: Members,
}

impl Snapshot {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let head = Head { index: self.index, term: self.term, members: self.members.clone() };
        let head = minicbor::to_vec(&head).expect("writing to memory does not fail");
        records::encode(MAGIC, [head, self.state.clone()])
    }

    /// Writes the file, durably.
    pub(super) async fn write(&self, folder: &Path) -> Result<(), LogError> {
        let path = snapshot_path(folder, self.index);
        let written = reactor::file::write_all_atomic(&path, &self.to_bytes()).await;
        Ok(written.map_err(StorageError::of("write", &path))?)
    }

    /// Reads the file of that index.
    pub(super) async fn read(folder: &Path, index: u64) -> Result<Snapshot, LogError> {
        let path = snapshot_path(folder, index);
        let bytes = records::read(&path).await?;
        let snapshot = parse(&bytes, &path)?;
        if snapshot.index != index {
            let reason = format!("it is the snapshot of {}", snapshot.index);
            return Err(LogError::damaged(&path, 8, reason));
        }
        Ok(snapshot)
    }
}

pub(super) fn parse(bytes: &[u8], path: &Path) -> Result<Snapshot, LogError> {
    let parsed = records::parse(bytes, MAGIC)
        .map_err(|damaged| LogError::damaged(path, damaged.offset, damaged.reason))?;
    let [head, state] = parsed.payloads[..] else {
        return Err(LogError::damaged(
            path,
            parsed.end,
            format!("{} of 2 records are whole", parsed.payloads.len()),
        ));
    };
    if parsed.end != bytes.len() {
        return Err(LogError::damaged(path, parsed.end, "bytes follow the last record"));
    }
    let head: Head = minicbor::decode(head)
        .map_err(|error| LogError::damaged(path, parsed.offsets[0], error.to_string()))?;
    if head.index == 0 || head.term == 0 || head.members.voters.is_empty() {
        return Err(LogError::damaged(path, parsed.offsets[0], "it has no index, term or voters"));
    }
    Ok(Snapshot { index: head.index, term: head.term, members: head.members, state: state.to_vec() })
}
