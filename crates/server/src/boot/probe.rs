//! Model of the disk if nobody has measured it: the best result of several short probes, kept over restarts.
//!
//! One probe of 20 ms sees a moment: on one disk such probes measured from 104 MB to 2.1 GB written per
//! second. A disk can do again what it has done once, so the best of several probes is taken: some right
//! after the start, more while the disk is idle. The figures are stored in `io_probed.yaml` in the work
//! directory, and the next start begins with them; until there are any, the node assumes a modest SSD. A
//! model that is too slow costs writes permanently, one that is too fast costs a little latency.
//! Invariant: the stored file is used only if it is for this disk and its figures are plausible.

use std::path::{Path, PathBuf};
use std::time::Duration;

use reactor::io::{DiskModel, DiskSpec, measure};
use reactor::{Group, mesh};

use super::disks;
use crate::config::{Config, io_properties};

/// Name of the file in a work directory.
const NAME: &str = "io_probed.yaml";
/// Longest file that is read, in bytes.
const FILE_BYTES_MAX: usize = 4096;
/// A modest SSD: no model is below it.
const FLOOR: DiskModel = DiskModel {
    read_iops: 20_000,
    read_bandwidth: 400 << 20,
    write_iops: 10_000,
    write_bandwidth: 300 << 20,
};
/// Faster than any device: a file with more is damaged.
const CEILING: DiskModel = DiskModel {
    read_iops: 100_000_000,
    read_bandwidth: 1 << 40,
    write_iops: 100_000_000,
    write_bandwidth: 1 << 40,
};
/// Number of probes right after the start, and of all probes.
const LOOKS_AT_FIRST: usize = 3;
const LOOKS_MAX: usize = 12;
/// Time between the first probes.
const PAUSE: Duration = Duration::from_millis(200);
/// The disk is idle if at most this many requests were made in this time.
const IDLE_TIME: Duration = Duration::from_secs(10);
const IDLE_REQUESTS_MAX: u64 = 20;

/// Applies the known model of the data's disk to the node and starts the probes. The task ends by itself, or
/// with the shard.
pub(super) fn begin(config: &Config) {
    let directory = disks::data_directory(config).to_owned();
    let workdir = config.workdir.clone();
    reactor::spawn(Group::BACKGROUND, async move {
        let probe = Probe { file: workdir.join(NAME), workdir, directory };
        if let Err(error) = probe.run().await {
            reactor::info!("disk not probed; {}", probe.advice(); reason = error);
        }
    })
    .detach();
}

struct Probe {
    workdir: PathBuf,
    directory: PathBuf,
    file: PathBuf,
}

/// Removes the model during a probe, which would otherwise measure the model; dropping it restores the model.
struct Lifted {
    name: String,
    model: DiskModel,
}

impl Drop for Lifted {
    fn drop(&mut self) {
        if reactor::io::model(&self.name).is_none() {
            reactor::io::set_model(&self.name, self.model);
        }
    }
}

impl Probe {
    async fn run(&self) -> std::io::Result<()> {
        let name = self.directory.display().to_string();
        let kept = self.kept().await;
        let mut best = kept.map_or(FLOOR, |kept| best_of(FLOOR, kept));
        reactor::io::set_model(&name, best);
        for look in 1..=LOOKS_MAX {
            match look {
                1 => {}
                2..=LOOKS_AT_FIRST => reactor::sleep(PAUSE).await,
                _ => self.wait_for_idleness().await,
            }
            if reactor::io::model(&name) != Some(best) {
                // The operator has set figures meanwhile (SIGHUP).
                return Ok(());
            }
            let lifted = Lifted { name: name.clone(), model: best };
            reactor::io::lift_model(&name);
            let seen = measure::probe(&self.directory).await;
            drop(lifted);
            let seen = seen.inspect_err(|_| {
                // There is no disk to schedule, for example below a tmpfs.
                if kept.is_none() && look == 1 {
                    reactor::io::lift_model(&name);
                }
            })?;
            let better = best_of(best, seen);
            if better != best || kept.is_none() && look == 1 {
                best = better;
                reactor::io::set_model(&name, best);
                self.keep(best).await;
            }
            if look == LOOKS_AT_FIRST {
                reactor::info!("disk scheduled by short looks at it; {}", self.advice();
                    read_iops = best.read_iops,
                    read_bandwidth = best.read_bandwidth,
                    write_iops = best.write_iops,
                    write_bandwidth = best.write_bandwidth
                );
            }
        }
        Ok(())
    }

    /// Advice with the command that measures the disk properly.
    fn advice(&self) -> String {
        let command = disks::measuring_command(&self.workdir, &self.directory);
        format!("`{command}` measures it, while the node is stopped; SIGHUP or a start reads what it finds")
    }

    /// Waits until all shards together have used the disk little for a while.
    async fn wait_for_idleness(&self) {
        // The loop ends when the disk is idle; if it never is, no further probe is made.
        loop {
            let before = requests().await;
            reactor::sleep(IDLE_TIME).await;
            if requests().await.saturating_sub(before) <= IDLE_REQUESTS_MAX {
                return;
            }
        }
    }

    async fn kept(&self) -> Option<DiskModel> {
        let bytes = reactor::file::read_all(&self.file, FILE_BYTES_MAX).await.ok()?;
        let kept = parsed(&self.file, &self.directory, &String::from_utf8_lossy(&bytes));
        if kept.is_none() {
            reactor::info!("what is kept of the disk is of another disk or damaged: it is looked at anew";
                file = self.file.display());
        }
        kept
    }

    async fn keep(&self, model: DiskModel) {
        let text = text(&self.directory, model);
        if let Err(error) = reactor::file::write_all_atomic(&self.file, text.as_bytes()).await {
            reactor::info!("what was seen of the disk cannot be kept: the next start looks anew";
                file = self.file.display(), error = error);
        }
    }
}

/// Number of disk requests of all shards so far.
async fn requests() -> u64 {
    let calls: Vec<_> = (0..reactor::shard_count())
        .map(|shard| {
            mesh::call(shard, Group::BACKGROUND, || async {
                Group::all().map(|group| reactor::file::disk_usage(group).0).sum::<u64>()
            })
        })
        .collect();
    let mut sum = 0;
    for call in calls {
        // A shard that has ended makes no more requests.
        sum += call.await.unwrap_or(0);
    }
    sum
}

fn best_of(left: DiskModel, right: DiskModel) -> DiskModel {
    DiskModel {
        read_iops: left.read_iops.max(right.read_iops),
        read_bandwidth: left.read_bandwidth.max(right.read_bandwidth),
        write_iops: left.write_iops.max(right.write_iops),
        write_bandwidth: left.write_bandwidth.max(right.write_bandwidth),
    }
}

fn text(directory: &Path, model: DiskModel) -> String {
    format!(
        "# What short looks at the disk have seen at best. Remove the file to have it looked at anew;\n\
         # `ceto io-setup` measures it and writes io_properties.yaml, which goes before this.\n\
         disks:\n  - mountpoint: {:?}\n    read_iops: {}\n    read_bandwidth: {}\n    write_iops: {}\n    \
         write_bandwidth: {}\n",
        directory.display().to_string(),
        model.read_iops,
        model.read_bandwidth,
        model.write_iops,
        model.write_bandwidth
    )
}

/// The figures of a file, if it is for the disk of `directory` and they are plausible.
fn parsed(file: &Path, directory: &Path, text: &str) -> Option<DiskModel> {
    let disks = io_properties::parse(file, text).ok()?;
    let [DiskSpec { mountpoint, model }] = disks.as_slice() else { return None };
    let possible = best_of(*model, FLOOR) == *model && best_of(*model, CEILING) == CEILING;
    (mountpoint == directory && possible).then_some(*model)
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    const SEEN: DiskModel = DiskModel {
        read_iops: 300_000,
        read_bandwidth: 2 << 30,
        write_iops: 90_000,
        write_bandwidth: 1 << 30,
    };

    #[test]
    fn what_is_kept_is_read_back_and_nothing_else_is_believed() {
        let (file, directory) = (Path::new("/w/io_probed.yaml"), Path::new("/w/da\"ta"));
        let kept = text(directory, SEEN);
        assert_eq!(parsed(file, directory, &kept), Some(SEEN));
        assert_eq!(parsed(file, Path::new("/w/other"), &kept), None);
        for length in 0..kept.len() - 1 {
            let cut = parsed(file, directory, &kept[..length]);
            assert!(cut.is_none_or(|model| best_of(model, SEEN) == SEEN), "{length}: {cut:?}");
        }
        for wrong in [
            kept.replace("300000", "3"),
            kept.replace("300000", "300000000000"),
            kept.replace("disks", "disk"),
            kept.replace("read_iops", "reads"),
            String::new(),
        ] {
            assert_eq!(parsed(file, directory, &wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_best_of_each_figure_is_taken() {
        let slow = DiskModel { read_iops: 400_000, ..FLOOR };
        assert_eq!(best_of(SEEN, slow), DiskModel { read_iops: 400_000, ..SEEN });
    }

    #[test]
    fn a_bad_look_never_lowers_what_is_known_and_a_start_begins_with_it() {
        use reactor::sim::{DiskFaults, World};
        let mut world = World::new(3);
        // A disk far slower than the stored probes of an earlier start.
        let faults = DiskFaults {
            speed: Some(DiskModel {
                read_iops: 900,
                read_bandwidth: 90 << 20,
                write_iops: 900,
                write_bandwidth: 90 << 20,
            }),
            ..DiskFaults::default()
        };
        let node = world.add_node_with(1, faults, |_| async {
            reactor::file::create_dir_all("/w").await.unwrap();
            let config = Config { workdir: "/w".into(), ..Config::default() };
            let kept = || async { reactor::file::read_all("/w/io_probed.yaml", FILE_BYTES_MAX).await };
            let file = Rc::new(text(Path::new("/w"), SEEN));
            reactor::file::write_all_atomic("/w/io_probed.yaml", file.as_bytes()).await.unwrap();
            begin(&config);
            reactor::sleep(Duration::from_secs(600)).await;
            assert_eq!(reactor::io::model("/w"), Some(SEEN));
            assert_eq!(kept().await.unwrap(), file.as_bytes());
            // Without the file, and with a damaged one: the model is at least the floor, and a new file is
            // written.
            for damaged in ["", "disks: []\n"] {
                reactor::file::write_all_atomic("/w/io_probed.yaml", damaged.as_bytes()).await.unwrap();
                begin(&config);
                reactor::sleep(Duration::from_secs(600)).await;
                let model = reactor::io::model("/w").unwrap();
                assert_eq!(best_of(model, FLOOR), model);
                assert_eq!(kept().await.unwrap(), text(Path::new("/w"), model).as_bytes());
            }
        });
        world.run().unwrap();
        assert_eq!(world.outcome(node), Some(Ok(())));
    }
}
