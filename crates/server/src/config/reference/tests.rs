//! The reference agrees with the table of keys, with the defaults, and with the kept copies.

use std::collections::BTreeSet;
use std::path::Path;

use super::super::{Config, Remarks, keys};
use super::*;

/// A configuration whose optional parts are there, so that defaults compare equal.
fn filled(mut config: Config) -> Config {
    config.guardrails.writes.get_or_insert_default();
    config
}

fn with(text: &str) -> Config {
    let (config, remarks) = Config::from_yaml(Path::new("sample.yaml"), text).unwrap();
    assert_eq!(remarks, Remarks::default(), "{text}");
    filled(config)
}

fn names(entries: &[Entry]) -> impl Iterator<Item = &'static str> {
    entries.iter().flat_map(|entry| entry.keys.iter().chain(entry.others)).map(|(name, _)| *name)
}

/// The sample with every key in force.
fn uncommented() -> String {
    let is_key = |line: &&str| line.strip_prefix('#').is_some_and(|key| key.starts_with(char::is_alphabetic));
    sample().lines().filter(is_key).fold(String::new(), |all, line| all + &line[1..] + "\n")
}

#[test]
fn every_key_that_has_an_effect_is_described_once() {
    let described: Vec<&str> = sections().flat_map(|section| names(section.entries)).collect();
    let once: BTreeSet<&str> = described.iter().copied().collect();
    assert_eq!(described.len(), once.len(), "described twice: {described:?}");
    assert_eq!(once, keys::names().collect());
}

#[test]
fn values_shown_as_defaults_are_the_defaults_and_examples_are_not() {
    let default = filled(Config::default());
    for Entry { keys, unset, others, .. } in sections().flat_map(|section| section.entries) {
        let (first, _) = keys[0];
        for (name, value) in keys.iter().chain(*others) {
            let is_default = with(&format!("{name}: {value}\n")) == default;
            assert_eq!(is_default, unset.is_none(), "{name}: {value}");
        }
        // Another name of a single key has the same value in its own unit.
        if let ([(_, value)], Some(_)) = (keys, unset) {
            for (name, other) in *others {
                let same = with(&format!("{first}: {value}\n"));
                assert_eq!(same, with(&format!("{name}: {other}\n")), "{name}: {other}");
            }
        }
    }
}

#[test]
fn the_sample_changes_nothing_and_is_valid_with_every_key_in_force() {
    assert_eq!(with(&sample()), filled(Config::default()));
    let all = uncommented();
    assert_eq!(all.lines().count(), keys::names().count());
    assert_ne!(with(&all), filled(Config::default()));
}

/// `UPDATE_KEPT=1 cargo test -p server --lib kept_copies` writes them.
#[test]
#[allow(clippy::disallowed_methods)] // no shard runs here
fn kept_copies_are_what_the_program_prints() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (path, text) in [("packaging/ceto.yaml", sample()), ("docs/configuration.md", markdown())] {
        let path = root.join(path);
        if std::env::var_os("UPDATE_KEPT").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == text, "{} is not what the program prints: set UPDATE_KEPT=1", path.display());
    }
}
