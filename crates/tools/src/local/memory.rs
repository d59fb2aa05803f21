//! Memory that this process may use: the machine's, or the lowest limit of its cgroups.

use std::path::{Path, PathBuf};

/// The share of one of `nodes` nodes, in bytes: together they take half, as one node alone does by default.
pub(super) fn share(nodes: usize) -> u64 {
    let available = available(|path| std::fs::read_to_string(path).ok());
    available.unwrap_or(2 << 30) / 2 / nodes.max(1) as u64
}

/// The lowest limit that `read` finds.
fn available(read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    });
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    // Version 2 writes `max` for no limit, version 1 a number beyond any machine.
    let limits = limit_files(&groups).into_iter().filter_map(|file| read(&file)?.trim().parse().ok());
    machine.into_iter().chain(limits).min()
}

/// Files of cgroups(7) that may state a limit, those of ancestors included.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        let (mount, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let group = Path::new(group.trim_start_matches('/'));
        files.extend(group.ancestors().map(|above| Path::new(mount).join(above).join(file)));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_limit_counts() {
        let check = |files: &[(&str, &str)], expected: Option<u64>| {
            let read = |path: &Path| {
                files.iter().find(|(name, _)| path == Path::new(name)).map(|(_, text)| (*text).to_owned())
            };
            assert_eq!(available(read), expected, "{files:?}");
        };
        let machine = ("/proc/meminfo", "MemTotal:       16310 kB\nMemFree: 1 kB\n");
        let groups = ("/proc/self/cgroup", "0::/a.slice/b.scope\n");
        check(&[], None);
        check(&[("/proc/meminfo", "MemTotal: much\n")], None);
        check(&[machine], Some(16_310 << 10));
        check(&[machine, groups, ("/sys/fs/cgroup/memory.max", "max\n")], Some(16_310 << 10));
        check(&[machine, groups, ("/sys/fs/cgroup/a.slice/memory.max", "8192\n")], Some(8192));
        let v1 = [machine, ("/proc/self/cgroup", "4:cpu,memory:/x\n3:pids:/y\n")];
        check(&[v1[0], v1[1], ("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "4096\n")], Some(4096));
    }

    #[test]
    fn nodes_share_evenly() {
        assert!(share(1) > 0);
        assert_eq!(share(1) / 4, share(4));
    }
}
