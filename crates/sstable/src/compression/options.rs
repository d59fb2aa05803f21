//! A table's `compression` option, in every spelling that Cassandra 3 to 5 accept.
//!
//! `query` refuses invalid options when a table is created; this file defines their meaning. Source:
//! Cassandra 5.0 `CompressionParams`, and 3.0's for the names it dropped (`sstable_compression`,
//! `chunk_length_kb`).

use std::collections::BTreeMap;

use super::{CHUNK_BYTES_MAX, Compressor};

/// Zstandard's level if the table has no option.
const ZSTD_LEVEL_DEFAULT: i32 = 3;
/// Chunk length if a table has a compressor and no length.
const CHUNK_KIB_DEFAULT: u32 = 16;

/// How chunks are compressed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Compression {
    /// The compressor.
    pub compressor: Compressor,
    /// The level, if the compressor has levels.
    pub level: i32,
    /// Chunks that shrink by less than this ratio are stored uncompressed; 0 for none.
    pub min_ratio: f64,
}

impl From<Compressor> for Compression {
    fn from(compressor: Compressor) -> Self {
        Self { compressor, level: ZSTD_LEVEL_DEFAULT, min_ratio: 0.0 }
    }
}

/// An invalid compression option.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompressionOptionError {
    /// A compressor this crate does not have.
    #[error("compressor `{0}` is not supported")]
    Compressor(String),
    /// An option with a value it cannot have.
    #[error("compression option `{name}` cannot be `{value}`")]
    Value {
        /// Which option.
        name: &'static str,
        /// Its value.
        value: String,
    },
}

impl Compression {
    /// Reads a table's options: the compression of chunks (`None` for none), and the bytes of a chunk.
    ///
    /// # Errors
    /// [`CompressionOptionError`] for options that no table can be made with.
    pub fn of_options(
        options: &BTreeMap<String, String>,
    ) -> Result<(Option<Self>, u32), CompressionOptionError> {
        let get = |names: [&'static str; 2]| {
            names.into_iter().find_map(|name| options.get(name).map(|value| (name, value.as_str())))
        };
        let number = |names: [&'static str; 2]| match get(names) {
            None => Ok(None),
            Some((name, value)) => match value.parse::<i32>() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(CompressionOptionError::Value { name, value: value.to_owned() }),
            },
        };
        let mut chunk_bytes = CHUNK_KIB_DEFAULT * 1024;
        if let Some(kib) = number(["chunk_length_in_kb", "chunk_length_kb"])? {
            chunk_bytes = u32::try_from(kib)
                .ok()
                .and_then(|kib| kib.checked_mul(1024))
                .filter(|bytes| bytes.is_power_of_two() && *bytes <= CHUNK_BYTES_MAX)
                .ok_or_else(|| CompressionOptionError::Value {
                    name: "chunk_length_in_kb",
                    value: kib.to_string(),
                })?;
        }
        let enabled = options.get("enabled").is_none_or(|enabled| enabled.eq_ignore_ascii_case("true"));
        let class = get(["class", "sstable_compression"]).map(|(_, class)| class);
        let Some(class) = class.filter(|class| enabled && !class.is_empty()) else {
            return Ok((None, chunk_bytes));
        };
        let compressor =
            Compressor::parse(class).ok_or_else(|| CompressionOptionError::Compressor(class.to_owned()))?;
        let mut compression = Self::from(compressor);
        if let Some(level) = number(["compression_level", "compression_level"])? {
            compression.level = level;
        }
        if let Some(value) = options.get("min_compress_ratio") {
            compression.min_ratio = value.parse().ok().filter(|ratio| *ratio >= 0.0).ok_or_else(|| {
                CompressionOptionError::Value { name: "min_compress_ratio", value: value.clone() }
            })?;
        }
        Ok((Some(compression), chunk_bytes))
    }

    /// Chunks whose compressed length is this or more are stored uncompressed (Cassandra's
    /// `calcMaxCompressedLength`).
    pub(crate) fn compressed_bytes_max(&self, chunk_bytes: u32) -> u32 {
        // Without a ratio the quotient is infinite.
        (f64::from(chunk_bytes) / self.min_ratio).min(f64::from(i32::MAX)).ceil() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(options: &[(&str, &str)]) -> Result<(Option<Compression>, u32), CompressionOptionError> {
        Compression::of_options(&options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    #[test]
    fn every_spelling_is_understood() {
        let lz4 = Compression::from(Compressor::Lz4);
        assert_eq!(read(&[]), Ok((None, 16384)));
        assert_eq!(read(&[("enabled", "false")]), Ok((None, 16384)));
        assert_eq!(read(&[("sstable_compression", "")]), Ok((None, 16384)));
        assert_eq!(read(&[("class", "LZ4Compressor")]), Ok((Some(lz4), 16384)));
        assert_eq!(
            read(&[("sstable_compression", "LZ4Compressor"), ("chunk_length_kb", "64")]),
            Ok((Some(lz4), 65536))
        );
        let zstd = Compression { level: -5, min_ratio: 1.25, ..Compression::from(Compressor::Zstd) };
        assert_eq!(
            read(&[
                ("class", "org.apache.cassandra.io.compress.ZstdCompressor"),
                ("chunk_length_in_kb", "4"),
                ("compression_level", "-5"),
                ("min_compress_ratio", "1.25"),
                ("crc_check_chance", "0.5"),
            ]),
            Ok((Some(zstd), 4096))
        );
        assert_eq!(zstd.compressed_bytes_max(4096), 3277);
        assert_eq!(lz4.compressed_bytes_max(4096), i32::MAX as u32);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(matches!(read(&[("class", "x.Y")]), Err(CompressionOptionError::Compressor(_))));
        for length in ["0", "-4", "3", "32768", "x", "2147483647"] {
            let options = [("class", "LZ4Compressor"), ("chunk_length_in_kb", length)];
            assert!(matches!(read(&options), Err(CompressionOptionError::Value { .. })), "{length}");
        }
    }
}
