//! Freed heap memory does not go back to the kernel on the thread that freed it.
#![allow(clippy::disallowed_methods)] // no shard runs here

use std::process::Command;

#[global_allocator]
static ALLOCATOR: memory::Counting<mimalloc::MiMalloc> = memory::Counting(mimalloc::MiMalloc);

const MIB: usize = 1 << 20;
/// Large blocks and small ones have pages of different kinds.
const BLOCKS: [(usize, usize); 3] = [(48, MIB), (256, MIB / 8), (65_536, 512)];

/// MiB of the process's memory that is backed by pages.
fn resident_mib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("RssAnon");
    line.trim().trim_end_matches(" kB").trim().parse::<usize>().expect("a number") / 1024
}

/// Takes and touches memory in blocks of each size, then frees it.
fn load() {
    for (count, bytes) in BLOCKS {
        let blocks: Vec<_> = (0..count).map(|_| vec![1u8; bytes]).collect();
        assert!(blocks.iter().all(|block| block[bytes - 1] == 1));
    }
}

#[test]
fn a_thread_does_not_return_its_pages_by_itself() {
    // A process of its own, in which no other test takes memory.
    let child = "PAGES_TEST_CHILD";
    if std::env::var_os(child).is_none() {
        let test = std::env::current_exe().expect("this test");
        let ended = Command::new(test).env(child, "1").arg("--nocapture").status().expect("it runs");
        assert!(ended.success());
        return;
    }
    memory::leave_pages_to_returner(&ALLOCATOR);
    let before = resident_mib();
    load();
    let (begun, mut rounds) = (std::time::Instant::now(), 0);
    // Longer than mimalloc would wait for: by the allocations it would return pages, were it allowed to.
    while begun.elapsed().as_millis() < 100 || rounds < 3 {
        load();
        rounds += 1;
    }
    memory::tidy_pages(&ALLOCATOR);
    let kept = resident_mib();
    assert!(kept >= before + 40, "{before} MiB before, {kept} MiB kept by the thread that used them");
    memory::give_back_pages(&ALLOCATOR);
    let left = resident_mib();
    assert!(left <= before + 8, "{before} MiB before, {left} MiB after they were returned");
}
