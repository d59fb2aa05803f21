//! Who this node is: a host id made once, and the cluster its data belongs to.

use std::path::Path;

use crate::error::StorageError;

const FILE: &str = "identity";
const FILE_BYTES_MAX: usize = 64 << 10;

/// Identity of a node, for the life of its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// A random UUID (version 4).
    pub host_id: [u8; 16],
    /// The cluster's name.
    pub cluster_name: String,
}

impl Identity {
    /// Reads the identity kept in `directory`, or makes one and keeps it durably. The directory is made if needed.
    ///
    /// # Errors
    /// [`StorageError::ClusterName`] when the data belongs to another cluster; [`StorageError::IdentityCorrupt`];
    /// file errors.
    pub async fn open(directory: &Path, cluster_name: &str) -> Result<Self, StorageError> {
        crate::directory::ensure(directory).await?;
        let path = directory.join(FILE);
        let exists = reactor::file::exists(&path).await.map_err(StorageError::of("look for", &path))?;
        if !exists {
            let identity = Self { host_id: random_uuid(), cluster_name: cluster_name.to_owned() };
            reactor::file::write_all_atomic(&path, identity.encode().as_bytes())
                .await
                .map_err(StorageError::of("write", &path))?;
            return Ok(identity);
        }
        let bytes =
            reactor::file::read_all(&path, FILE_BYTES_MAX).await.map_err(StorageError::of("read", &path))?;
        let identity = Self::decode(&bytes)
            .map_err(|reason| StorageError::IdentityCorrupt { path: path.clone(), reason })?;
        if identity.cluster_name != cluster_name {
            return Err(StorageError::ClusterName {
                path,
                found: identity.cluster_name,
                configured: cluster_name.to_owned(),
            });
        }
        Ok(identity)
    }

    fn encode(&self) -> String {
        let id: String = self.host_id.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = format!("host_id: {id}\ncluster_name: {}\n", self.cluster_name);
        format!("{text}crc: {:08x}\n", crc32fast::hash(text.as_bytes()))
    }

    fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not text")?;
        let (body, crc) = text.rsplit_once("crc: ").ok_or("it has no checksum")?;
        let crc = u32::from_str_radix(crc.trim_end(), 16).map_err(|_| "its checksum is not a number")?;
        if crc != crc32fast::hash(body.as_bytes()) {
            return Err("its checksum is wrong");
        }
        let rest = body.strip_prefix("host_id: ").ok_or("it names no host")?;
        let (id, rest) = rest.split_once("\ncluster_name: ").ok_or("it names no cluster")?;
        let cluster_name = rest.strip_suffix('\n').ok_or("it ends early")?.to_owned();
        let mut host_id = [0; 16];
        if id.len() != 32 || !id.is_ascii() {
            return Err("its host id has not 32 digits");
        }
        for (at, byte) in host_id.iter_mut().enumerate() {
            *byte =
                u8::from_str_radix(&id[at * 2..at * 2 + 2], 16).map_err(|_| "its host id is no number")?;
        }
        Ok(Self { host_id, cluster_name })
    }
}

fn random_uuid() -> [u8; 16] {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&reactor::random_u64().to_be_bytes());
    id[8..].copy_from_slice(&reactor::random_u64().to_be_bytes());
    id[6] = (id[6] & 0x0f) | 0x40;
    id[8] = (id[8] & 0x3f) | 0x80;
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_comes_back_and_damage_is_noticed() {
        let identity = Identity { host_id: [0xab; 16], cluster_name: "Täst\ncrc: 0".to_owned() };
        let text = identity.encode();
        assert_eq!(Identity::decode(text.as_bytes()), Ok(identity));
        for at in 0..text.len() - 1 {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            assert!(Identity::decode(&bytes).is_err(), "byte {at}");
            assert!(Identity::decode(&text.as_bytes()[..at]).is_err(), "{at} bytes");
        }
    }
}
