//! What the node's disks can do: from `io_properties.yaml`, or from a short look after the start.
//!
//! The file is the one the configuration names, else `io_properties.yaml` in the work directory, where `ceto io-setup`
//! puts it. Without one the disk is probed once the node serves, so that the start waits for nothing.

use reactor::io::{DiskSpec, measure};
use reactor::{Group, JoinHandle};

use crate::config::{Config, ConfigError, io_properties};

/// The file's name in a work directory.
const NAME: &str = "io_properties.yaml";

/// The disks of the configuration; `None` when there is no file of them.
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

/// Looks at the disk of the data for some 20 ms and makes every shard follow what was seen.
pub(super) fn probe(config: &Config) -> JoinHandle<()> {
    let directory = config.data_dir.clone().unwrap_or_else(|| config.workdir.clone());
    reactor::spawn(Group::BACKGROUND, async move {
        match measure::probe(&directory).await {
            Ok(model) => {
                reactor::io::set_model(&directory.display().to_string(), model);
                reactor::info!("disk probed in a hurry; `ceto io-setup` measures it";
                    read_iops = model.read_iops,
                    read_bandwidth = model.read_bandwidth,
                    write_iops = model.write_iops,
                    write_bandwidth = model.write_bandwidth
                );
            }
            Err(error) => reactor::info!("disk not probed, its requests are not scheduled"; reason = error),
        }
    })
}
