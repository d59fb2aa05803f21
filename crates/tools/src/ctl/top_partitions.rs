//! `toppartitions`: which partitions are asked for most. `getsstables`: which table files have one.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::CtlError;
use super::http::{Api, escaped};
use super::patience::patiently;
use super::text::print;

const DURATION_MS_DEFAULT: u64 = 5000;

#[derive(Debug, Args)]
pub(super) struct TopOptions {
    /// Keyspace; without one all tables are looked at
    #[arg(requires = "table")]
    keyspace: Option<String>,
    /// Table of the keyspace
    table: Option<String>,
    /// Milliseconds to look for [default: 5000]
    #[arg(conflicts_with = "duration_option")]
    duration: Option<u64>,
    /// The same as an option
    #[arg(short = 'd', long = "duration", value_name = "MS")]
    duration_option: Option<u64>,
    /// Keyspaces to look at, separated by commas
    #[arg(long, value_delimiter = ',', conflicts_with = "keyspace")]
    ks_filters: Vec<String>,
    /// Tables to look at, keyspace:table, separated by commas
    #[arg(long, value_delimiter = ',', conflicts_with = "keyspace")]
    cf_filters: Vec<String>,
    /// Partitions kept to count; more of them make counts more exact
    #[arg(short = 's', long, default_value_t = 256)]
    capacity: u64,
    /// Partitions to list
    #[arg(short = 'k', long = "top-count", default_value_t = 10)]
    top_count: u64,
    /// READS, WRITES or both, separated by a comma
    #[arg(short = 'a', long, value_delimiter = ',', default_value = "WRITES,READS", ignore_case = true,
        value_parser = ["READS", "WRITES"])]
    samplers: Vec<String>,
}

impl TopOptions {
    fn duration_ms(&self) -> u64 {
        self.duration.or(self.duration_option).unwrap_or(DURATION_MS_DEFAULT)
    }

    fn path(&self) -> Result<String, CtlError> {
        if self.top_count > self.capacity {
            return Err(CtlError::Usage(format!(
                "no more partitions can be listed (-k {}) than are kept (-s {})",
                self.top_count, self.capacity
            )));
        }
        let list = |names: &[String]| names.iter().map(|name| escaped(name)).collect::<Vec<_>>().join(",");
        let (path, filters) = match (&self.keyspace, &self.table) {
            (Some(keyspace), Some(table)) => {
                let name = escaped(&format!("{keyspace}:{table}"));
                (format!("/column_family/toppartitions/{name}"), String::new())
            }
            _ => (
                "/storage_service/toppartitions/".to_owned(),
                format!(
                    "&keyspace_filters={}&table_filters={}",
                    list(&self.ks_filters),
                    list(&self.cf_filters)
                ),
            ),
        };
        let (duration, capacity) = (self.duration_ms(), self.capacity);
        let list_size = self.top_count;
        Ok(format!("{path}?duration={duration}&capacity={capacity}&list_size={list_size}{filters}"))
    }
}

pub(super) async fn top_partitions(api: &Api, options: &TopOptions) -> Result<(), CtlError> {
    let path = options.path()?;
    let request = {
        let api = api.clone();
        async move { api.get(&path).await }
    };
    let all = options.duration_ms() / 1000;
    let progress = async |taken: Duration| format!("{} of {all} s", taken.as_secs());
    let answer = patiently("toppartitions", request, progress).await?;
    let mut text = String::new();
    for (sampler, of) in [("WRITES", "write"), ("READS", "read")] {
        if !options.samplers.iter().any(|wanted| wanted.eq_ignore_ascii_case(sampler)) {
            continue;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&list(sampler, of, &answer, options));
    }
    print(&text);
    Ok(())
}

/// One sampler's part of the answer, as nodetool prints it.
fn list(sampler: &str, of: &str, answer: &Value, options: &TopOptions) -> String {
    let cardinality = answer.get(format!("{of}_cardinality")).and_then(Value::as_u64).unwrap_or(0);
    let capacity = options.capacity;
    let mut text = format!("{sampler} Sampler:\n  Cardinality: ~{cardinality} ({capacity} capacity)\n");
    text.push_str(&format!("  Top {} partitions:\n", options.top_count));
    let partitions = answer.get(of).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if partitions.is_empty() {
        text.push_str("\tNothing recorded during sampling period...\n");
        return text;
    }
    let name = |one: &Value| one.get("partition").and_then(Value::as_str).unwrap_or("?").to_owned();
    let number = |one: &Value, of: &str| one.get(of).and_then(Value::as_u64).unwrap_or(0);
    let width = partitions.iter().map(|one| name(one).chars().count()).max().unwrap_or(0).max(9);
    text.push_str(&format!("\t{:<width$}{:>10}{:>10}\n", "Partition", "Count", "+/-"));
    for one in partitions {
        let (count, error) = (number(one, "count"), number(one, "error"));
        text.push_str(&format!("\t{:<width$}{count:>10}{error:>10}\n", name(one)));
    }
    text
}

/// Prints the table files that have a partition.
pub(super) async fn files_with(
    api: &Api,
    (keyspace, table): (&str, &str),
    key: &str,
    is_hex: bool,
) -> Result<(), CtlError> {
    let name = escaped(&format!("{keyspace}:{table}"));
    let format = if is_hex { "&format=hex" } else { "" };
    let path = format!("/column_family/sstables/by_key/{name}?key={}{format}", escaped(key));
    for file in api.texts(&path).await? {
        print(&format!("{file}\n"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Parser)]
    struct Words {
        #[command(flatten)]
        top: TopOptions,
    }

    fn options(words: &str) -> Result<TopOptions, String> {
        let words = std::iter::once("toppartitions").chain(words.split_whitespace());
        Words::try_parse_from(words).map(|words| words.top).map_err(|error| error.to_string())
    }

    #[test]
    fn the_command_line_names_a_table_or_filters() {
        let path = |words: &str| options(words).unwrap().path().unwrap();
        let rest = "capacity=256&list_size=10";
        assert_eq!(path("ks t 100"), format!("/column_family/toppartitions/ks%3At?duration=100&{rest}"));
        assert_eq!(
            path("-d 100 --ks-filters a,b --cf-filters c:d"),
            format!(
                "/storage_service/toppartitions/?duration=100&{rest}&keyspace_filters=a,b&table_filters=c%3Ad"
            )
        );
        assert!(path("").contains("duration=5000"));
        assert!(path("ks t -d 7 -s 20 -k 20").contains("duration=7&capacity=20&list_size=20"));
        assert!(options("-k 20 -s 10").unwrap().path().is_err());
        for wrong in ["ks", "ks t 100 -d 100", "ks t --ks-filters a", "-a ALL", "-d soon"] {
            assert!(options(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lists_line_up() {
        let answer = json!({
            "read_cardinality": 2,
            "read": [{"partition": "a long key", "count": 100, "error": 0},
                     {"partition": "b", "count": 7, "error": 6}],
        });
        let text = list("READS", "read", &answer, &options("ks t").unwrap());
        let expected = "READS Sampler:\n  Cardinality: ~2 (256 capacity)\n  Top 10 partitions:\n\
            \tPartition      Count       +/-\n\ta long key       100         0\n\tb                  7         6\n";
        assert_eq!(text, expected);
        let none = list("WRITES", "write", &answer, &options("ks t").unwrap());
        assert!(none.ends_with("\tNothing recorded during sampling period...\n"), "{none}");
    }
}
