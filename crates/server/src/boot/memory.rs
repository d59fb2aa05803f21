//! How much memory a node takes, and how it is shared out.

/// What one shard gets at least; below it the node starts with a warning.
pub(super) const SHARD_BYTES_MIN: u64 = 64 << 20;

/// Memory of the whole node in bytes: what was asked for, or half of what the machine or its cgroup has.
#[expect(clippy::disallowed_methods, reason = "read once, before any shard exists")]
pub(super) fn node_bytes(asked: Option<u64>) -> u64 {
    asked.unwrap_or_else(|| {
        let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| meminfo_total(&text));
        let cgroup = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse().ok());
        let bytes = [machine, cgroup].into_iter().flatten().min().unwrap_or(1 << 30);
        bytes / 2
    })
}

fn meminfo_total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kibibytes| kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_says_what_it_has() {
        assert_eq!(meminfo_total("MemTotal:       16310 kB\nMemFree: 1 kB\n"), Some(16_310 << 10));
        assert_eq!(meminfo_total("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn what_is_asked_for_is_taken() {
        assert_eq!(node_bytes(Some(5)), 5);
        assert!(node_bytes(None) > 0);
    }
}
