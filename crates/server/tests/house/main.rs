//! Rules of the repository that the compiler does not check.
#![allow(clippy::disallowed_methods)] // a test reads the tree

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

mod circles;
mod loggers;
mod tidy;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The crates in the table of ARCHITECTURE.md, with their layers.
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

/// Checks licences and names of the linked crates against deny.toml, without the program `cargo deny`.
#[test]
fn what_is_linked_may_be() {
    let deny: toml::Table = std::fs::read_to_string(root().join("deny.toml")).unwrap().parse().unwrap();
    let allowed: Vec<_> =
        deny["licenses"]["allow"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    let banned: Vec<_> =
        deny["bans"]["deny"].as_array().unwrap().iter().map(|ban| ban["name"].as_str().unwrap()).collect();
    let output = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked", "--filter-platform"])
        .arg(deny["graph"]["targets"][0].as_str().unwrap())
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 50);
    for package in packages {
        let name = package["name"].as_str().unwrap();
        assert!(!banned.contains(&name), "{name} is banned by deny.toml");
        let Some(license) = package["license"].as_str() else { panic!("{name} says no licence") };
        let expression = spdx::Expression::parse_mode(license, spdx::ParseMode::LAX).unwrap();
        let may = expression.evaluate(|licence| allowed.contains(&licence.to_string().as_str()));
        assert!(may, "{name}: {license} is not allowed by deny.toml");
    }
}
