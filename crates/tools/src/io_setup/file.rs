//! `io_properties.yaml`, as `ceto server` reads it: the format of the field's tools.
//!
//! One entry per disk: its mount point, operations per second, and bytes per second, reading and writing.

use std::path::Path;

use reactor::io::DiskModel;

/// Its name in a work directory.
pub(super) const NAME: &str = "io_properties.yaml";

/// The file's text for one disk.
pub(super) fn text(mountpoint: &Path, model: &DiskModel) -> String {
    // In single quotes a path needs only these doubled.
    let mountpoint = mountpoint.display().to_string().replace('\'', "''");
    format!(
        "disks:\n  - mountpoint: '{mountpoint}'\n    read_iops: {}\n    read_bandwidth: {}\n    write_iops: {}\n    \
         write_bandwidth: {}\n",
        model.read_iops.max(1),
        model.read_bandwidth.max(1),
        model.write_iops.max(1),
        model.write_bandwidth.max(1)
    )
}

/// A figure for people.
pub(super) fn spoken(value: f64, operations: bool) -> String {
    if operations {
        format!("{value:.0} per second")
    } else {
        format!("{:.0} MiB/s", value / f64::from(1 << 20))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_the_fields_keys() {
        let model = DiskModel { read_iops: 9001, read_bandwidth: 160, write_iops: 9723, write_bandwidth: 0 };
        assert_eq!(
            text(Path::new("/it's"), &model),
            "disks:\n  - mountpoint: '/it''s'\n    read_iops: 9001\n    read_bandwidth: 160\n    write_iops: 9723\n    \
             write_bandwidth: 1\n"
        );
        assert_eq!(
            (spoken(9001.4, true), spoken(3145728.0, false)),
            ("9001 per second".into(), "3 MiB/s".into())
        );
    }
}
