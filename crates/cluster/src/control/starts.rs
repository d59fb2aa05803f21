//! How often a node's data directory was started: synced at each start, before other nodes hear of it.
//!
//! ```text
//! starts := count:u64 crc:u32        little endian; CRC-32 of the eight bytes before it
//! ```
//! A directory whose count is behind what the cluster has seen is an old copy: it may have forgotten votes
//! and promises, and is refused. A damaged file stops the start.

use std::path::Path;
use std::rc::Rc;

use storage::StorageError;

use crate::group0::GroupFailure;

const FILE: &str = "starts";
const FILE_BYTES: usize = 12;

/// Counts a start of the directory: the number of this one, from 1 on, durable.
///
/// # Errors
/// [`StorageError::ControlPlane`] for a damaged file; file errors.
pub(super) async fn count(folder: &Path) -> Result<u64, StorageError> {
    let path = folder.join(FILE);
    reactor::file::create_dir_all(folder).await.map_err(StorageError::of("create", folder))?;
    // The folder has to be durable before its files can be.
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    reactor::file::sync_dir(parent).await.map_err(StorageError::of("sync", parent))?;
    let exists = reactor::file::exists(&path).await.map_err(StorageError::of("look for", &path))?;
    let before = match exists {
        false => 0,
        true => {
            let bytes = reactor::file::read_all(&path, FILE_BYTES + 1)
                .await
                .map_err(StorageError::of("read", &path))?;
            decode(&bytes).ok_or_else(|| {
                let reason = format!("{} is damaged", path.display());
                StorageError::ControlPlane(Rc::new(GroupFailure::Broken(reason)))
            })?
        }
    };
    let now = before + 1;
    reactor::file::write_all_atomic(&path, &encode(now)).await.map_err(StorageError::of("write", &path))?;
    Ok(now)
}

fn encode(count: u64) -> [u8; FILE_BYTES] {
    let mut bytes = [0; FILE_BYTES];
    bytes[..8].copy_from_slice(&count.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..8]);
    bytes[8..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<u64> {
    let (count, crc) = bytes.split_first_chunk::<8>()?;
    let known = crc == crc32fast::hash(count).to_le_bytes();
    let count = u64::from_le_bytes(*count);
    (known && count < u64::MAX).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_counted_and_damage_is_noticed() {
        reactor::sim::run_one(1, || async {
            let folder = Path::new("/ceto/schema");
            assert_eq!((count(folder).await.unwrap(), count(folder).await.unwrap()), (1, 2));
            for at in 0..FILE_BYTES {
                let mut bytes = encode(2).to_vec();
                bytes[at] ^= 4;
                reactor::file::write_all_atomic(&folder.join(FILE), &bytes).await.unwrap();
                assert!(
                    count(folder).await.unwrap_err().to_string().contains("starts is damaged"),
                    "byte {at}"
                );
            }
            reactor::file::write_all_atomic(&folder.join(FILE), &encode(7)).await.unwrap();
            assert_eq!(count(folder).await.unwrap(), 8);
        });
    }
}
