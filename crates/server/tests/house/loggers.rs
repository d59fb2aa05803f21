//! The loggers whose levels can be set are the modules that write lines of the log.

use std::collections::BTreeSet;
use std::path::Path;

use super::{crates, root, rust_files};

/// The list of loggers, in the source of the REST API.
const LISTED_IN: &str = "crates/server/src/admin/rest/system.rs";
/// Crates whose lines are in no node's log.
const OTHERS: [&str; 3] = ["fuzz_targets", "sim", "tools"];
const KINDS: [&str; 7] = ["info", "warn", "error", "debug", "info_limited", "warn_limited", "error_limited"];

/// Whether a source writes lines. Examples in comments do not count.
fn writes(text: &str) -> bool {
    let lines = || text.lines().filter(|line| !line.trim_start().starts_with("//"));
    KINDS.iter().any(|kind| {
        let (outside, inside) = (format!("reactor::{kind}!("), format!(" crate::{kind}!("));
        lines().any(|line| line.contains(&outside) || line.contains(&inside))
    })
}

/// A crate, and its modules below the root, that write lines.
fn modules(name: &str, source: &Path) -> BTreeSet<String> {
    let mut files = Vec::new();
    rust_files(source, &mut files);
    let mut found = BTreeSet::new();
    for file in files.iter().filter(|file| writes(&std::fs::read_to_string(file).unwrap())) {
        let inner = file.strip_prefix(source).unwrap().with_extension("");
        let first = inner.components().next().unwrap().as_os_str().to_str().unwrap();
        found.insert(name.to_owned());
        if !["lib", "main"].contains(&first) {
            found.insert(format!("{name}::{first}"));
        }
    }
    found
}

#[test]
fn the_loggers_are_the_modules_that_write_lines() {
    let text = std::fs::read_to_string(root().join(LISTED_IN)).unwrap();
    let list = text.split("const LOGGERS: &[&str] = &[").nth(1).unwrap().split("];").next().unwrap();
    let listed: BTreeSet<String> = list
        .split(',')
        .map(|name| name.trim().trim_matches('"').to_owned())
        .filter(|n| !n.is_empty())
        .collect();
    let mut found = BTreeSet::new();
    for name in crates().iter().filter(|name| !OTHERS.contains(&name.as_str())) {
        found.extend(modules(name, &root().join("crates").join(name).join("src")));
    }
    assert_eq!(listed, found);
}
