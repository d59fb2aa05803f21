//! The policies of the table option `speculative_retry`, as Cassandra's `SpeculativeRetryPolicy` has them.
//!
//! DDL stores one spelling of each (`99p`, `50ms`, `MIN(99p,50ms)`, `ALWAYS`, `NEVER`); a schema taken over
//! from Cassandra's files may have its other spellings.

use std::time::Duration;

use super::Retry;

/// When a read of the table asks one more replica.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Policy {
    Never,
    Always,
    /// After so long.
    Fixed(Duration),
    /// After the time in which this per cent of reads ended.
    Percentile(f64),
    /// After the shorter of both.
    Min(f64, Duration),
    /// After the longer of both.
    Max(f64, Duration),
}

impl Policy {
    /// Cassandra's default.
    pub(super) const DEFAULT: Self = Self::Percentile(99.0);

    /// Reads a policy; `None` for another text.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim().to_ascii_lowercase();
        match text.as_str() {
            "always" => return Some(Self::Always),
            "never" | "none" => return Some(Self::Never),
            _ => {}
        }
        let both = |arguments: &str| {
            let (first, second) = arguments.strip_suffix(')')?.split_once(',')?;
            match (Self::simple(first.trim())?, Self::simple(second.trim())?) {
                (Self::Percentile(percentile), Self::Fixed(time))
                | (Self::Fixed(time), Self::Percentile(percentile)) => Some((percentile, time)),
                _ => None,
            }
        };
        if let Some(arguments) = text.strip_prefix("min(") {
            return both(arguments).map(|(percentile, time)| Self::Min(percentile, time));
        }
        if let Some(arguments) = text.strip_prefix("max(") {
            return both(arguments).map(|(percentile, time)| Self::Max(percentile, time));
        }
        Self::simple(&text)
    }

    /// Reads a percentile or a time.
    fn simple(text: &str) -> Option<Self> {
        if let Some(number) = text.strip_suffix("ms") {
            let time = Duration::try_from_secs_f64(number.parse::<f64>().ok()? / 1e3).ok()?;
            return Some(Self::Fixed(time));
        }
        let number = text.strip_suffix("percentile").or_else(|| text.strip_suffix('p'))?;
        let percentile: f64 = number.parse().ok()?;
        (percentile > 0.0 && percentile < 100.0).then_some(Self::Percentile(percentile))
    }

    /// The percentile of reads' times that it goes by.
    pub(super) fn percentile(self) -> Option<f64> {
        match self {
            Self::Percentile(percentile) | Self::Min(percentile, _) | Self::Max(percentile, _) => {
                Some(percentile)
            }
            Self::Never | Self::Always | Self::Fixed(_) => None,
        }
    }

    /// When a read asks one more replica; `at_percentile` is the time of its percentile.
    pub(super) fn retry(self, at_percentile: Duration) -> Retry {
        match self {
            Self::Never => Retry::Never,
            Self::Always => Retry::AtOnce,
            Self::Fixed(time) => Retry::After(time),
            Self::Percentile(_) => Retry::After(at_percentile),
            Self::Min(_, time) => Retry::After(time.min(at_percentile)),
            Self::Max(_, time) => Retry::After(time.max(at_percentile)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<Policy>) {
        assert_eq!(Policy::parse(text), expected, "{text}");
    }

    #[test]
    fn policies_are_cassandras() {
        let ms = Duration::from_millis;
        check("99p", Some(Policy::DEFAULT));
        check("99.9PERCENTILE", Some(Policy::Percentile(99.9)));
        check("50ms", Some(Policy::Fixed(ms(50))));
        check("MIN(99p,50ms)", Some(Policy::Min(99.0, ms(50))));
        check("max( 10ms , 99.5p )", Some(Policy::Max(99.5, ms(10))));
        check("ALWAYS", Some(Policy::Always));
        check("NEVER", Some(Policy::Never));
        check("none", Some(Policy::Never));
        for text in
            ["", "p", "ms", "100p", "0p", "NaNp", "-1ms", "MIN(1ms,2ms)", "MIN(99p,1ms", "custom", "1e400ms"]
        {
            check(text, None);
        }
    }

    #[test]
    fn bounds_hold_on_both_sides_of_the_percentile() {
        let ms = Duration::from_millis;
        for (text, measured, expected) in [
            ("MIN(99p,50ms)", 80, 50),
            ("MIN(99p,50ms)", 20, 20),
            ("MAX(99p,50ms)", 80, 80),
            ("MAX(99p,50ms)", 20, 50),
            ("99p", 20, 20),
            ("50ms", 20, 50),
        ] {
            let policy = Policy::parse(text).expect("a policy");
            assert_eq!(policy.retry(ms(measured)), Retry::After(ms(expected)), "{text} of {measured} ms");
        }
    }
}
