//! The identity of this node: a host id made once, the cluster its data belongs to, and the marks in its
//! folders.
//!
//! Invariant: the identity is durable before the first mark, and lists a folder as marked only once its mark
//! is durable.

use std::path::Path;

use crate::config::StorageConfig;
use crate::error::StorageError;
use crate::manifest::check::Missing;
use model::hex;

const FILE: &str = "identity";
const FILE_BYTES_MAX: usize = 64 << 10;
/// Name of the file that records which node a folder belongs to.
const MARK: &str = "ceto-mark";

/// Identity of a node, for the life of its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// A random UUID (version 4).
    pub host_id: [u8; 16],
    /// The cluster's name.
    pub cluster_name: String,
    /// Kinds of the folders that carry this node's mark.
    marked: Vec<String>,
}

/// The folders that carry a mark, by kind.
fn folders(places: &StorageConfig) -> [(&'static str, &Path); 5] {
    [
        ("data", &places.data_dir),
        ("commitlog", &places.commitlog_dir),
        ("schema", &places.schema_dir),
        ("manifest", &places.manifest_dir),
        ("hints", &places.hints_dir),
    ]
}

impl Identity {
    /// Reads the identity kept in `directory`, or makes one and keeps it durably. Each folder of `places` has
    /// a mark of the node it belongs to. The start is refused if a marked folder does not exist or is another
    /// node's, or if the identity is gone while its folders exist. Missing folders and marks of a new node
    /// are made.
    ///
    /// # Errors
    /// [`StorageError::ClusterName`] when the data belongs to another cluster;
    /// [`StorageError::IdentityCorrupt`]; [`StorageError::Missing`], unless `places.accept_missing` has its
    /// token; file errors.
    pub async fn open(
        directory: &Path,
        cluster_name: &str,
        places: &StorageConfig,
    ) -> Result<Self, StorageError> {
        crate::directory::ensure(directory).await?;
        let path = directory.join(FILE);
        let known = read(&path, Self::decode).await?;
        if let Some(identity) = &known
            && identity.cluster_name != cluster_name
        {
            return Err(StorageError::ClusterName {
                path,
                found: identity.cluster_name.clone(),
                configured: cluster_name.to_owned(),
            });
        }
        let mut missing = Missing::default();
        let mut marks = Vec::new();
        for (kind, folder) in folders(places) {
            let mark = read(&folder.join(MARK), Mark::decode).await?;
            match (&known, &mark) {
                (Some(identity), None) if identity.marked.iter().any(|marked| marked == kind) => {
                    missing.add(format!("{}: the {kind} folder, or the {MARK} in it", folder.display()));
                }
                (Some(identity), Some(mark)) if mark.host_id != identity.host_id || mark.kind != kind => {
                    missing.add(format!(
                        "{}: this node's {kind} folder (the one there is the {} folder of node {})",
                        folder.display(),
                        mark.kind,
                        hex::text(&mark.host_id)
                    ));
                }
                (None, Some(mark)) => missing.add(format!(
                    "{}: the identity of node {}, whose {} folder is {}",
                    path.display(),
                    hex::text(&mark.host_id),
                    mark.kind,
                    folder.display()
                )),
                _ => {}
            }
            marks.push(mark);
        }
        if known.is_none() && marks.iter().all(Option::is_none) {
            for schema in [places.group0_dir(), crate::agreed::log::path(&places.schema_dir)] {
                if reactor::file::exists(&schema).await.map_err(StorageError::of("look for", &schema))? {
                    let (path, schema) = (path.display(), schema.display());
                    missing.add(format!("{path}: the identity of the node whose schema is {schema}"));
                }
            }
        }
        missing.settle(&places.accept_missing)?;
        let mut identity = match known {
            Some(identity) => identity,
            None => {
                let (cluster_name, marked) = (cluster_name.to_owned(), Vec::new());
                let identity = Self { host_id: random_uuid(), cluster_name, marked };
                // Before the first mark: a mark without an identity means that the identity was lost.
                write(&path, &identity.encode()).await?;
                identity
            }
        };
        for ((kind, folder), mark) in folders(places).into_iter().zip(marks) {
            let own = Mark { host_id: identity.host_id, kind: kind.to_owned() };
            if mark.as_ref() != Some(&own) {
                crate::directory::ensure(folder).await?;
                write(&folder.join(MARK), &own.encode()).await?;
            }
        }
        let marked: Vec<String> = folders(places).map(|(kind, _)| kind.to_owned()).into();
        if identity.marked != marked {
            identity.marked = marked;
            write(&path, &identity.encode()).await?;
        }
        Ok(identity)
    }

    fn encode(&self) -> String {
        let marked = match self.marked.as_slice() {
            [] => String::new(),
            marked => format!("marked: {}\n", marked.join(" ")),
        };
        sealed(&format!(
            "{marked}host_id: {}\ncluster_name: {}\n",
            hex::text(&self.host_id),
            self.cluster_name
        ))
    }

    fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let body = unsealed(bytes)?;
        let (marked, body) = match body.strip_prefix("marked: ").map(|rest| rest.split_once('\n')) {
            None => (Vec::new(), body),
            Some(Some((marked, rest))) => (marked.split(' ').map(str::to_owned).collect(), rest),
            Some(None) => return Err("it ends early"),
        };
        let rest = body.strip_prefix("host_id: ").ok_or("it names no host")?;
        let (id, rest) = rest.split_once("\ncluster_name: ").ok_or("it names no cluster")?;
        let cluster_name = rest.strip_suffix('\n').ok_or("it ends early")?.to_owned();
        Ok(Self { host_id: parse_id(id)?, cluster_name, marked })
    }
}

/// A folder's mark: the node it belongs to, and the kind of folder.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mark {
    host_id: [u8; 16],
    kind: String,
}

impl Mark {
    fn encode(&self) -> String {
        sealed(&format!("host_id: {}\nfolder: {}\n", hex::text(&self.host_id), self.kind))
    }

    fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let rest = unsealed(bytes)?.strip_prefix("host_id: ").ok_or("it names no host")?;
        let (id, rest) = rest.split_once("\nfolder: ").ok_or("it names no folder")?;
        let kind = rest.strip_suffix('\n').ok_or("it ends early")?.to_owned();
        Ok(Self { host_id: parse_id(id)?, kind })
    }
}

/// A text followed by its checksum.
fn sealed(text: &str) -> String {
    format!("{text}crc: {:08x}\n", crc32fast::hash(text.as_bytes()))
}

fn unsealed(bytes: &[u8]) -> Result<&str, &'static str> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not text")?;
    let (body, crc) = text.rsplit_once("crc: ").ok_or("it has no checksum")?;
    let crc = u32::from_str_radix(crc.trim_end(), 16).map_err(|_| "its checksum is not a number")?;
    if crc != crc32fast::hash(body.as_bytes()) {
        return Err("its checksum is wrong");
    }
    Ok(body)
}

/// Reads a file; `None` if it does not exist.
async fn read<T>(
    path: &Path,
    decode: impl FnOnce(&[u8]) -> Result<T, &'static str>,
) -> Result<Option<T>, StorageError> {
    let exists = reactor::file::exists(path).await.map_err(StorageError::of("look for", path))?;
    if !exists {
        return Ok(None);
    }
    let bytes =
        reactor::file::read_all(path, FILE_BYTES_MAX).await.map_err(StorageError::of("read", path))?;
    let corrupt = |reason| StorageError::IdentityCorrupt { path: path.to_owned(), reason };
    decode(&bytes).map(Some).map_err(corrupt)
}

async fn write(path: &Path, text: &str) -> Result<(), StorageError> {
    reactor::file::write_all_atomic(path, text.as_bytes()).await.map_err(StorageError::of("write", path))
}

fn parse_id(id: &str) -> Result<[u8; 16], &'static str> {
    let mut host_id = [0; 16];
    if id.len() != 32 || !id.is_ascii() {
        return Err("its host id has not 32 digits");
    }
    for (at, byte) in host_id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&id[at * 2..at * 2 + 2], 16).map_err(|_| "its host id is no number")?;
    }
    Ok(host_id)
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
        for marked in [Vec::new(), vec!["data".to_owned(), "schema".to_owned()]] {
            let identity = Identity { host_id: [0xab; 16], cluster_name: "Täst\ncrc: 0".to_owned(), marked };
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
}
