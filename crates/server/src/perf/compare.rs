//! Compares a run with a stored one: each figure, its change, and whether the change exceeds the noise of the
//! runs.
//!
//! Rates mean little across machines or hours; counts do not vary so, so `--hold` checks counts only.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;

use super::PerfError;

/// Largest file that is read as a stored run.
const RUN_BYTES_MAX: usize = 16 << 20;
/// Growth of allocations per operation that is tolerated: a few allocations per second are shared by all
/// operations.
const ALLOCATIONS_SLACK: f64 = 0.01;

/// Options of `ceto perf compare`.
#[derive(Debug, Args)]
pub struct Options {
    /// The run that was kept (`--json-result`)
    old: PathBuf,
    /// The run to compare with it
    new: PathBuf,
    /// Fail where instructions of an operation grew by more than this, or its allocations at all
    #[arg(long, value_name = "PERCENT")]
    hold: Option<f64>,
}

/// The compared figures: name, and whether less is better.
const FIGURES: [(&str, bool); 6] = [
    ("median tps", false),
    ("max tps", false),
    ("allocs_per_op", true),
    ("tasks_per_op", true),
    ("instructions_per_op", true),
    ("cpu_cycles_per_op", true),
];

pub(super) fn run(options: Options) -> Result<(), PerfError> {
    let reactor = reactor::Config { name: "perf".into(), ..reactor::Config::default() };
    let (old, new) = (options.old.clone(), options.new.clone());
    let (old, new) =
        reactor::run_one(reactor, async move { Ok::<_, PerfError>((read(&old).await?, read(&new).await?)) })?;
    let (lines, grew) = compare(&old, &new, options.hold)?;
    for line in lines {
        println!("{line}");
    }
    if grew.is_empty() { Ok(()) } else { Err(PerfError::Grew(grew)) }
}

async fn read(path: &Path) -> Result<Value, PerfError> {
    let bytes = reactor::file::read_all(path, RUN_BYTES_MAX).await;
    let bytes = bytes.map_err(PerfError::io(format!("read {}", path.display())))?;
    let not_a_run = |reason: String| PerfError::NotARun { path: path.to_owned(), reason };
    let run: Value = serde_json::from_slice(&bytes).map_err(|error| not_a_run(error.to_string()))?;
    if run["bench"].is_string() && run["results"].is_object() {
        Ok(run)
    } else {
        Err(not_a_run("it names no bench or has no results".into()))
    }
}

/// The lines to print, and the counts that grew by more than `hold` per cent.
fn compare(old: &Value, new: &Value, hold: Option<f64>) -> Result<(Vec<String>, Vec<String>), PerfError> {
    if old["bench"] != new["bench"] {
        let name = |run: &Value| run["bench"].as_str().unwrap_or_default().to_owned();
        return Err(PerfError::DifferentBenches { old: name(old), new: name(new) });
    }
    let mut lines = Vec::new();
    let (before, after) = (&old["parameters"], &new["parameters"]);
    if let (Some(before), Some(after)) = (before.as_object(), after.as_object()) {
        for (name, value) in after.iter().filter(|(name, value)| before.get(*name) != Some(value)) {
            let was = before.get(name).unwrap_or(&Value::Null);
            lines.push(format!("parameter {name}: {was} was, {value} is: the runs are not alike"));
        }
    }
    lines.push(format!("{:<20} {:>14} {:>14} {:>9}", "", "old", "new", "change"));
    let mut grew = Vec::new();
    for (name, less_is_better) in FIGURES {
        let (Some(was), Some(is)) = (old["results"][name].as_f64(), new["results"][name].as_f64()) else {
            continue;
        };
        let change = if was == 0.0 { 0.0 } else { (is / was - 1.0) * 100.0 };
        let beyond_noise = match name {
            "median tps" => (is - was).abs() > deviation(old) + deviation(new),
            "max tps" => false,
            "allocs_per_op" => (is - was).abs() > ALLOCATIONS_SLACK,
            _ => change.abs() > 1.0,
        };
        let verdict = match (beyond_noise, (is < was) == less_is_better) {
            (false, _) => "",
            (true, true) => "  better",
            (true, false) => "  worse",
        };
        lines.push(format!("{name:<20} {was:>14.2} {is:>14.2} {change:>+8.1}%{verdict}"));
        let Some(hold) = hold else { continue };
        if (name == "instructions_per_op" && change > hold)
            || (name == "allocs_per_op" && is > was + ALLOCATIONS_SLACK)
        {
            grew.push(format!("{name} grew from {was:.2} to {is:.2}"));
        }
    }
    Ok((lines, grew))
}

fn deviation(run: &Value) -> f64 {
    run["results"]["mad tps"].as_f64().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn kept(rate: f64, deviation: f64, allocations: f64, instructions: Option<f64>) -> Value {
        json!({"bench": "simple-query", "parameters": {"partitions": 10}, "results": {
            "median tps": rate, "mad tps": deviation, "max tps": rate, "min tps": rate,
            "allocs_per_op": allocations, "tasks_per_op": 1.0, "instructions_per_op": instructions,
            "cpu_cycles_per_op": null, "errors": 0}})
    }

    fn check(old: &Value, new: &Value, hold: Option<f64>, verdicts: &[&str], grew: usize) {
        let (lines, grown) = compare(old, new, hold).unwrap();
        let marked: Vec<&str> = lines
            .iter()
            .filter(|line| line.ends_with("better") || line.ends_with("worse"))
            .map(String::as_str)
            .collect();
        assert_eq!(marked.len(), verdicts.len(), "{lines:#?}");
        for (line, verdict) in marked.iter().zip(verdicts) {
            assert!(line.ends_with(verdict), "{line}");
        }
        assert_eq!(grown.len(), grew, "{grown:?}");
    }

    #[test]
    fn a_change_counts_when_it_is_beyond_the_noise_of_both_runs() {
        check(&kept(100.0, 5.0, 0.0, None), &kept(109.0, 5.0, 0.0, None), None, &[], 0);
        check(&kept(100.0, 5.0, 0.0, None), &kept(111.0, 5.0, 0.0, None), None, &["better"], 0);
        check(&kept(100.0, 5.0, 0.0, None), &kept(80.0, 5.0, 1.0, None), None, &["worse", "worse"], 0);
    }

    #[test]
    fn counts_are_held_and_rates_are_not() {
        let old = kept(100.0, 1.0, 0.0, Some(5000.0));
        check(&old, &kept(10.0, 1.0, 0.0, Some(5100.0)), Some(4.0), &["worse", "worse"], 0);
        check(&old, &kept(100.0, 1.0, 0.0, Some(5300.0)), Some(4.0), &["worse"], 1);
        check(&old, &kept(100.0, 1.0, 1.0, Some(5000.0)), Some(4.0), &["worse"], 1);
    }

    #[test]
    fn other_parameters_are_told_and_other_benches_are_not_compared() {
        let old = kept(100.0, 1.0, 0.0, None);
        let mut new = old.clone();
        new["parameters"]["partitions"] = json!(20);
        assert!(compare(&old, &new, None).unwrap().0[0].starts_with("parameter partitions: 10 was, 20 is"));
        new["bench"] = json!("sstable");
        assert!(matches!(compare(&old, &new, None), Err(PerfError::DifferentBenches { .. })));
    }
}
