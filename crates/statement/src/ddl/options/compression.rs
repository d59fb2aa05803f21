//! The `compression` option (Cassandra's `CompressionParams`).

use std::collections::BTreeMap;

use super::super::hash_order;
use super::super::properties::parse_double;
use super::config;
use crate::StatementError;
use crate::functions::number_text;

const PACKAGE: &str = "org.apache.cassandra.io.compress.";
const CLASS: &str = "class";
/// The name of `class` up to Cassandra 4; empty for no compression.
const CLASS_BEFORE: &str = "sstable_compression";
const CHUNK_LENGTH: &str = "chunk_length_in_kb";
/// Its name up to Cassandra 4.
const CHUNK_LENGTH_BEFORE: &str = "chunk_length_kb";
/// An option of the table since Cassandra 3; taken here, and moved there, as Cassandra 3 and 4 do.
const CRC_CHECK_CHANCE: &str = "crc_check_chance";
/// Zstandard's levels.
const ZSTD_LEVELS: std::ops::RangeInclusive<i32> = -131_072..=22;
const MIN_RATIO: &str = "min_compress_ratio";
/// Largest chunk: one chunk is decompressed whole for each read that touches it.
const CHUNK_KIB_MAX: i32 = 16 * 1024;

/// Reads the map after `compression =` into the form that clients see: class in full, chunk length always.
/// Also returns the table's `crc_check_chance`, if the map has it.
pub(super) fn read(
    map: &BTreeMap<String, String>,
) -> Result<(BTreeMap<String, String>, Option<f64>), StatementError> {
    let mut map = map.clone();
    let chance = match map.remove(CRC_CHECK_CHANCE) {
        None => None,
        Some(text) => Some(
            parse_double(&text)
                .filter(|chance| (0.0..=1.0).contains(chance))
                .ok_or_else(|| config(format!("{CRC_CHECK_CHANCE} should be between 0.0 and 1.0")))?,
        ),
    };
    for (before, name) in [(CLASS_BEFORE, CLASS), (CHUNK_LENGTH_BEFORE, CHUNK_LENGTH)] {
        // Beside today's name the one of before is unknown, as it is to Cassandra 5.
        if map.contains_key(name) {
            continue;
        }
        let Some(value) = map.remove(before) else { continue };
        if name == CLASS && value.is_empty() {
            map.remove("enabled");
            map.remove(CHUNK_LENGTH);
            map.remove(MIN_RATIO);
            if let Some(other) = map.keys().next() {
                return Err(config(format!(
                    "Unknown compression options ([{other}]) since no compression class found"
                )));
            }
            return Ok((BTreeMap::from([("enabled".to_owned(), "false".to_owned())]), chance));
        }
        map.insert(name.to_owned(), value);
    }
    Ok((read_current(&map)?, chance))
}

/// Reads the map in the spelling of Cassandra 5.
fn read_current(map: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>, StatementError> {
    let enabled = map.get("enabled").is_none_or(|value| value.eq_ignore_ascii_case("true"));
    let mut rest = map.clone();
    rest.remove("enabled");
    if !map.is_empty() && enabled && !map.contains_key(CLASS) {
        return Err(config("Missing sub-option 'class' for the 'compression' option."));
    }
    if !enabled && !rest.is_empty() {
        return Err(config("If the 'enabled' option is set to false no other options must be specified"));
    }
    let Some(class) = rest.remove(CLASS) else {
        return Ok(BTreeMap::from([("enabled".to_owned(), "false".to_owned())]));
    };
    if class.is_empty() {
        return Err(config(
            "The 'class' option must not be empty. To disable compression use 'enabled' : false",
        ));
    }
    let chunk_length = chunk_length(rest.remove(CHUNK_LENGTH).as_deref())?;
    let ratio = match rest.remove(MIN_RATIO) {
        None => 0.0,
        Some(text) => {
            parse_double(&text).ok_or_else(|| config(format!("Invalid value {text} for {MIN_RATIO}")))?
        }
    };
    let class = if class.contains('.') { class } else { format!("{PACKAGE}{class}") };
    check_class(&class, &rest)?;
    if chunk_length <= 0 {
        return Err(config(format!("Invalid negative or null {CHUNK_LENGTH}")));
    }
    if chunk_length & (chunk_length - 1) != 0 {
        return Err(config(format!("{CHUNK_LENGTH} must be a power of 2")));
    }
    if chunk_length > CHUNK_KIB_MAX {
        return Err(config(format!(
            "{CHUNK_LENGTH} must not be larger than {CHUNK_KIB_MAX} (got {chunk_length})"
        )));
    }
    if ratio < 0.0 {
        return Err(config(format!("Invalid negative {MIN_RATIO}")));
    }
    if ratio > 0.0 && ratio < 1.0 || ratio.is_nan() {
        return Err(config(format!("{MIN_RATIO} can either be 0 or greater than or equal to 1")));
    }
    rest.insert(CLASS.to_owned(), class);
    rest.insert(CHUNK_LENGTH.to_owned(), chunk_length.to_string());
    if ratio != 0.0 {
        rest.insert(MIN_RATIO.to_owned(), number_text::double(ratio));
    }
    Ok(rest)
}

fn chunk_length(text: Option<&str>) -> Result<i32, StatementError> {
    let Some(text) = text else { return Ok(16) };
    let length: i32 = text.parse().map_err(|_| config(format!("Invalid value for {CHUNK_LENGTH}")))?;
    if length > i32::MAX / 1024 {
        return Err(config(format!("Value of {CHUNK_LENGTH} is too large ({length})")));
    }
    Ok(length)
}

fn check_class(class: &str, options: &BTreeMap<String, String>) -> Result<(), StatementError> {
    let known: &[&str] = match class.strip_prefix(PACKAGE) {
        Some("LZ4Compressor") => &["lz4_compressor_type", "lz4_high_compressor_level"],
        Some("ZstdCompressor" | "ZstdWithDictsCompressor") => &["compression_level"],
        Some("SnappyCompressor" | "DeflateCompressor" | "NoopCompressor" | "LZ4WithDictsCompressor") => &[],
        _ => return Err(config(format!("Could not create Compression for type {class}"))),
    };
    if let Some(kind) = options.get("lz4_compressor_type")
        && class.ends_with(".LZ4Compressor")
        && !matches!(kind.as_str(), "fast" | "high")
    {
        return Err(config(format!(
            "Invalid compressor type '{kind}' specified for LZ4 parameter 'lz4_compressor_type'. Valid options are \
             [high, fast]."
        )));
    }
    if let Some(level) = options.get("lz4_high_compressor_level")
        && class.ends_with(".LZ4Compressor")
        && !level.parse::<i32>().is_ok_and(|level| (1..=17).contains(&level))
    {
        return Err(config(format!(
            "Invalid value [{level}] for parameter 'lz4_high_compressor_level'. Value must be between 1 and 17."
        )));
    }
    if let Some(level) = options.get("compression_level").filter(|_| known == ["compression_level"]) {
        let name = class.strip_prefix(PACKAGE).unwrap_or(class);
        let thrown = match level.parse::<i32>() {
            Ok(number) if ZSTD_LEVELS.contains(&number) => None,
            Ok(number) => {
                Some(format!("java.lang.IllegalArgumentException compression_level={number} is invalid"))
            }
            Err(_) => Some(format!("java.lang.NumberFormatException For input string: \"{level}\"")),
        };
        if let Some(thrown) = thrown {
            return Err(config(format!("{name}.create() threw an error: {thrown}")));
        }
    }
    let names = hash_order::in_hash_order(options.keys().map(String::as_str));
    match names.into_iter().find(|name| !known.contains(name)) {
        Some(name) => Err(config(format!("Unknown compression options {name}"))),
        None => Ok(()),
    }
}
