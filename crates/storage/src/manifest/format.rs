//! The bytes of the manifest (docs/formats/manifest.md).
//!
//! ```text
//! current := "epoch: " number "\nshards: " number "\ncrc: " CRC-32 of the lines before, 8 hex digits "\n"
//! log     := a file of records (`records`), magic "cetomf1\n"; payload := edit*
//! edit    := 1 table:u8[16] generation:u64      a table file is in its tablet's set
//!          | 2 table:u8[16] generation:u64      it is in no set any more and is being removed
//!          | 3 table:u8[16] generation:u64      it is gone
//!          | 4 log:u32 slot:u64                 a segment of the commit log was made
//!          | 5 log:u32 slot:u64                 it is being deleted
//!          | 6 count:u64                        the last schema change has this number at least
//!          | 7 log:u32 table:u8[16] log2:u8 tablet:u32 since:u64 segment:u64 offset:u32
//!                                              that tenancy of the tablet begins at this place of the log
//! ```

use model::TableId;
use model::tablet::{TABLETS_LOG2_MAX, TabletId};

use super::{Tenancy, TenancyKey};
use crate::commitlog::format::{POSITION_BYTES, decode_position, encode_position};
use crate::records::Magic;

/// The first bytes of a shard's log of the manifest.
pub(crate) const MAGIC: &Magic = b"cetomf1\n";

/// A table file by its table and number.
pub(crate) type FileKey = (TableId, u64);
/// A segment of the commit log by the number of its shard's log and of its file.
pub(crate) type SegmentKey = (u32, u64);

/// One change of the files that must exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edit {
    /// A table file is in its tablet's set.
    Live(FileKey),
    /// A table file is in no set any more; the next start removes the rest of it.
    Removing(FileKey),
    /// A table file is gone.
    Gone(FileKey),
    /// A segment of the commit log exists.
    Segment(SegmentKey),
    /// A segment of the commit log is being deleted.
    SegmentGone(SegmentKey),
    /// The last change of the schema that was agreed upon has this number at least.
    Agreed(u64),
    /// A tenancy of a tablet begins at a place of a commit log.
    Tenancy(TenancyKey, Tenancy),
}

/// Appends the bytes of an edit.
pub(crate) fn encode(edit: Edit, out: &mut Vec<u8>) {
    let mut file = |kind: u8, (table, generation): FileKey| {
        out.push(kind);
        out.extend_from_slice(&table.0);
        out.extend_from_slice(&generation.to_le_bytes());
    };
    match edit {
        Edit::Live(key) => file(1, key),
        Edit::Removing(key) => file(2, key),
        Edit::Gone(key) => file(3, key),
        Edit::Segment((log, slot)) | Edit::SegmentGone((log, slot)) => {
            out.push(if matches!(edit, Edit::Segment(_)) { 4 } else { 5 });
            out.extend_from_slice(&log.to_le_bytes());
            out.extend_from_slice(&slot.to_le_bytes());
        }
        Edit::Agreed(count) => {
            out.push(6);
            out.extend_from_slice(&count.to_le_bytes());
        }
        Edit::Tenancy((log, table, log2, tablet), tenancy) => {
            out.push(7);
            out.extend_from_slice(&log.to_le_bytes());
            out.extend_from_slice(&table.0);
            out.push(log2);
            out.extend_from_slice(&tablet.0.to_le_bytes());
            out.extend_from_slice(&tenancy.since.to_le_bytes());
            out.extend_from_slice(&encode_position(tenancy.begin));
        }
    }
}

fn decode_tenancy(bytes: &[u8]) -> Option<(Edit, &[u8])> {
    let (log, rest) = bytes.split_first_chunk::<4>()?;
    let (table, rest) = rest.split_first_chunk::<16>()?;
    let (log2, rest) = rest.split_first()?;
    let (tablet, rest) = rest.split_first_chunk::<4>()?;
    let (since, rest) = rest.split_first_chunk::<8>()?;
    let (begin, rest) = rest.split_first_chunk::<POSITION_BYTES>()?;
    if *log2 > TABLETS_LOG2_MAX {
        return None;
    }
    let key = (u32::from_le_bytes(*log), TableId(*table), *log2, TabletId(u32::from_le_bytes(*tablet)));
    let tenancy = Tenancy { since: u64::from_le_bytes(*since), begin: decode_position(begin)? };
    Some((Edit::Tenancy(key, tenancy), rest))
}

/// The edits of a record; `None` for invalid bytes.
pub(crate) fn decode(mut bytes: &[u8]) -> Option<Vec<Edit>> {
    let mut edits = Vec::new();
    while let Some((kind, rest)) = bytes.split_first() {
        let (edit, rest) = match kind {
            1..=3 => {
                let (table, rest) = rest.split_first_chunk::<16>()?;
                let (generation, rest) = rest.split_first_chunk::<8>()?;
                let key = (TableId(*table), u64::from_le_bytes(*generation));
                let edit = match kind {
                    1 => Edit::Live(key),
                    2 => Edit::Removing(key),
                    _ => Edit::Gone(key),
                };
                (edit, rest)
            }
            4 | 5 => {
                let (log, rest) = rest.split_first_chunk::<4>()?;
                let (slot, rest) = rest.split_first_chunk::<8>()?;
                let key = (u32::from_le_bytes(*log), u64::from_le_bytes(*slot));
                (if *kind == 4 { Edit::Segment(key) } else { Edit::SegmentGone(key) }, rest)
            }
            6 => {
                let (count, rest) = rest.split_first_chunk::<8>()?;
                (Edit::Agreed(u64::from_le_bytes(*count)), rest)
            }
            7 => decode_tenancy(rest)?,
            _ => return None,
        };
        edits.push(edit);
        bytes = rest;
    }
    Some(edits)
}

/// Identifies the logs of the manifest that are valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Current {
    /// Logs of other epochs are leftovers.
    pub(crate) epoch: u64,
    /// Number of logs, one for each shard.
    pub(crate) shards: usize,
}

impl Current {
    /// The text of the file.
    pub(crate) fn encode(self) -> String {
        let lines = format!("epoch: {}\nshards: {}\n", self.epoch, self.shards);
        format!("{lines}crc: {:08x}\n", crc32fast::hash(lines.as_bytes()))
    }

    /// Reads the text; `None` if it is damaged.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (lines, crc) = std::str::from_utf8(bytes).ok()?.rsplit_once("crc: ")?;
        let crc = u32::from_str_radix(crc.strip_suffix('\n')?, 16).ok()?;
        if crc != crc32fast::hash(lines.as_bytes()) {
            return None;
        }
        let (epoch, shards) = lines.strip_prefix("epoch: ")?.split_once("\nshards: ")?;
        Some(Self { epoch: epoch.parse().ok()?, shards: shards.strip_suffix('\n')?.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commitlog::format::Position;

    #[test]
    fn edits_come_back_and_cut_ones_do_not() {
        let key = (TableId([9; 16]), 1 << 40);
        let edits = [
            Edit::Live(key),
            Edit::Removing(key),
            Edit::Gone(key),
            Edit::Segment((3, 7)),
            Edit::SegmentGone((3, 8)),
            Edit::Agreed(11),
            Edit::Tenancy(
                (2, key.0, 3, TabletId(5)),
                Tenancy { since: 1 << 33, begin: Position { segment: 9, offset: 4096 } },
            ),
        ];
        let mut bytes = Vec::new();
        let mut ends = vec![0];
        for edit in edits {
            encode(edit, &mut bytes);
            ends.push(bytes.len());
        }
        for at in 0..=bytes.len() {
            let whole = ends.iter().position(|end| *end == at);
            assert_eq!(decode(&bytes[..at]), whole.map(|count| edits[..count].to_vec()), "{at} bytes");
        }
        assert_eq!(decode(&[9]), None);
    }

    #[test]
    fn which_logs_count_comes_back_whole_or_not_at_all() {
        let current = Current { epoch: 12, shards: 3 };
        let text = current.encode();
        assert_eq!(Current::decode(text.as_bytes()), Some(current));
        for at in 0..text.len() {
            assert_eq!(Current::decode(&text.as_bytes()[..at]), None);
            let mut damaged = text.clone().into_bytes();
            damaged[at] ^= 2;
            assert_eq!(Current::decode(&damaged), None, "byte {at}");
        }
    }
}
