//! The lines of progress and of the summary, column by column as the original prints them.

use std::collections::BTreeMap;

use super::interval::{Interval, Uncertainty};

/// The header over the rows of progress.
pub(in crate::stress) const HEADER: &str = concat!(
    "type                                               total ops,    op/s,    pk/s,   row/s,    mean,     med,     .95,",
    "     .99,    .999,     max,   time,   stderr, errors,  gc: #,  max ms,  sum ms,  sdv ms,      mb"
);

/// A whole number with commas between thousands.
pub(in crate::stress) fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    if number < 0 {
        text.push('-');
    }
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A real number with commas between thousands, as Java writes one.
fn grouped_real(number: f64, decimals: usize) -> String {
    if !number.is_finite() {
        return java_name(number).to_owned();
    }
    let text = format!("{:.decimals$}", number.abs());
    let (whole, fraction) = text.split_once('.').map_or((&*text, None), |(w, f)| (w, Some(f)));
    let sign = if number < 0.0 { "-" } else { "" };
    let whole = grouped(whole.parse().unwrap_or(i64::MAX));
    fraction.map_or_else(|| format!("{sign}{whole}"), |fraction| format!("{sign}{whole}.{fraction}"))
}

fn java_name(number: f64) -> &'static str {
    if number.is_nan() {
        "NaN"
    } else if number > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    }
}

fn real(number: f64, width: usize, decimals: usize) -> String {
    if number.is_finite() {
        format!("{number:width$.decimals$}")
    } else {
        format!("{:>width$}", java_name(number))
    }
}

/// One line of progress: an interval, and the totals so far.
pub(in crate::stress) fn row(
    name: &str,
    interval: &Interval,
    total: &Interval,
    uncertainty: &Uncertainty,
) -> String {
    let rate = |number: f64| real(number, 8, 0);
    let latency = |number: f64| real(number, 8, 1);
    format!(
        "{:<50}{:>10},{},{},{},{},{},{},{},{},{},{},{},{:>7},{:>7},{:>8},{:>8},{:>8},{:>8}",
        format!("{name},"),
        total.operations(),
        rate(interval.operation_rate()),
        rate(interval.partition_rate()),
        rate(interval.row_rate()),
        latency(interval.mean_ms()),
        latency(interval.quantile_ms(0.5)),
        latency(interval.quantile_ms(0.95)),
        latency(interval.quantile_ms(0.99)),
        latency(interval.quantile_ms(0.999)),
        latency(interval.max_ms()),
        real(total.seconds(), 7, 1),
        real(uncertainty.value, 9, 5),
        interval.errors,
        0,
        0,
        0,
        0,
        0,
    )
}

/// The summary of a run, kind by kind in order of their names.
pub(in crate::stress) fn summary(total: &Interval, kinds: &BTreeMap<String, Interval>) -> Vec<String> {
    let each = |unit: &str, show: &dyn Fn(&Interval) -> String| {
        let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
        let shown: Vec<_> =
            kinds.iter().map(|(name, kind)| format!("{name}: {}{unit}", show(kind))).collect();
        format!("[{}]", shown.join(", "))
    };
    let mut lines = vec!["\n".to_owned(), "Results:".to_owned()];
    let mut rate = |label: &str, unit: &str, space: &str, of: &dyn Fn(&Interval) -> f64| {
        let kinds = each(unit, &|kind| grouped_real(of(kind), 0));
        lines.push(format!("{label:<26}: {:>8} {unit}{space}{kinds}", grouped_real(of(total), 0)));
    };
    rate("Op rate", "op/s", "  ", &Interval::operation_rate);
    rate("Partition rate", "pk/s", "  ", &Interval::partition_rate);
    rate("Row rate", "row/s", " ", &Interval::row_rate);
    let mut latency = |label: &str, of: &dyn Fn(&Interval) -> f64| {
        let kinds = each("ms", &|kind| grouped_real(of(kind), 1));
        lines.push(format!("{label:<26}: {} ms {kinds}", real(of(total), 6, 1)));
    };
    latency("Latency mean", &Interval::mean_ms);
    latency("Latency median", &|kind| kind.quantile_ms(0.5));
    latency("Latency 95th percentile", &|kind| kind.quantile_ms(0.95));
    latency("Latency 99th percentile", &|kind| kind.quantile_ms(0.99));
    latency("Latency 99.9th percentile", &|kind| kind.quantile_ms(0.999));
    latency("Latency max", &Interval::max_ms);
    let mut count = |label: &str, of: &dyn Fn(&Interval) -> u64| {
        let kinds = each("", &|kind| grouped(of(kind) as i64));
        lines.push(format!("{label:<26}: {:>10} {kinds}", grouped(of(total) as i64)));
    };
    count("Total partitions", &|kind| kind.partitions);
    count("Total errors", &|kind| kind.errors);
    lines.push("Total GC count            : 0".to_owned());
    lines.push("Total GC memory           : 0 B".to_owned());
    lines.push("Total GC time             :    0.0 seconds".to_owned());
    lines.push("Avg GC time               :    NaN ms".to_owned());
    lines.push("StdDev GC time            :    0.0 ms".to_owned());
    let seconds = total.seconds() as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    lines.push(format!("Total operation time      : {hours:02}:{minutes:02}:{seconds:02}"));
    lines.push(String::new());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval() -> Interval {
        let mut interval = Interval::new(false);
        for _ in 0..10_690 {
            interval.service.record(3_700_000).unwrap();
        }
        (interval.partitions, interval.rows) = (10_690, 10_690);
        (interval.start_ns, interval.end_ns) = (0, 1_000_000_000);
        interval
    }

    #[test]
    fn rows_stand_under_their_header() {
        let line = row("total", &interval(), &interval(), &Uncertainty::default());
        assert_eq!(
            line,
            "total,                                                 10690,   10690,   10690,   10690,     3.7,     3.7,\
             \u{20}    3.7,     3.7,     3.7,     3.7,    1.0,  0.00000,      0,      0,       0,       0,       0,\
             \u{20}      0"
        );
        assert_eq!(line.len(), HEADER.len());
        assert_eq!(line.matches(',').count(), HEADER.matches(',').count() + 1, "the name ends in a comma");
    }

    #[test]
    fn the_summary_reads_as_the_original_one() {
        let lines = summary(&interval(), &BTreeMap::from([("WRITE".to_owned(), interval())]));
        let expected = [
            "\n",
            "Results:",
            "Op rate                   :   10,690 op/s  [WRITE: 10,690 op/s]",
            "Partition rate            :   10,690 pk/s  [WRITE: 10,690 pk/s]",
            "Row rate                  :   10,690 row/s [WRITE: 10,690 row/s]",
            "Latency mean              :    3.7 ms [WRITE: 3.7 ms]",
            "Latency median            :    3.7 ms [WRITE: 3.7 ms]",
            "Latency 95th percentile   :    3.7 ms [WRITE: 3.7 ms]",
            "Latency 99th percentile   :    3.7 ms [WRITE: 3.7 ms]",
            "Latency 99.9th percentile :    3.7 ms [WRITE: 3.7 ms]",
            "Latency max               :    3.7 ms [WRITE: 3.7 ms]",
            "Total partitions          :     10,690 [WRITE: 10,690]",
            "Total errors              :          0 [WRITE: 0]",
            "Total GC count            : 0",
            "Total GC memory           : 0 B",
            "Total GC time             :    0.0 seconds",
            "Avg GC time               :    NaN ms",
            "StdDev GC time            :    0.0 ms",
            "Total operation time      : 00:00:01",
            "",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn numbers_are_written_as_java_writes_them() {
        let check = |number: i64, expected: &str| assert_eq!(grouped(number), expected);
        check(0, "0");
        check(999, "999");
        check(-1000, "-1,000");
        check(1_234_567, "1,234,567");
        assert_eq!(grouped_real(f64::NAN, 1), "NaN");
        assert_eq!(grouped_real(1234.56, 1), "1,234.6");
        assert_eq!(real(f64::INFINITY, 9, 5), " Infinity");
    }
}
