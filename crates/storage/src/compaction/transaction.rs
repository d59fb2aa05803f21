//! Records of compactions left by versions without a manifest: the table files that an interrupted exchange
//! made obsolete.
//!
//! `compaction-<generation>.txn` beside the table files lists obsolete files, which do not count any more.
//!
//! ```text
//! record := ("remove " generation "\n")* "crc " CRC-32 of the lines before, 8 hex digits "\n"
//! ```

use std::collections::BTreeSet;
use std::path::Path;

use crate::error::StorageError;

const SUFFIX: &str = ".txn";
const PREFIX: &str = "compaction-";
const RECORD_BYTES_MAX: usize = 1 << 20;

/// The contents of a folder's records.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    /// Numbers of table files that do not count any more.
    pub(crate) obsolete: BTreeSet<u64>,
    /// Names of the records, including unfinished ones.
    pub(crate) names: Vec<String>,
}

/// Whether a name is that of a finished record.
pub(crate) fn is_record(name: &str) -> bool {
    name.starts_with(PREFIX) && name.ends_with(SUFFIX)
}

fn decode(bytes: &[u8]) -> Option<Vec<u64>> {
    let (lines, crc) = std::str::from_utf8(bytes).ok()?.rsplit_once("crc ")?;
    let crc = u32::from_str_radix(crc.strip_suffix('\n')?, 16).ok()?;
    if crc != crc32fast::hash(lines.as_bytes()) {
        return None;
    }
    lines.lines().map(|line| line.strip_prefix("remove ")?.parse().ok()).collect()
}

/// Reads the records among the names of a folder.
///
/// # Errors
/// Those of reading; a damaged record.
pub(crate) async fn recorded(directory: &Path, names: &[&str]) -> Result<Recorded, StorageError> {
    let mut recorded = Recorded::default();
    for name in names {
        if is_record(name) {
            let path = directory.join(name);
            let bytes = reactor::file::read_all(&path, RECORD_BYTES_MAX)
                .await
                .map_err(StorageError::of("read", &path))?;
            let Some(generations) = decode(&bytes) else {
                return Err(StorageError::TableFileCorrupt {
                    path,
                    reason: "the record of a compaction is damaged".to_owned(),
                });
            };
            recorded.obsolete.extend(generations);
            recorded.names.push((*name).to_owned());
        } else if name.starts_with(PREFIX) && name.ends_with(".txn.tmp") {
            recorded.names.push((*name).to_owned());
        }
    }
    Ok(recorded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_whole_or_not_at_all() {
        let lines = "remove 3\nremove 17\nremove 4000000000\n";
        let text = format!("{lines}crc {:08x}\n", crc32fast::hash(lines.as_bytes()));
        assert_eq!(decode(text.as_bytes()), Some(vec![3, 17, 4_000_000_000]));
        for at in 0..text.len() {
            assert_eq!(decode(&text.as_bytes()[..at]), None);
            let mut damaged = text.clone().into_bytes();
            damaged[at] ^= 2;
            assert_eq!(decode(&damaged), None, "byte {at}");
        }
    }
}
