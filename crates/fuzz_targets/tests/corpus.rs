//! Every input that is kept for the fuzzer, through its target: what was once found stays mended.
#![allow(clippy::disallowed_methods, reason = "a test reads its corpus without a reactor")]

use std::path::{Path, PathBuf};

use fuzz_targets::TARGETS;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

/// The inputs of a folder, in the order of their names.
fn inputs(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("the folder is read").path()).collect();
    paths.sort();
    paths
}

#[test]
fn every_kept_input_goes_through_its_target() {
    let mut runs = 0;
    for (name, target) in TARGETS {
        let paths = inputs(&corpus().join(name));
        assert!(!paths.is_empty(), "{name} has nothing in its corpus");
        for path in paths {
            let bytes = std::fs::read(&path).expect("a kept input is read");
            if let Err(panic) = std::panic::catch_unwind(|| target(&bytes)) {
                eprintln!("the input is {}", path.display());
                std::panic::resume_unwind(panic);
            }
            runs += 1;
        }
    }
    println!("{runs} inputs of {} targets", TARGETS.len());
}

#[test]
fn every_folder_of_the_corpus_has_a_target() {
    for folder in inputs(&corpus()) {
        let name = folder.file_name().and_then(|name| name.to_str()).expect("a folder's name is text");
        assert!(TARGETS.iter().any(|(target, _)| *target == name), "{name} is no target");
    }
}
