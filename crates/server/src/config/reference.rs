//! The reference of the configuration's keys: for each its default, and what it does.
//!
//! `ceto config sample` and `ceto config reference` print it; `packaging/ceto.yaml` and
//! `docs/configuration.md` are kept copies of what they print. Invariants, which tests hold: every key that
//! has an effect is in exactly one entry, and no other key is; a value shown as the default sets the default.

mod clients;
mod guardrails;
mod node;
mod storage;

use std::fmt::Write;

/// Keys about one subject.
struct Section {
    title: &'static str,
    entries: &'static [Entry],
}

/// A key, or some that are set together.
struct Entry {
    /// Names and values: the default, or an example if there is `unset`.
    keys: &'static [(&'static str, &'static str)],
    /// The behaviour without the key, if no value of the key stands for it.
    unset: Option<&'static str>,
    /// Its effect. The forms of values are explained once, at the top of the file.
    text: &'static str,
    /// Other names, which set the same in a unit of their own, with a value of the same meaning.
    others: &'static [(&'static str, &'static str)],
}

/// Keys that have the shown values without being set.
const fn set(keys: &'static [(&'static str, &'static str)], text: &'static str) -> Entry {
    Entry { keys, unset: None, text, others: &[] }
}

/// A key for which the node finds a value by itself, and an example.
const fn unset(
    keys: &'static [(&'static str, &'static str)],
    unset: &'static str,
    text: &'static str,
) -> Entry {
    Entry { keys, unset: Some(unset), text, others: &[] }
}

impl Entry {
    const fn or(mut self, others: &'static [(&'static str, &'static str)]) -> Self {
        self.others = others;
        self
    }
}

/// The two thresholds of a guardrail, with the same default.
macro_rules! thresholds {
    ($name:literal, $value:literal, $text:literal) => {
        super::set(
            &[(concat!($name, "_warn_threshold"), $value), (concat!($name, "_fail_threshold"), $value)],
            $text,
        )
    };
}
use thresholds;

/// All sections, in the order in which a reader needs them.
fn sections() -> impl Iterator<Item = &'static Section> {
    node::SECTIONS.iter().chain(clients::SECTIONS).chain(storage::SECTIONS).chain(guardrails::SECTIONS)
}

/// The forms of values, as lines of both texts.
const FORMS: &[&str] = &[
    "Durations have a unit: 500ms, 10s, 5m, 3h, 1d. Sizes too: 512B, 64KiB, 32MiB, 4GiB, 1TiB; M is short for \
     MiB, and so on. Rates are sizes per second: 64MiB/s. Shares are numbers from 0 to 1.",
    "A key that is not known, or a value that makes no sense, stops the start with its line and column. Other \
     keys of cassandra.yaml and scylla.yaml are accepted; those that ask for something that ceto does not do \
     are named in the log, or stop the start if the node would be less secure without it.",
];

/// Columns of a comment in the sample.
const COLUMNS: usize = 100;

/// Writes `text` as comment lines, broken between words.
fn comment(out: &mut String, text: &str) {
    let mut line = String::from("#");
    for word in text.split_whitespace() {
        if line.len() > 1 && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            out.push_str(&line);
            out.push('\n');
            line.truncate(1);
        }
        line.push(' ');
        line.push_str(word);
    }
    out.push_str(&line);
    out.push('\n');
}

/// A configuration file with every key, commented out.
pub(crate) fn sample() -> String {
    let mut out = String::new();
    comment(&mut out, "Configuration of ceto: every key with its default, commented out.");
    comment(&mut out, "");
    comment(
        &mut out,
        "To set a key, remove the # before it. Lines of text begin with # and a space, keys with # alone. \
         Options of the command line go before this file (ceto server --help).",
    );
    for text in FORMS {
        comment(&mut out, "");
        comment(&mut out, text);
    }
    for Section { title, entries } in sections() {
        let _ = write!(out, "\n\n# {} {title} {}\n", "-".repeat(3), "-".repeat(COLUMNS - 7 - title.len()));
        for Entry { keys, unset, text, others } in *entries {
            out.push('\n');
            comment(&mut out, text);
            if let Some(unset) = unset {
                comment(&mut out, &format!("Not set: {unset}. Example:"));
            }
            for (name, value) in *keys {
                let _ = writeln!(out, "#{name}: {value}");
            }
            if !others.is_empty() {
                comment(&mut out, "The same by another name:");
            }
            for (name, value) in *others {
                let _ = writeln!(out, "#{name}: {value}");
            }
        }
    }
    out
}

/// The reference, as a page of the documentation.
pub(crate) fn markdown() -> String {
    let mut out = String::from(
        "# Configuration\n\
         `ceto server --config FILE` reads a YAML file with the keys below; options of the command line go before it. `ceto config sample`\n\
         prints such a file with all keys commented out ([packaging/ceto.yaml](../packaging/ceto.yaml)), `ceto config reference` this page.\n",
    );
    for text in FORMS {
        let _ = write!(out, "\n{text}\n");
    }
    let code = |value: &str| format!("`{value}`");
    for Section { title, entries } in sections() {
        let _ = write!(out, "\n## {title}\n| key | default | what it does |\n|---|---|---|\n");
        for Entry { keys, unset, text, others } in *entries {
            let list = |part: fn(&(&'static str, &'static str)) -> &'static str| {
                keys.iter().map(|key| code(part(key))).collect::<Vec<_>>()
            };
            let mut defaults = list(|(_, value)| value);
            defaults.dedup();
            let default = match unset {
                Some(unset) => format!("{unset}; example: {}", defaults.join(", ")),
                None => defaults.join(", "),
            };
            let names: Vec<String> = others.iter().map(|(name, _)| code(name)).collect();
            let others =
                if names.is_empty() { String::new() } else { format!(" Also: {}.", names.join(", ")) };
            let _ = writeln!(out, "| {} | {default} | {text}{others} |", list(|(name, _)| name).join("<br>"));
        }
    }
    out
}

#[cfg(test)]
mod tests;
