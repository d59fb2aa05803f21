//! The file systems of data, commit log and hints, and what is known of their speed.

use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::super::{disks, memory, shard};
use super::{Finding, Root, Verdict};
use crate::config::Config;

const PART: &str = "disk";
/// Free part of a file system below which compactions may not find room.
const FREE_PART_MIN: f64 = 0.2;

/// A line of `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    point: PathBuf,
    kind: String,
}

pub(super) fn all(root: &Root, config: &Config) -> Vec<Finding> {
    let places = shard::places(config, memory::node_bytes(config.memory_bytes));
    let mounts = root.read("/proc/self/mountinfo").map_or_else(Vec::new, |text| mounts(&text));
    let mut found = vec![speed(config)];
    let of_directories =
        [("data", &places.data_dir), ("the commit log", &places.commitlog_dir), ("hints", &places.hints_dir)];
    let mut seen: Vec<PathBuf> = Vec::new();
    for (what, path) in of_directories {
        let there = match nearest(path) {
            Ok(there) => there,
            Err(error) => {
                let fact = format!("{} for {what}: {error}", path.display());
                let advice = "give a directory that this user may write to";
                found.push(Finding::new(Verdict::Failure, PART, fact, advice));
                continue;
            }
        };
        if seen.contains(&there) {
            continue;
        }
        found.extend(file_system(what, &there, mount_of(&mounts, &there)));
        seen.push(there);
    }
    let marks = disks::marks(config, &places);
    let mut told: Vec<u64> = Vec::new();
    for mark in marks {
        let Some(there) = nearest(&mark.path).ok() else { continue };
        let Ok(stat) = rustix::fs::statvfs(&there) else { continue };
        if told.contains(&stat.f_fsid) {
            continue;
        }
        told.push(stat.f_fsid);
        let (free, total) = (stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize);
        found.push(space(&there, free, total, mark.free_bytes_min));
    }
    found
}

/// Whether `ceto io-setup` has measured the disk.
fn speed(config: &Config) -> Finding {
    match disks::configured(config) {
        Ok(Some(disks)) => Finding::good(PART, format!("measured: the model has {} disk(s)", disks.len())),
        Ok(None) => {
            let fact = "not measured: a node looks at it shortly while it runs, which is less exact";
            let advice = disks::measuring_command(&config.workdir, disks::data_directory(config));
            Finding::new(Verdict::Note, PART, fact, &advice)
        }
        Err(error) => Finding::new(Verdict::Failure, PART, error.to_string(), "run `ceto io-setup` again"),
    }
}

/// The directory, or the nearest one above it that exists.
///
/// # Errors
/// Why nothing can be written there.
fn nearest(path: &Path) -> std::io::Result<PathBuf> {
    let there =
        path.ancestors().map(|above| if above.as_os_str().is_empty() { Path::new(".") } else { above });
    let there = there.into_iter().find(|above| above.exists()).unwrap_or(Path::new("/"));
    let there = there.canonicalize()?;
    if !there.is_dir() {
        return Err(std::io::ErrorKind::NotADirectory.into());
    }
    rustix::fs::access(&there, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)?;
    Ok(there)
}

fn mounts(text: &str) -> Vec<Mount> {
    let of_line = |line: &str| {
        let (before, behind) = line.split_once(" - ")?;
        let point = before.split(' ').nth(4)?;
        // Blanks are written in octal.
        Some(Mount { point: point.replace("\\040", " ").into(), kind: behind.split(' ').next()?.to_owned() })
    };
    text.lines().filter_map(of_line).collect()
}

/// The mount that a path is on: of those above it the nearest, and of several there the last.
fn mount_of<'m>(mounts: &'m [Mount], path: &Path) -> Option<&'m Mount> {
    let above = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    above.max_by_key(|mount| mount.point.components().count())
}

/// The kind of a file system, and whether files there are read past the page cache.
fn file_system(what: &str, path: &Path, mount: Option<&Mount>) -> Vec<Finding> {
    let kind = mount.map_or("unknown", |mount| mount.kind.as_str());
    let there = format!("{what} in {} ({kind})", path.display());
    let mut found = vec![match kind {
        "tmpfs" | "ramfs" => {
            let fact = format!("{there}: all is lost when the machine restarts");
            Finding::new(Verdict::Warning, PART, fact, "give a directory on a disk, if the data is to stay")
        }
        "nfs" | "nfs4" | "cifs" | "9p" | "fuse" | "virtiofs" => {
            let fact = format!("{there}: a server elsewhere decides what a sync means");
            Finding::new(Verdict::Warning, PART, fact, "give a directory on a local disk")
        }
        "overlay" | "aufs" => {
            let fact = format!("{there}: the container's own layer, which goes with it");
            Finding::new(Verdict::Warning, PART, fact, "mount a volume there")
        }
        _ => Finding::good(PART, there),
    }];
    if reads_through_the_page_cache(path) {
        let fact = format!("{} has no direct I/O: the kernel keeps copies of what is read", path.display());
        found.push(Finding::new(Verdict::Note, PART, fact, "ext4 and XFS have it"));
    }
    found
}

/// Whether a file without a name can be made there, and not with direct I/O.
fn reads_through_the_page_cache(path: &Path) -> bool {
    let make = |more| rustix::fs::open(path, OFlags::TMPFILE | OFlags::RDWR | more, Mode::RUSR | Mode::WUSR);
    make(OFlags::empty()).is_ok() && make(OFlags::DIRECT).is_err()
}

fn space(path: &Path, free: u64, total: u64, free_min: u64) -> Finding {
    let fact = format!("{:.1} of {:.1} GiB free in {}", gib(free), gib(total), path.display());
    if free < free_min {
        let fact = format!("{fact}: below {:.1} GiB writes are refused", gib(free_min));
        return Finding::new(
            Verdict::Failure,
            PART,
            fact,
            "remove snapshots (`ceto ctl clearsnapshot`) or other files",
        );
    }
    if (free as f64) < total as f64 * FREE_PART_MIN {
        let advice = "a large compaction needs room for what it writes: free some";
        return Finding::new(Verdict::Warning, PART, fact, advice);
    }
    Finding::good(PART, fact)
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 30) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTINFO: &str = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
        30 22 0:25 / /tmp rw - tmpfs tmpfs rw\n\
        31 22 0:26 / /var/my\\040data rw shared:5 master:1 - xfs /dev/vdb rw\n";

    #[test]
    fn the_nearest_mount_above_a_path_has_it() {
        let mounts = mounts(MOUNTINFO);
        let kind = |path: &str| mount_of(&mounts, Path::new(path)).map(|mount| mount.kind.clone());
        assert_eq!(kind("/tmp/ceto-data").as_deref(), Some("tmpfs"));
        assert_eq!(kind("/tmpfile").as_deref(), Some("ext4"));
        assert_eq!(kind("/var/my data/ceto").as_deref(), Some("xfs"));
    }

    #[test]
    fn file_systems_that_lose_data_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let verdict = |kind: &str| {
            let mount = Mount { point: "/".into(), kind: kind.to_owned() };
            file_system("data", folder.path(), Some(&mount))[0].verdict
        };
        assert_eq!([verdict("ext4"), verdict("xfs"), verdict("btrfs")], [Verdict::Good; 3]);
        assert_eq!([verdict("tmpfs"), verdict("nfs4"), verdict("overlay")], [Verdict::Warning; 3]);
    }

    #[test]
    fn little_space_is_a_warning_and_too_little_a_failure() {
        let of = |free: u64| space(Path::new("/"), free << 30, 100 << 30, 2 << 30).verdict;
        assert_eq!([of(50), of(10), of(1)], [Verdict::Good, Verdict::Warning, Verdict::Failure]);
    }

    #[test]
    fn a_directory_below_a_file_is_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert!(nearest(&folder.path().join("file/data")).is_err());
        assert_eq!(nearest(&folder.path().join("a/b")).unwrap(), folder.path().canonicalize().unwrap());
    }
}
