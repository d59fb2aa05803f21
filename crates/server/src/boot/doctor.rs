//! `ceto doctor`: what of this machine and of the configuration would trouble a node, and what to change.
//!
//! It takes the options of `ceto server`, looks at what a start with them would meet (`machine`, `disk`,
//! `node`), and prints a finding for each. It changes nothing, opens no data, and starts no shard except the
//! one that tries the driver. Files of the system are read below a root folder, which tests replace.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // no shard runs here

mod disk;
mod machine;
mod node;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;

use crate::cli::{DoctorOptions, ServerOptions};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Good,
    /// Worth knowing; nothing has to be done.
    Note,
    /// The node runs, slower or less safely than it could.
    Warning,
    /// The node does not start, or refuses requests.
    Failure,
}

/// One thing that was looked at.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Finding {
    verdict: Verdict,
    /// The part of the machine, in one word.
    part: &'static str,
    fact: String,
    /// The remedy; none for what is good.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Finding {
    fn good(part: &'static str, fact: impl Into<String>) -> Self {
        Self { verdict: Verdict::Good, part, fact: fact.into(), advice: None }
    }

    fn new(verdict: Verdict, part: &'static str, fact: impl Into<String>, advice: &str) -> Self {
        assert!(verdict > Verdict::Good && !advice.is_empty(), "what is not good has advice");
        Self { verdict, part, fact: fact.into(), advice: Some(advice.to_owned()) }
    }
}

/// The folder below which the system's files are.
struct Root(PathBuf);

impl Root {
    /// The text of a file such as `/proc/meminfo`, trimmed; `None` if it cannot be read.
    fn read(&self, path: &str) -> Option<String> {
        let below = Path::new(path).strip_prefix("/").unwrap_or(Path::new(path));
        Some(std::fs::read_to_string(self.0.join(below)).ok()?.trim().to_owned())
    }
}

/// Prints the findings for a node with these options; the exit code is 1 if one of them is a failure.
pub fn run(command: &DoctorOptions) -> ExitCode {
    // The lines that parts of a start log are among the findings.
    reactor::log::set_level(reactor::log::Level::Error);
    let findings = findings(&command.server, &Root("/".into()));
    let text = if command.json {
        serde_json::to_string_pretty(&findings).expect("findings are plain data") + "\n"
    } else {
        shown(&findings)
    };
    print!("{text}");
    let failed = findings.iter().any(|finding| finding.verdict == Verdict::Failure);
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn findings(options: &ServerOptions, root: &Root) -> Vec<Finding> {
    let (config, remarks) = match options.configuration() {
        Ok(read) => read,
        Err(error) => {
            let advice = "correct the file: `ceto config reference` lists all keys";
            return vec![Finding::new(Verdict::Failure, "configuration", error.to_string(), advice)];
        }
    };
    let mut all = node::configuration(options.config.as_deref(), &remarks);
    all.extend(machine::all(root, &config));
    all.extend(disk::all(root, &config));
    all.extend(node::network(root, &config));
    all
}

/// The findings for people, a line or two each, and their numbers.
fn shown(findings: &[Finding]) -> String {
    let mut text = String::new();
    let parts = findings.iter().map(|finding| finding.part.len()).max().unwrap_or(0);
    for finding in findings {
        let verdict = match finding.verdict {
            Verdict::Good => "good",
            Verdict::Note => "note",
            Verdict::Warning => "warning",
            Verdict::Failure => "FAILURE",
        };
        let _ = writeln!(text, "{verdict:<8} {:<parts$}  {}", finding.part, finding.fact);
        if let Some(advice) = &finding.advice {
            let _ = writeln!(text, "{:<8} {:<parts$}  -> {advice}", "", "");
        }
    }
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let _ = writeln!(
        text,
        "{} good, {} notes, {} warnings, {} failures",
        count(Verdict::Good),
        count(Verdict::Note),
        count(Verdict::Warning),
        count(Verdict::Failure)
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root with these files.
    pub(super) fn root(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path.trim_start_matches('/'));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let root = Root(folder.path().to_owned());
        (folder, root)
    }

    #[test]
    fn findings_stand_in_columns_with_their_advice_and_their_numbers() {
        let findings = [
            Finding::good("kernel", "Linux 6.12"),
            Finding::new(Verdict::Warning, "processors", "two shards share one", "take --smp 1"),
            Finding::new(Verdict::Failure, "disk", "full", "free some"),
        ];
        let expected = "good     kernel      Linux 6.12\n\
                        warning  processors  two shards share one\n\
                        \x20                    -> take --smp 1\n\
                        FAILURE  disk        full\n\
                        \x20                    -> free some\n\
                        1 good, 0 notes, 1 warnings, 1 failures\n";
        assert_eq!(shown(&findings), expected);
        let json = serde_json::to_value(&findings).unwrap();
        assert_eq!(json[0], serde_json::json!({"verdict": "good", "part": "kernel", "fact": "Linux 6.12"}));
        assert_eq!(json[2]["advice"], "free some");
    }

    #[test]
    fn a_configuration_that_cannot_be_read_is_the_only_finding() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ceto.yaml");
        std::fs::write(&path, "native_transport_port: many\n").unwrap();
        let options = ServerOptions { config: Some(path), ..ServerOptions::default() };
        let found = findings(&options, &Root("/".into()));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].verdict, found[0].part), (Verdict::Failure, "configuration"));
        assert!(found[0].fact.contains("native_transport_port"), "{}", found[0].fact);
    }
}
