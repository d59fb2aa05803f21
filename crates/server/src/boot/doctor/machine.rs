//! The kernel, processors, memory, descriptors and the clock.

use reactor::StartError;

use super::super::memory;
use super::{Finding, Root, Verdict};
use crate::boot::{BootError, reactor_config};
use crate::config::{Config, Driver};

/// Version of Linux with all that the io_uring driver uses (deferred task work on rings of one thread).
const RING_KERNEL: (u32, u32) = (6, 1);
/// Descriptors of a process below which a busy node runs out: each connection and table file takes some.
const DESCRIPTORS_WANTED: usize = 65_536;
/// Sources of time that are read without a call into the kernel.
const FAST_CLOCKS: [&str; 4] = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];

pub(super) fn all(root: &Root, config: &Config) -> Vec<Finding> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut found = vec![kernel(root), driver(root, config)];
    found.extend(shards(root, config, processors));
    found.extend(memory_of(root, config));
    found.push(descriptors(reactor::descriptors_max()));
    found.push(clock(root));
    found
}

fn kernel(root: &Root) -> Finding {
    const PART: &str = "kernel";
    let Some(release) = root.read("/proc/sys/kernel/osrelease") else {
        return Finding::new(Verdict::Warning, PART, "its version cannot be read", "mount /proc");
    };
    let mut numbers = release.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < RING_KERNEL {
        let fact = format!("Linux {release}: the io_uring driver needs 6.1, so epoll is used");
        return Finding::new(Verdict::Note, PART, fact, "take Linux 6.1 or later for the faster driver");
    }
    Finding::good(PART, format!("Linux {release}"))
}

/// Tries the driver on a thread of its own.
fn driver(root: &Root, config: &Config) -> Finding {
    const PART: &str = "driver";
    if config.driver == Driver::Poll {
        return Finding::good(PART, "epoll, as configured");
    }
    let asked = Config { driver: Driver::Uring, ..config.clone() };
    let one = reactor::Config { stalls: None, ..reactor_config(&asked) };
    let source = match reactor::start(one, |_| async {}).map(reactor::Running::join) {
        Ok(Ok(())) => return Finding::good(PART, "io_uring can be used"),
        Ok(Err(error)) => error.to_string(),
        Err(StartError::Driver { source, .. }) => source.to_string(),
        Err(error) => error.to_string(),
    };
    let advice = match root.read("/proc/sys/kernel/io_uring_disabled").as_deref() {
        None | Some("0") => "in a container, allow io_uring in its seccomp profile",
        Some(_) => "sysctl -w kernel.io_uring_disabled=0",
    };
    match config.driver {
        Driver::Uring => Finding::new(
            Verdict::Failure,
            PART,
            format!("io_uring is asked for and refused: {source}"),
            advice,
        ),
        _ => Finding::new(
            Verdict::Warning,
            PART,
            format!("io_uring is refused: {source}; epoll is used"),
            advice,
        ),
    }
}

/// The processors that the process may use, and those that its cgroup pays for.
fn shards(root: &Root, config: &Config, processors: usize) -> Vec<Finding> {
    const PART: &str = "processors";
    let shards = config.shards.unwrap_or(processors);
    let mut found = Vec::new();
    if shards > processors && !(config.developer_mode || config.overprovisioned) {
        let error = BootError::TooManyShards { shards, processors };
        found.push(Finding::new(Verdict::Failure, PART, error.to_string(), "give fewer with --smp"));
    } else if shards > processors {
        let fact = format!("{shards} shards share {processors} processors");
        found.push(Finding::new(Verdict::Note, PART, fact, "leave --smp out for one shard per processor"));
    } else {
        found.push(Finding::good(PART, format!("{shards} shards on {processors} processors")));
    }
    if let Some(quota) = quota(root).filter(|quota| *quota < shards as f64) {
        let fact =
            format!("the cgroup gives {quota:.1} processors to {shards} shards, which stand still in turns");
        found.push(Finding::new(
            Verdict::Warning,
            PART,
            fact,
            "raise the limit, or give fewer shards with --smp",
        ));
    }
    found
}

/// Processors of the nearest cgroup (version 2) with a limit.
fn quota(root: &Root) -> Option<f64> {
    let groups = root.read("/proc/self/cgroup")?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let above = std::path::Path::new(group.trim_start_matches('/')).ancestors();
    let limits = above.filter_map(|group| {
        let text = root.read(&format!("/sys/fs/cgroup/{}/cpu.max", group.display()))?;
        let (quota, period) = text.split_once(' ')?;
        Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
    });
    limits.min_by(f64::total_cmp)
}

fn memory_of(root: &Root, config: &Config) -> Vec<Finding> {
    const PART: &str = "memory";
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let shards = config.shards.unwrap_or(processors).max(1) as u64;
    let bytes = memory::node_bytes(config.memory_bytes);
    let mut found = Vec::new();
    if let Err(error) = memory::check(config.memory_bytes, false) {
        let verdict = if config.developer_mode { Verdict::Warning } else { Verdict::Failure };
        found.push(Finding::new(verdict, PART, error.to_string(), "give less with --memory"));
    } else if bytes / shards < memory::SHARD_BYTES_MIN {
        let fact = format!("{} MiB for each of {shards} shards", (bytes / shards) >> 20);
        let advice = "give 64 MiB a shard at least, with --memory, or fewer shards with --smp";
        found.push(Finding::new(Verdict::Warning, PART, fact, advice));
    } else {
        found.push(Finding::good(PART, format!("{} MiB for {shards} shards", bytes >> 20)));
    }
    let swap = root.read("/proc/meminfo").and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("SwapTotal:"))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok()
    });
    if let Some(kib) = swap.filter(|kib| *kib > 0) {
        let fact = format!("{} MiB of swap: a node whose memory is swapped out answers late", kib >> 10);
        found.push(Finding::new(Verdict::Warning, PART, fact, "swapoff -a, or MemorySwapMax=0 in the unit"));
    }
    found
}

fn descriptors(most: usize) -> Finding {
    const PART: &str = "descriptors";
    if most >= DESCRIPTORS_WANTED {
        return Finding::good(PART, format!("{most} may be open"));
    }
    let fact = format!("{most} may be open, and each connection and table file takes some");
    Finding::new(Verdict::Warning, PART, fact, "ulimit -n 200000, or LimitNOFILE=200000 in the unit")
}

fn clock(root: &Root) -> Finding {
    const PART: &str = "clock";
    match root.read("/sys/devices/system/clocksource/clocksource0/current_clocksource") {
        Some(source) if !FAST_CLOCKS.contains(&source.as_str()) => {
            let fact = format!("{source}: reading it is a call into the kernel, many times a request");
            let advice =
                "choose tsc where /sys/devices/system/clocksource/clocksource0/available_clocksource has it";
            Finding::new(Verdict::Warning, PART, fact, advice)
        }
        Some(source) => Finding::good(PART, source),
        None => {
            Finding::new(Verdict::Note, PART, "its source cannot be read", "mount /sys to have it checked")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::root;
    use super::*;

    const CGROUP: (&str, &str) = ("/proc/self/cgroup", "0::/kubepods/pod1\n");

    #[test]
    fn old_kernels_are_noted() {
        for (release, verdict) in [
            ("5.10.0-21-amd64", Verdict::Note),
            ("6.1.0", Verdict::Good),
            ("6.0.12", Verdict::Note),
            ("10.0", Verdict::Good),
        ] {
            let (_folder, root) = root(&[("/proc/sys/kernel/osrelease", release)]);
            assert_eq!(kernel(&root).verdict, verdict, "{release}");
        }
        let (_folder, empty) = root(&[]);
        assert_eq!(kernel(&empty).verdict, Verdict::Warning);
    }

    #[test]
    fn shards_that_share_processors_or_exceed_the_cgroups_are_told() {
        let config = Config { shards: Some(4), ..Config::default() };
        let verdicts = |root: &Root, config: &Config| -> Vec<Verdict> {
            shards(root, config, 2).iter().map(|finding| finding.verdict).collect()
        };
        let (_folder, free) = root(&[CGROUP, ("/sys/fs/cgroup/kubepods/pod1/cpu.max", "max 100000\n")]);
        assert_eq!(verdicts(&free, &config), [Verdict::Failure]);
        let shared = Config { overprovisioned: true, ..config };
        assert_eq!(verdicts(&free, &shared), [Verdict::Note]);
        // The group above has the limit.
        let (_folder, limited) = root(&[CGROUP, ("/sys/fs/cgroup/kubepods/cpu.max", "150000 100000\n")]);
        assert_eq!(
            verdicts(&limited, &Config { shards: Some(2), ..Config::default() }),
            [Verdict::Good, Verdict::Warning]
        );
        assert_eq!(verdicts(&limited, &Config { shards: Some(1), ..Config::default() }), [Verdict::Good]);
    }

    #[test]
    fn swap_slow_clocks_and_few_descriptors_are_told() {
        let found = |text: &str| {
            let (_folder, root) = root(&[("/proc/meminfo", text)]);
            memory_of(&root, &Config { memory_bytes: Some(256 << 20), shards: Some(1), ..Config::default() })
        };
        assert_eq!(found("MemTotal: 8 kB\nSwapTotal:             0 kB\n").len(), 1);
        let swap = found("MemTotal: 8 kB\nSwapTotal:       2097148 kB\n");
        assert!(swap[1].fact.starts_with("2047 MiB of swap"), "{}", swap[1].fact);
        let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        for (name, verdict) in [("tsc\n", Verdict::Good), ("hpet\n", Verdict::Warning)] {
            let (_folder, root) = root(&[(source, name)]);
            assert_eq!(clock(&root).verdict, verdict, "{name}");
        }
        assert_eq!(descriptors(1_024).verdict, Verdict::Warning);
        assert_eq!(descriptors(1 << 20).verdict, Verdict::Good);
    }

    #[test]
    fn little_memory_for_a_shard_is_told() {
        let (_folder, root) = root(&[]);
        let config = Config { memory_bytes: Some(64 << 20), shards: Some(2), ..Config::default() };
        assert_eq!(memory_of(&root, &config)[0].verdict, Verdict::Warning);
    }
}
