//! Models of the node's disks, from `io_properties.yaml`, and the space that has to stay free on them.
//!
//! The file is the configured one, or `io_properties.yaml` in the work directory, where `ceto io-setup` puts
//! it. Without a file the disk is probed once the node serves (`probe`), so that the start does not wait for
//! it.

use std::path::Path;

use reactor::io::DiskSpec;
use storage::{DiskMark, StorageConfig};

use crate::config::{CRITICAL_DISK_UTILIZATION, Config, ConfigError, io_properties};

/// The file's name in a work directory.
const NAME: &str = "io_properties.yaml";

/// The disks of the configuration; `None` if there is no file.
pub(super) fn configured(config: &Config) -> Result<Option<Vec<DiskSpec>>, ConfigError> {
    let path = match &config.io_properties_file {
        Some(path) => path.clone(),
        None => config.workdir.join(NAME),
    };
    if config.io_properties_file.is_none() && !path.exists() {
        return Ok(None);
    }
    let disks = io_properties::read(&path)?;
    for disk in &disks {
        let model = disk.model;
        reactor::info!("disk scheduled as {} says", path.display();
            mountpoint = disk.mountpoint.display(),
            read_iops = model.read_iops,
            read_bandwidth = model.read_bandwidth,
            write_iops = model.write_iops,
            write_bandwidth = model.write_bandwidth
        );
    }
    Ok(Some(disks))
}

/// How much of the disks of data and commit log has to stay free (`critical_disk_utilization_level`), in
/// addition to the space for the contents of memtables.
pub(super) fn marks(config: &Config, storage: &StorageConfig) -> Vec<DiskMark> {
    let default = if config.developer_mode { 1.0 } else { CRITICAL_DISK_UTILIZATION };
    let free_part = (1.0 - config.admin.critical_disk_utilization.unwrap_or(default)).max(0.0);
    let mark = |path: &Path| {
        // The directory may not exist yet; its nearest existing ancestor is on the same disk.
        let stat = path.ancestors().find_map(|there| {
            let there = if there.as_os_str().is_empty() { Path::new(".") } else { there };
            rustix::fs::statvfs(there).ok()
        })?;
        let total = stat.f_blocks.saturating_mul(stat.f_frsize);
        Some(DiskMark { path: path.to_owned(), free_bytes_min: (total as f64 * free_part) as u64 })
    };
    [&storage.data_dir, &storage.commitlog_dir].into_iter().filter_map(|path| mark(path)).collect()
}

/// The directory whose disk is probed, and whose path names that disk.
pub(super) fn data_directory(config: &Config) -> &Path {
    config.data_dir.as_deref().unwrap_or(&config.workdir)
}

/// The command that measures the disk of a data directory.
pub(super) fn measuring_command(workdir: &Path, directory: &Path) -> String {
    let mut command = format!("ceto io-setup --workdir {}", workdir.display());
    if directory != workdir {
        command.push_str(&format!(" --directory {}", directory.display()));
    }
    command
}
