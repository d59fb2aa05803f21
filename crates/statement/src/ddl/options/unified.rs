//! Sub-options of `UnifiedCompactionStrategy`: errors have the order and texts of Cassandra's `Controller`.
//!
//! Storage defines the meaning of the sub-options.

use std::collections::BTreeMap;

use super::super::properties::parse_double;
use super::config;
use crate::StatementError;

/// Least target size of a file, bytes.
const TARGET_BYTES_MIN: f64 = (1_u64 << 20) as f64;
/// Default target size of files, bytes.
const TARGET_BYTES_DEFAULT: f64 = (1_u64 << 30) as f64;
/// Prefixes of units, each 1,000 or 1,024 times the previous one; the blank stands for no prefix.
const PREFIXES: &str = "qryzafpnum KMGTPEZYRQ";

/// Checks the sub-options.
pub(super) fn check(options: &BTreeMap<String, String>) -> Result<(), StatementError> {
    let get = |name: &str| options.get(name).map(String::as_str);
    for parameter in get("scaling_parameters").into_iter().flat_map(|all| all.split(',')) {
        check_scaling(parameter.trim())?;
    }
    if let Some(shards) = integer::<i32>(get("base_shard_count"), "base_shard_count", "int")? {
        check_positive("base_shard_count", i64::from(shards))?;
    }
    let target =
        get("target_sstable_size").map(|text| target_bytes("target_sstable_size", text)).transpose()?;
    get("flush_size_override").map(|text| target_bytes("flush_size_override", text)).transpose()?;
    integer::<i32>(get("max_sstables_to_compact"), "max_sstables_to_compact", "int")?;
    const FREQUENCY: &str = "expired_sstable_check_frequency_seconds";
    if let Some(seconds) = integer::<i64>(get(FREQUENCY), FREQUENCY, "long")? {
        check_positive(FREQUENCY, seconds)?;
    }
    const UNSAFE: &str = "unsafe_aggressive_sstable_expiration";
    if let Some(text) = get(UNSAFE)
        && !text.eq_ignore_ascii_case("true")
        && !text.eq_ignore_ascii_case("false")
    {
        return Err(config(format!("{UNSAFE} should either be 'true' or 'false', not {text}")));
    }
    if let Some(method) = get("overlap_inclusion_method")
        && !["NONE", "SINGLE", "TRANSITIVE"].contains(&method.to_uppercase().as_str())
    {
        return Err(config(format!(
            "Invalid overlap inclusion method {method}. The valid options are [NONE, SINGLE, TRANSITIVE]."
        )));
    }
    if let Some(text) = get("min_sstable_size") {
        check_least(text, target.unwrap_or(TARGET_BYTES_DEFAULT).ceil())?;
    }
    if let Some(text) = get("sstable_growth") {
        let percent = text.trim().strip_suffix('%');
        let wrong = || config(format!("sstable_growth is not a valid number between 0 and 1: {text}"));
        let share = parse_double(percent.unwrap_or(text)).ok_or_else(wrong)?;
        let share = if percent.is_some() { share / 100.0 } else { share };
        if !(0.0..=1.0).contains(&share) {
            return Err(config(format!("sstable_growth {text} must be between 0 and 1")));
        }
    }
    Ok(())
}

fn integer<T: std::str::FromStr>(
    text: Option<&str>,
    name: &str,
    what: &str,
) -> Result<Option<T>, StatementError> {
    let parse = |text: &str| {
        text.parse().map_err(|_| config(format!("{text} is not a parsable {what} (base10) for {name}")))
    };
    text.map(parse).transpose()
}

fn check_positive(name: &str, value: i64) -> Result<(), StatementError> {
    if value > 0 {
        return Ok(());
    }
    Err(config(format!("Invalid configuration, {name} should be positive: {value}")))
}

/// Bytes that files aim at.
fn target_bytes(name: &str, text: &str) -> Result<f64, StatementError> {
    let bytes =
        bytes(text).map_err(|why| config(format!("{name} {text} is not a valid size in bytes: {why}")))?;
    if bytes >= i64::MAX as f64 {
        return Err(config(format!("{name} {text} is out of range of Long.")));
    }
    if bytes >= TARGET_BYTES_MIN {
        return Ok(bytes);
    }
    let least = shown(TARGET_BYTES_MIN);
    Err(config(format!("{name} {text} is not acceptable, size must be at least {least}")))
}

/// The size below which files count as one, beside `target`.
fn check_least(text: &str, target: f64) -> Result<(), StatementError> {
    const NAME: &str = "min_sstable_size";
    let least =
        bytes(text).map_err(|_| config(format!("{text} is not a valid size in bytes for {NAME}")))?.trunc();
    if least < 0.0 {
        return Err(config(format!(
            "Invalid configuration, {NAME} should be greater than or equal to 0 (zero)"
        )));
    }
    if least < (target * std::f64::consts::FRAC_1_SQRT_2).ceil() {
        return Ok(());
    }
    Err(config(format!(
        "Invalid configuration, {NAME} ({}) should be less than 70% of the targetSSTableSize ({})",
        shown(least),
        shown(target)
    )))
}

/// A size with its unit as Cassandra writes it: `1.000MiB`.
fn shown(bytes: f64) -> String {
    let step = if bytes < 1024.0 { 0 } else { (bytes.log2() / 10.0) as usize };
    match PREFIXES.split(' ').nth(1).and_then(|prefixes| prefixes.chars().nth(step.checked_sub(1)?)) {
        Some(prefix) => format!("{:.3}{prefix}iB", bytes / 1024_f64.powi(step as i32)),
        None => format!("{bytes}B"),
    }
}

/// A number of bytes as people write it: `1.5GiB`, `2*2^20B`, `10MB`.
fn bytes(text: &str) -> Result<f64, String> {
    let size = text.strip_suffix('B').ok_or_else(|| format!("{text} does not end in unit B"))?;
    let (number, rest) = size.split_at(number_length(size).ok_or("null")?);
    let mut value = parse_double(number).ok_or("null")?;
    let mut rest = rest.trim_start();
    if let Some(power) = rest.strip_prefix("*2^") {
        let signed = power.strip_prefix(['+', '-']).unwrap_or(power);
        let digits = signed.bytes().take_while(u8::is_ascii_digit).count();
        let length = power.len() - signed.len() + digits;
        let power_of_two: i32 = power[..length].parse().map_err(|_| "null".to_owned())?;
        value *= 2_f64.powi(power_of_two);
        rest = power[length..].trim_start();
    }
    let blank = PREFIXES.find(' ').unwrap_or_default() as i32;
    if let Some(at) = rest.chars().next().and_then(|prefix| PREFIXES.find(prefix)) {
        let power = at as i32 - blank;
        rest = &rest[1..];
        match rest.strip_prefix('i') {
            Some(after) => {
                value *= 1024_f64.powi(power);
                rest = after;
            }
            None => value *= 1000_f64.powi(power),
        }
    }
    if rest.is_empty() {
        return Ok(value);
    }
    let (at, end) = (size.len() - rest.len(), size.len());
    Err(format!("Unexpected characters between pos {at} and {end} in {text}"))
}

/// Number of bytes at the start that are a number; `None` if there is no number.
fn number_length(text: &str) -> Option<usize> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let sign = text.len() - unsigned.len();
    if text.starts_with("NaN") {
        return Some(3);
    }
    if unsigned.starts_with("Infinity") {
        return Some(sign + 8);
    }
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let mut length = digits(unsigned);
    if length == 0 {
        return None;
    }
    if let Some(fraction) = unsigned[length..].strip_prefix('.').map(digits).filter(|count| *count > 0) {
        length += 1 + fraction;
    }
    if let Some(exponent) = unsigned[length..].strip_prefix(['e', 'E']) {
        let after = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        let count = digits(after);
        length += if count > 0 { 1 + exponent.len() - after.len() + count } else { 0 };
    }
    Some(sign + length)
}

fn check_scaling(parameter: &str) -> Result<(), StatementError> {
    let wrong = || config(format!("Scaling parameter {parameter} must match N|L[0-9]+|T[0-9]+|[+-]?[0-9]+"));
    let number = |digits: &str| {
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<i32>().ok().filter(|_| is_number)
    };
    match parameter.as_bytes().first() {
        Some(b'N') if parameter.len() == 1 => Ok(()),
        Some(b'L' | b'T') => match number(&parameter[1..]).ok_or_else(wrong)? {
            0 | 1 => Err(config(format!("Fan factor cannot be lower than 2 in {parameter}"))),
            _ => Ok(()),
        },
        Some(b'+' | b'-') => number(&parameter[1..]).map(|_| ()).ok_or_else(wrong),
        _ => number(parameter).map(|_| ()).ok_or_else(wrong),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        for (text, expected) in [
            ("1MiB", Ok(1_048_576.0)),
            ("1.5 GiB", Ok(1_610_612_736.0)),
            ("10MB", Ok(10_000_000.0)),
            ("3*2^20B", Ok(3_145_728.0)),
            ("-5MiB", Ok(-5_242_880.0)),
            ("1e3B", Ok(1000.0)),
            ("7", Err("7 does not end in unit B")),
            ("xB", Err("null")),
            ("1xB", Err("Unexpected characters between pos 1 and 2 in 1xB")),
        ] {
            assert_eq!(bytes(text), expected.map_err(str::to_owned), "{text}");
        }
        assert_eq!([shown(1_048_576.0), shown(1_073_741_824.0), shown(5.0)], ["1.000MiB", "1.000GiB", "5B"]);
    }

    #[test]
    fn complaints_are_cassandras() {
        let check = |pairs: &[(&str, &str)]| {
            let options =
                pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            check(&options).err().map_or_else(String::new, |error| error.to_string())
        };
        for (name, value, expected) in [
            (
                "target_sstable_size",
                "1KiB",
                "target_sstable_size 1KiB is not acceptable, size must be at least 1.000MiB",
            ),
            (
                "flush_size_override",
                "1KiB",
                "flush_size_override 1KiB is not acceptable, size must be at least 1.000MiB",
            ),
            ("sstable_growth", "2", "sstable_growth 2 must be between 0 and 1"),
            ("sstable_growth", "50%", ""),
            ("max_sstables_to_compact", "x", "x is not a parsable int (base10) for max_sstables_to_compact"),
            ("max_sstables_to_compact", "-1", ""),
            (
                "overlap_inclusion_method",
                "x",
                "Invalid overlap inclusion method x. The valid options are [NONE, SINGLE, TRANSITIVE].",
            ),
            (
                "min_sstable_size",
                "-5MiB",
                "Invalid configuration, min_sstable_size should be greater than or equal to 0 (zero)",
            ),
            ("min_sstable_size", "0B", ""),
            ("min_sstable_size", "x", "x is not a valid size in bytes for min_sstable_size"),
        ] {
            assert_eq!(check(&[(name, value)]), expected, "{name} = {value}");
        }
        assert_eq!(
            check(&[("min_sstable_size", "1GiB"), ("target_sstable_size", "1GiB")]),
            "Invalid configuration, min_sstable_size (1.000GiB) should be less than 70% of the targetSSTableSize (1.000GiB)"
        );
    }
}
