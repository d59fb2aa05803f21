//! `io_properties.yaml`: the performance of each disk, as `ceto io-setup` and ScyllaDB's tools write it.
//!
//! `disks:` is a list of maps with `mountpoint`, `read_iops`, `read_bandwidth`, `write_iops` and
//! `write_bandwidth`, all five mandatory; other keys of those tools are ignored. Numbers are per second and
//! may have a suffix K, M, G or T, in powers of 1024.
//! Invariant: every parsed number is at least 1.

use std::path::{Path, PathBuf};

use reactor::io::{DISKS_MAX, DiskModel, DiskSpec};

use super::value::{Document, Value};
use super::{ConfigError, TEXT_BYTES_MAX, parse_size};

/// Reads the disks from the file at `path`.
///
/// # Errors
/// [`ConfigError`] with the file, the position of `disks`, and the reason.
pub(crate) fn read(path: &Path) -> Result<Vec<DiskSpec>, ConfigError> {
    let text = reactor::file::read_text_now(path, TEXT_BYTES_MAX)
        .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
    parse(path, &text)
}

/// Parses the disks from `text`, the contents of the file at `path`.
///
/// # Errors
/// As [`read`].
pub(crate) fn parse(path: &Path, text: &str) -> Result<Vec<DiskSpec>, ConfigError> {
    let document = Document::parse(path, text)?;
    let Some(entry) = document.entries.into_iter().find(|entry| entry.key == "disks") else {
        return Err(ConfigError::Yaml {
            path: path.to_owned(),
            line: 1,
            column: 1,
            message: "expected the key 'disks' with a list of disks".to_owned(),
        });
    };
    disks(&entry.value).map_err(|message| ConfigError::BadValue {
        path: path.to_owned(),
        line: entry.value_at.0,
        column: entry.value_at.1,
        key: entry.key,
        message,
    })
}

fn disks(value: &Value) -> Result<Vec<DiskSpec>, String> {
    let Value::List(disks) = value else { return Err(format!("expected a list of disks, found {value}")) };
    if disks.len() > DISKS_MAX {
        return Err(format!("{} disks, at most {DISKS_MAX} can be told apart", disks.len()));
    }
    disks
        .iter()
        .enumerate()
        .map(|(number, value)| disk(value).map_err(|what| format!("disk {}: {what}", number + 1)))
        .collect()
}

fn disk(value: &Value) -> Result<DiskSpec, String> {
    let Value::Map(entries) = value else { return Err(format!("expected a map, found {value}")) };
    let get = |key: &str| {
        let found = entries.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value).ok_or_else(|| format!("'{key}' is missing"))
    };
    let number = |key: &str| per_second(get(key)?).map_err(|what| format!("{key}: {what}"));
    let mountpoint = match get("mountpoint")? {
        Value::Text(text) if !text.is_empty() => PathBuf::from(text),
        other => return Err(format!("mountpoint: expected a path, found {other}")),
    };
    let model = DiskModel {
        read_iops: number("read_iops")?,
        read_bandwidth: number("read_bandwidth")?,
        write_iops: number("write_iops")?,
        write_bandwidth: number("write_bandwidth")?,
    };
    Ok(DiskSpec { mountpoint, model })
}

fn per_second(value: &Value) -> Result<u64, String> {
    let number = match value {
        Value::Integer(number) => u64::try_from(*number).ok(),
        Value::Float(number) if *number >= 1.0 && *number < 1e18 => Some(*number as u64),
        // ScyllaDB's tools write `160MB` as well as `160M`.
        Value::Text(text) => parse_size(text).or_else(|| parse_size(text.strip_suffix('B')?)),
        _ => None,
    };
    let found = number.filter(|number| *number > 0);
    found.ok_or_else(|| format!("expected a number above 0, such as 9001 or 160M, found {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<Vec<DiskSpec>, &str>) {
        let found = parse(Path::new("i.yaml"), text).map_err(|error| error.to_string());
        assert_eq!(found, expected.map_err(str::to_owned), "{text}");
    }

    #[test]
    fn disks_are_read_with_and_without_units() {
        let model = DiskModel {
            read_iops: 9001,
            read_bandwidth: 160 << 20,
            write_iops: 9723,
            write_bandwidth: 170_000_000,
        };
        let disk = |path: &str| DiskSpec { mountpoint: path.into(), model };
        check(
            "disks:\n  - mountpoint: /var/lib/ceto\n    read_iops: 9001\n    read_bandwidth: 160MB\n    \
             write_iops: 9723\n    write_bandwidth: 170000000\n    read_saturation_length: 64k\n  \
             - {mountpoint: /two, read_iops: 9001, read_bandwidth: 160M, write_iops: 9723, write_bandwidth: 1.7e8}\n",
            Ok(vec![disk("/var/lib/ceto"), disk("/two")]),
        );
        check("disks: []\n", Ok(vec![]));
    }

    #[test]
    fn mistakes_say_what_is_missing_and_where() {
        check("disk: 1\n", Err("i.yaml:1:1: expected the key 'disks' with a list of disks"));
        check("disks: none\n", Err("i.yaml:1:8: disks: expected a list of disks, found 'none'"));
        check(
            "disks:\n  - mountpoint: /a\n    read_iops: 1\n",
            Err("i.yaml:2:3: disks: disk 1: 'read_bandwidth' is missing"),
        );
        check(
            "disks:\n  - {mountpoint: /a, read_iops: 0, read_bandwidth: 1, write_iops: 1, write_bandwidth: 1}\n",
            Err(
                "i.yaml:2:3: disks: disk 1: read_iops: expected a number above 0, such as 9001 or 160M, found '0'",
            ),
        );
        let many = "disks:\n".to_owned() + &"  - x\n".repeat(256);
        check(&many, Err("i.yaml:2:3: disks: 256 disks, at most 255 can be told apart"));
        check(
            "disks:\n  - {mountpoint: 5, read_iops: 1}\n",
            Err("i.yaml:2:3: disks: disk 1: mountpoint: expected a path, found '5'"),
        );
    }
}
