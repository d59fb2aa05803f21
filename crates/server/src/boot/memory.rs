//! The node's memory: its size, and the limits of the machine and the cgroup.

use std::path::{Path, PathBuf};

use super::BootError;

/// Memory of one shard below which the node starts with a warning, in bytes.
pub(super) const SHARD_BYTES_MIN: u64 = 64 << 20;

/// A limit to memory, and the file that states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MemoryLimit {
    /// Bytes that this process may use.
    pub(super) bytes: u64,
    /// The file that states the limit.
    pub(super) source: PathBuf,
}

/// Memory of the whole node in bytes: the configured value, or half of what the machine or its cgroup has.
pub(super) fn node_bytes(asked: Option<u64>) -> u64 {
    asked.unwrap_or_else(|| available(read_file).map_or(1 << 30, |limit| limit.bytes) / 2)
}

/// Refuses more memory than the machine and its cgroup allow; in developer mode it only warns.
///
/// # Errors
/// [`BootError::TooMuchMemory`] with the limit and the file it was read from.
pub(super) fn check(asked: Option<u64>, developer_mode: bool) -> Result<(), BootError> {
    let error = match (asked, available(read_file)) {
        (Some(asked), Some(limit)) if asked > limit.bytes => BootError::TooMuchMemory {
            asked_mib: asked >> 20,
            available_mib: limit.bytes >> 20,
            source_file: limit.source,
        },
        _ => return Ok(()),
    };
    if !developer_mode {
        return Err(error);
    }
    reactor::warn!("{error}");
    Ok(())
}

fn read_file(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// The lowest limit that `read` finds: the machine's, or one of the process's cgroups and their ancestors.
fn available(read: impl Fn(&Path) -> Option<String>) -> Option<MemoryLimit> {
    let meminfo = PathBuf::from("/proc/meminfo");
    let machine = read(&meminfo).and_then(|text| meminfo_total(&text));
    let machine = machine.map(|bytes| MemoryLimit { bytes, source: meminfo });
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let of_groups = limit_files(&groups).into_iter().filter_map(|source| {
        // Version 2 writes `max` for no limit, version 1 a number beyond any machine.
        let bytes = read(&source)?.trim().parse().ok()?;
        Some(MemoryLimit { bytes, source })
    });
    machine.into_iter().chain(of_groups).min_by_key(|limit| limit.bytes)
}

/// Files that may state a limit: of each cgroup in `/proc/self/cgroup` (cgroups(7)) and of its ancestors up
/// to the root of the hierarchy. A container that sees only its own part of the hierarchy finds its limit at
/// that root.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        let (mount, file) = if controllers.is_empty() {
            (Path::new("/sys/fs/cgroup"), "memory.max")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            (Path::new("/sys/fs/cgroup/memory"), "memory.limit_in_bytes")
        } else {
            continue;
        };
        let group = Path::new(group.trim_start_matches('/'));
        files.extend(group.ancestors().map(|above| mount.join(above).join(file)));
    }
    files
}

fn meminfo_total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kibibytes| kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:       16310 kB\nMemFree: 1 kB\n";

    /// Checks the lowest limit of a machine that has these files, and the file that states it.
    fn check_available(files: &[(&str, &str)], bytes: u64, source: &str) {
        let read = |path: &Path| {
            files.iter().find(|(name, _)| path == Path::new(name)).map(|(_, text)| (*text).to_owned())
        };
        let expected = MemoryLimit { bytes, source: source.into() };
        assert_eq!(available(read), Some(expected), "{files:?}");
    }

    #[test]
    fn the_lowest_limit_of_the_machine_and_its_cgroups_counts() {
        let (meminfo, groups) = ("/proc/meminfo", "/proc/self/cgroup");
        check_available(&[(meminfo, MEMINFO)], 16_310 << 10, meminfo);
        // Version 2: in a container, without a limit, and with a limit of an ancestor.
        let v2 = "/sys/fs/cgroup/memory.max";
        check_available(&[(meminfo, MEMINFO), (groups, "0::/\n"), (v2, "4096\n")], 4096, v2);
        check_available(&[(meminfo, MEMINFO), (groups, "0::/\n"), (v2, "max\n")], 16_310 << 10, meminfo);
        let (slice, scope) =
            ("/sys/fs/cgroup/a.slice/memory.max", "/sys/fs/cgroup/a.slice/b.scope/memory.max");
        check_available(
            &[(meminfo, MEMINFO), (groups, "0::/a.slice/b.scope\n"), (slice, "8192\n"), (scope, "max\n")],
            8192,
            slice,
        );
        // Version 1; its root has the number for no limit.
        let (v1, v1_root) = (
            "/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        );
        let listed = "5:cpu,cpuacct:/docker/x\n4:rw,memory:/docker/x\n";
        check_available(
            &[(meminfo, MEMINFO), (groups, listed), (v1, "12288\n"), (v1_root, "9223372036854771712\n")],
            12_288,
            v1,
        );
        check_available(&[(groups, listed), (v1_root, "12289\n")], 12_289, v1_root);
    }

    #[test]
    fn what_is_no_limit_is_passed_over() {
        assert_eq!(meminfo_total("MemFree: 1 kB\n"), None);
        assert_eq!(available(|_| None), None);
        assert_eq!(limit_files("garbage\n1:cpu:/\n:\n\n"), Vec::<PathBuf>::new());
    }

    #[test]
    fn what_is_asked_for_is_taken_unless_the_machine_has_less() {
        assert_eq!(node_bytes(Some(5)), 5);
        assert!(node_bytes(None) > 0);
        check(Some(1 << 20), false).expect("every machine has a MiB");
        check(None, false).expect("nothing was asked for");
        let refused = check(Some(u64::MAX), false).unwrap_err().to_string();
        assert!(refused.contains("--memory") && refused.contains("MiB"), "{refused}");
        check(Some(u64::MAX), true).expect("a warning in developer mode");
    }
}
