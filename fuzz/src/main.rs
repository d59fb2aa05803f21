//! All targets in one libFuzzer program: linking takes longer than compiling them. `FUZZ_TARGET` names the one that a run
//! is about.
#![no_main]

use std::sync::LazyLock;

use fuzz_targets::{TARGETS, Target};

static CHOSEN: LazyLock<Target> = LazyLock::new(|| {
    let wanted = std::env::var("FUZZ_TARGET").unwrap_or_default();
    match TARGETS.iter().find(|(name, _)| *name == wanted) {
        Some((_, target)) => *target,
        None => {
            let names: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
            panic!("FUZZ_TARGET is '{wanted}'; there are {}", names.join(", "))
        }
    }
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| CHOSEN(data));
