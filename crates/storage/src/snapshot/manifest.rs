//! `manifest.json`: the data files of a snapshot, when it was made, and when it expires.
//!
//! Source: Cassandra 5.0 `SnapshotManifest`.

use jiff::Timestamp;
use serde_json::{Value, json};

/// Largest manifest that is read.
pub(super) const BYTES_MAX: usize = 64 << 20;

/// Contents of a snapshot's manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Manifest {
    /// Names of `Data.db` files.
    pub(super) files: Vec<String>,
    /// When it was made, in seconds since the epoch.
    pub(super) created_at: Option<i64>,
    /// When it expires, in seconds since the epoch.
    pub(super) expires_at: Option<i64>,
}

/// Seconds since the epoch as `2026-11-21T08:00:00Z`.
pub(super) fn instant(seconds: i64) -> Option<String> {
    Timestamp::from_second(seconds).ok().map(|timestamp| timestamp.to_string())
}

impl Manifest {
    pub(super) fn encode(&self) -> String {
        let time = |seconds: Option<i64>| seconds.and_then(instant);
        let value = json!({
            "files": self.files,
            "created_at": time(self.created_at),
            "expires_at": time(self.expires_at),
            "ephemeral": false,
        });
        format!("{value:#}\n")
    }

    /// Reads a manifest. Fields that are missing or of another type are left out: older versions have fewer.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let time = |name: &str| {
            let text = value.get(name)?.as_str()?;
            text.parse::<Timestamp>().ok().map(Timestamp::as_second)
        };
        let files = value.get("files")?.as_array()?;
        Some(Self {
            files: files.iter().filter_map(|file| file.as_str().map(str::to_owned)).collect(),
            created_at: time("created_at"),
            expires_at: time("expires_at"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_comes_back() {
        let manifest = Manifest {
            files: vec!["me-3-big-Data.db".to_owned()],
            created_at: Some(1_763_712_000),
            expires_at: None,
        };
        let text = manifest.encode();
        assert!(text.contains("\"created_at\": \"2025-11-21T08:00:00Z\""), "{text}");
        assert!(text.contains("\"expires_at\": null"), "{text}");
        assert_eq!(Manifest::decode(text.as_bytes()), Some(manifest));
    }

    #[test]
    fn what_others_wrote_is_read_as_far_as_it_goes() {
        let old = Manifest::decode(b"{\"files\":[\"na-1-big-Data.db\"]}").unwrap();
        assert_eq!((old.files.len(), old.created_at, old.expires_at), (1, None, None));
        let new = Manifest::decode(
            b"{\"files\":[],\"created_at\":\"2024-02-29T12:00:00.123Z\",\"expires_at\":\"2024-02-29T12:01:00Z\",\"ephemeral\":true}",
        );
        assert_eq!(new.unwrap().expires_at, Some(1_709_208_060));
        for bytes in [&b""[..], b"{", b"[]", b"{\"files\":5}", b"\xff"] {
            assert_eq!(Manifest::decode(bytes), None);
        }
    }
}
