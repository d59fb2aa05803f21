//! Floating-point numbers as cqlsh shows them: as C's `%g` prints them, with some digits behind the point.

/// The number with `digits` significant digits, or with as many behind the point if it is printed without an
/// exponent. Source: `format_floating_point_type` of cqlsh.
pub(super) fn rounded(value: f64, digits: usize) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    // Below the smallest step from one, cqlsh does not look at the exponent.
    let exponent = if value.abs() > f64::EPSILON { value.abs().log10().trunc() } else { f64::MIN };
    let is_plain = (-4.0..digits as f64).contains(&exponent);
    let digits = if is_plain { (digits as f64 + exponent + 1.0).max(1.0) as usize } else { digits };
    general(value, digits)
}

/// `%.{digits}g`
fn general(value: f64, digits: usize) -> String {
    let digits = digits.max(1);
    let scientific = format!("{value:.*e}", digits - 1);
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let limit = i32::try_from(digits).unwrap_or(i32::MAX);
    if (-4..limit).contains(&exponent) {
        let behind = usize::try_from(limit - 1 - exponent).unwrap_or(0);
        return without_zeros(&format!("{value:.behind$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs())
}

fn without_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_cqlsh() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.5, "1.5"),
            (0.1, "0.1"),
            (1.0 / 3.0, "0.333333"),
            (123_456.789_012, "1.2346e+05"),
            (12_345.678_912, "12345.67891"),
            (99_999.999_999, "100000"),
            (1e-5, "1e-05"),
            (1.234_567e-4, "0.000123"),
            (1e300, "1e+300"),
            (-2.5e-20, "-2.5e-20"),
            (1e-17, "1e-17"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
            (f64::from(16_777_216.0_f32), "1.6777e+07"),
            (f64::from(2.345_678_9_f32), "2.34568"),
        ] {
            assert_eq!(rounded(value, 5), expected, "{value:e}");
        }
    }
}
