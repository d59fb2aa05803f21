//! The log of histograms: HdrHistogram's interval log, format 1.3.
//!
//! A line for each interval, kind of operation and clock (`-st` service, `-rt` response, `-wt` wait time),
//! its histogram compressed; HdrHistogram's own tools read it. Source: HdrHistogram's `HistogramLogWriter`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};

use super::interval::Interval;

/// Nanoseconds of a unit in which the log shows the greatest value: a millisecond.
const MAX_UNIT: f64 = 1_000_000.0;

/// Makes the lines of one run.
pub(in crate::stress) struct HistogramLog {
    serializer: V2DeflateSerializer,
    /// Milliseconds since 1970 from which the lines count.
    base_ms: i64,
    /// Milliseconds since 1970 at which the run began.
    begin_ms: i64,
    encoded: Vec<u8>,
}

impl HistogramLog {
    /// A log, and the lines it opens with. `wall_clock_us` is when the run begins.
    pub(in crate::stress) fn new(wall_clock_us: i64) -> (Self, Vec<String>) {
        let begin_ms = wall_clock_us / 1000;
        let base_ms = begin_ms - begin_ms.rem_euclid(1000);
        let seconds = base_ms / 1000;
        let date = jiff::Timestamp::from_second(seconds)
            .map_or_else(|_| String::new(), |time| time.strftime("%a %b %d %H:%M:%S UTC %Y").to_string());
        let opening = vec![
            "#Logging op latencies for Cassandra Stress".to_owned(),
            "#[Histogram log format version 1.3]".to_owned(),
            format!("#[BaseTime: {seconds}.000 (seconds since epoch)]"),
            format!("#[StartTime: {seconds}.000 (seconds since epoch), {date}]"),
            "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\""
                .to_owned(),
        ];
        let log = Self { serializer: V2DeflateSerializer::new(), base_ms, begin_ms, encoded: Vec::new() };
        (log, opening)
    }

    /// The lines of one kind's interval.
    pub(in crate::stress) fn lines(&mut self, name: &str, interval: &Interval) -> Vec<String> {
        let clocks = [("st", &interval.service), ("rt", &interval.response), ("wt", &interval.wait)];
        let mut lines = Vec::new();
        for (clock, histogram) in clocks {
            if !histogram.is_empty() {
                lines.extend(self.line(&format!("{name}-{clock}"), interval, histogram));
            }
        }
        lines
    }

    fn line(&mut self, tag: &str, interval: &Interval, histogram: &Histogram<u64>) -> Option<String> {
        self.encoded.clear();
        // Three digits of 64 bits are far below the format's limits.
        self.serializer.serialize(histogram, &mut self.encoded).ok()?;
        let start = (self.begin_ms - self.base_ms) as f64 / 1000.0 + interval.start_ns as f64 * 1e-9;
        let (length, max) = (interval.seconds(), histogram.max() as f64 / MAX_UNIT);
        let encoded = STANDARD.encode(&self.encoded);
        Some(format!("Tag={tag},{start:.3},{length:.3},{max:.3},{encoded}"))
    }
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::Deserializer;

    use super::*;

    #[test]
    fn the_log_is_one_that_hdr_histogram_reads() {
        let (mut log, opening) = HistogramLog::new(1_700_000_000_250_000);
        assert_eq!(opening[1], "#[Histogram log format version 1.3]");
        assert_eq!(opening[2], "#[BaseTime: 1700000000.000 (seconds since epoch)]");
        assert_eq!(
            opening[3],
            "#[StartTime: 1700000000.000 (seconds since epoch), Tue Nov 14 22:13:20 UTC 2023]"
        );
        let mut interval = Interval::new(false);
        interval.service.record(5_000_000).unwrap();
        (interval.start_ns, interval.end_ns) = (1_000_000_000, 2_000_000_000);
        let lines = log.lines("WRITE", &interval);
        assert_eq!(lines.len(), 1, "only clocks that ran");
        let fields: Vec<&str> = lines[0].splitn(5, ',').collect();
        assert_eq!(fields[..4], ["Tag=WRITE-st", "1.250", "1.000", "5.001"]);
        assert!(fields[4].starts_with("HISTFAAAA"), "{}", fields[4]);
        let bytes = STANDARD.decode(fields[4]).unwrap();
        let read: Histogram<u64> = Deserializer::new().deserialize(&mut &bytes[..]).unwrap();
        assert_eq!((read.len(), read.value_at_quantile(0.5)), (1, interval.service.value_at_quantile(0.5)));
    }
}
