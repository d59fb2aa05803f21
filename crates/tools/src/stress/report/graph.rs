//! One page that shows runs over time, self-contained: no other file, no other host.
//!
//! The runs' numbers are in the page as JSON. An existing page is extended, so that revisions can be
//! compared. Titles come from the command line and are escaped.

use serde_json::{Value, json};

/// Runs a page holds at most; the oldest go.
const RUNS_MAX: usize = 64;
const BEGIN: &str = "<script type=\"application/json\" id=\"stats\">";
const END: &str = "</script>";

/// One interval of a run.
#[derive(Debug, Clone, Copy)]
pub(in crate::stress) struct Sample {
    /// Seconds since the run began.
    pub(in crate::stress) time: f64,
    pub(in crate::stress) rate: f64,
    /// Milliseconds: mean, median, 95th, 99th, 99.9th percentile, maximum.
    pub(in crate::stress) latency_ms: [f64; 6],
    pub(in crate::stress) errors: u64,
}

/// A page with one more run than `old` holds.
pub(in crate::stress) fn page(
    old: Option<&str>,
    title: &str,
    revision: &str,
    operation: &str,
    samples: &[Sample],
    results: &[String],
) -> String {
    let mut runs: Vec<Value> = old.and_then(runs_of).unwrap_or_default();
    let round = |number: f64| if number.is_finite() { (number * 1000.0).round() / 1000.0 } else { 0.0 };
    let intervals: Vec<Value> = samples
        .iter()
        .map(|sample| {
            let mut values = vec![round(sample.time), round(sample.rate)];
            values.extend(sample.latency_ms.map(round));
            values.push(sample.errors as f64);
            json!(values)
        })
        .collect();
    let results: Vec<&str> = results.iter().map(|line| line.trim()).filter(|line| !line.is_empty()).collect();
    runs.push(json!({
        "revision": revision, "operation": operation, "intervals": intervals, "results": results,
    }));
    let surplus = runs.len().saturating_sub(RUNS_MAX);
    runs.drain(..surplus);
    // No string may end the script it stands in, or begin another.
    let stats = json!({"title": title, "runs": runs}).to_string().replace('<', "\\u003c");
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    format!(
        "<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\"><title>{title}</title>\n{STYLE}</head>\n\
         <body><h1>{title}</h1>\n<label>metric <select id=\"metric\"></select></label>\n<div id=\"chart\"></div>\n\
         <div id=\"results\"></div>\n{BEGIN}{stats}{END}\n{SCRIPT}</body></html>\n"
    )
}

/// The runs of a page that was made here.
fn runs_of(page: &str) -> Option<Vec<Value>> {
    let (_, rest) = page.split_once(BEGIN)?;
    let (stats, _) = rest.split_once(END)?;
    let stats: Value = serde_json::from_str(stats).ok()?;
    stats.get("runs")?.as_array().cloned()
}

const STYLE: &str = "<style>body{font:14px sans-serif;margin:2em}svg{background:#fafafa;border:1px solid #ccc}\
pre{background:#f4f4f4;padding:1em;display:inline-block;vertical-align:top;margin-right:1em}</style>\n";

const SCRIPT: &str = r##"<script>
const stats = JSON.parse(document.getElementById("stats").textContent);
const metrics = ["op/s", "mean ms", "median ms", "95th ms", "99th ms", "99.9th ms", "max ms", "errors"];
const colours = ["#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#e377c2", "#17becf"];
const select = document.getElementById("metric");
metrics.forEach((name, index) => select.add(new Option(name, index + 1)));
function element(name, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (text !== undefined) node.textContent = text;
  return node;
}
function draw() {
  const metric = Number(select.value), width = 960, height = 420, left = 80, bottom = 40;
  const svg = element("svg", {width, height});
  const points = stats.runs.flatMap(run => run.intervals);
  const xMax = Math.max(1, ...points.map(p => p[0])), yMax = Math.max(1e-9, ...points.map(p => p[metric])) * 1.05;
  const x = value => left + value / xMax * (width - left - 20);
  const y = value => height - bottom - value / yMax * (height - bottom - 20);
  for (let step = 0; step <= 5; step++) {
    const at = yMax * step / 5, time = xMax * step / 5;
    svg.append(element("line", {x1: left, x2: width - 20, y1: y(at), y2: y(at), stroke: "#ddd"}));
    svg.append(element("text", {x: left - 8, y: y(at) + 4, "text-anchor": "end", "font-size": 11}, at.toPrecision(4)));
    svg.append(element("text", {x: x(time), y: height - bottom + 18, "text-anchor": "middle", "font-size": 11},
      time.toFixed(1) + " s"));
  }
  stats.runs.forEach((run, index) => {
    const colour = colours[index % colours.length];
    const line = run.intervals.map(p => x(p[0]) + "," + y(p[metric])).join(" ");
    svg.append(element("polyline", {points: line, fill: "none", stroke: colour, "stroke-width": 2}));
    run.intervals.forEach(p => svg.append(element("circle", {cx: x(p[0]), cy: y(p[metric]), r: 2, fill: colour})));
    svg.append(element("text", {x: left + 10, y: 20 + 16 * index, fill: colour, "font-size": 12},
      run.revision + " - " + run.operation));
  });
  document.getElementById("chart").replaceChildren(svg);
}
select.onchange = draw;
draw();
stats.runs.forEach(run => {
  const block = document.createElement("pre");
  block.textContent = run.revision + " - " + run.operation + "\n\n" + run.results.join("\n");
  document.getElementById("results").append(block);
});
</script>
"##;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_gather_on_one_page_that_needs_nothing_else() {
        let sample = Sample { time: 1.0, rate: 1000.0, latency_ms: [1.0; 6], errors: 2 };
        let title = "a </script><script>alert(1)</script> & b";
        let first = page(None, title, "r1", "WRITE", &[sample], &["Results:".to_owned()]);
        assert_eq!(runs_of(&first).unwrap().len(), 1);
        let second = page(Some(&first), title, "r2", "WRITE", &[sample, sample], &[]);
        let runs = runs_of(&second).unwrap();
        assert_eq!(runs.len(), 2);
        assert_eq!(runs[0]["revision"], "r1");
        assert_eq!(runs[1]["intervals"][1], json!([1.0, 1000.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0]));
        assert!(!second.contains("<script>alert"), "titles are escaped");
        assert!(!second.contains("src=") && !second.contains("href="), "nothing is loaded from elsewhere");
        assert!(runs_of("<html>somebody else's page</html>").is_none());
    }
}
