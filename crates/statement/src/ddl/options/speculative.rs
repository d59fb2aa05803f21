//! Policies of `speculative_retry` and `additional_write_policy` (Cassandra's `SpeculativeRetryPolicy`),
//! brought to the one spelling that clients see: `99p`, `50ms`, `MIN(99p,50ms)`, `ALWAYS`, `NEVER`.

use super::super::properties::parse_double;
use super::config;
use crate::StatementError;

enum Policy {
    Percentile(String),
    Fixed(String),
}

/// Reads a policy.
pub(super) fn read(text: &str) -> Result<String, StatementError> {
    let lower = text.to_lowercase();
    match lower.as_str() {
        "always" => return Ok("ALWAYS".to_owned()),
        "never" | "none" => return Ok("NEVER".to_owned()),
        _ => {}
    }
    match simple(text)? {
        Some(Policy::Percentile(policy) | Policy::Fixed(policy)) => Ok(policy),
        None => hybrid(text, &lower),
    }
}

/// `99p`, `99percentile`, `50ms`; `None` for another shape.
fn simple(text: &str) -> Result<Option<Policy>, StatementError> {
    let lower = text.to_lowercase();
    let is_number =
        |number: &str| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if let Some(number) = lower.strip_suffix("percentile").or_else(|| lower.strip_suffix('p'))
        && is_number(number)
    {
        let percentile = parse_double(number).ok_or_else(|| invalid_value(text))?;
        if percentile <= 0.0 || percentile >= 100.0 {
            return Err(config(format!(
                "Invalid value {text} for PERCENTILE option 'speculative_retry': must be between (0.0 and 100.0)"
            )));
        }
        return Ok(Some(Policy::Percentile(format!("{}p", four_places(percentile)))));
    }
    if let Some(number) = lower.strip_suffix("ms")
        && is_number(number)
    {
        let ms = parse_double(number).ok_or_else(|| invalid_value(text))?;
        // Whole milliseconds, cut as a narrowing conversion cuts them.
        return Ok(Some(Policy::Fixed(format!("{}ms", ms as i32))));
    }
    Ok(None)
}

/// `MIN(99p, 50ms)` and its mirror images.
fn hybrid(text: &str, lower: &str) -> Result<String, StatementError> {
    let (function, rest) = if let Some(rest) = lower.strip_prefix("min(") {
        ("MIN", rest)
    } else if let Some(rest) = lower.strip_prefix("max(") {
        ("MAX", rest)
    } else {
        return Err(invalid_value(text));
    };
    let (first, second) = rest
        .strip_suffix(')')
        .and_then(|arguments| arguments.split_once(','))
        .ok_or_else(|| invalid_value(text))?;
    let argument = |argument: &str| match simple(argument) {
        Ok(Some(policy)) => Ok(policy),
        _ => Err(invalid_value(text)),
    };
    match (argument(first.trim_end())?, argument(second.trim_start())?) {
        (Policy::Percentile(percentile), Policy::Fixed(fixed))
        | (Policy::Fixed(fixed), Policy::Percentile(percentile)) => {
            Ok(format!("{function}({percentile},{fixed})"))
        }
        (first, _) => Err(config(format!(
            "Invalid value {text} for option 'speculative_retry': MIN()/MAX() arguments should be of different \
             types, but both are of type {}",
            if matches!(first, Policy::Percentile(_)) { "PERCENTILE" } else { "FIXED" }
        ))),
    }
}

/// At most four digits behind the point, none that is a zero at the end.
fn four_places(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn invalid_value(text: &str) -> StatementError {
    config(format!("Invalid value {text} for option 'speculative_retry'"))
}
