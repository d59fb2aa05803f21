//! The house rules that a compiler does not check.
#![allow(clippy::disallowed_methods)] // a test reads the tree

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Crates of the table in ARCHITECTURE.md with their layers.
fn rooms() -> BTreeMap<String, u32> {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    text.lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
            let layer = cells.next()?.parse().ok()?;
            Some((cells.next()?.trim_matches('`').to_owned(), layer))
        })
        .collect()
}

fn crates() -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn rust_files(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

#[test]
fn the_map_names_the_crates_there_are() {
    assert_eq!(rooms().into_keys().collect::<Vec<_>>(), crates());
}

#[test]
fn every_arrow_points_down() {
    let rooms = rooms();
    for (name, layer) in &rooms {
        let manifest = std::fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).unwrap();
        let dependencies = manifest.split("[dependencies]").nth(1).unwrap_or("");
        let dependencies = dependencies.split("\n[").next().unwrap();
        for line in dependencies.lines() {
            let dependency = line.split(['.', ' ', '=']).next().unwrap();
            if let Some(below) = rooms.get(dependency) {
                assert!(below < layer, "{name} (layer {layer}) depends on {dependency} (layer {below})");
            }
        }
    }
}

#[test]
fn every_file_opens_with_what_it_is_for() {
    let mut files = Vec::new();
    rust_files(&root().join("crates"), &mut files);
    let silent: Vec<_> = files
        .iter()
        .filter(|path| !std::fs::read_to_string(path).unwrap().trim_start_matches("#!/").starts_with("//!"))
        .collect();
    assert!(silent.is_empty(), "files without a //! header: {silent:#?}");
}

#[test]
fn main_stays_short() {
    let main = std::fs::read_to_string(root().join("crates/server/src/main.rs")).unwrap();
    assert!(main.lines().count() < 100);
}
