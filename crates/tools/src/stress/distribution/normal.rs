//! Quantiles of the standard normal distribution.
//!
//! Used a few dozen times in a run (bounds, averages, `print`), never per operation: exactness before speed.

/// Steps of the bisection: from ±40 down to less than one part in 2^52.
const STEPS: u32 = 64;

/// The number below which a share `p` lies; infinite at 0 and 1.
pub(super) fn quantile(p: f64) -> f64 {
    if p <= 0.0 {
        return f64::NEG_INFINITY;
    }
    if p >= 1.0 {
        return f64::INFINITY;
    }
    let (mut low, mut high) = (-40.0_f64, 40.0_f64);
    for _ in 0..STEPS {
        let middle = low + (high - low) / 2.0;
        if below(middle) < p { low = middle } else { high = middle }
    }
    low + (high - low) / 2.0
}

/// The share below `x`.
fn below(x: f64) -> f64 {
    let t = x.abs() / std::f64::consts::SQRT_2;
    let outside = if t < 3.0 { 1.0 - error_series(t) } else { error_tail(t) };
    if x < 0.0 { outside / 2.0 } else { 1.0 - outside / 2.0 }
}

/// erf(t) by its Taylor series, for t up to 3.
fn error_series(t: f64) -> f64 {
    let (mut term, mut sum) = (t, t);
    for n in 1..100_u32 {
        term *= -t * t / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

/// 1 - erf(t) by its continued fraction, for t from 3 on.
fn error_tail(t: f64) -> f64 {
    let fraction = (1..60_u32).rev().fold(t, |below, k| t + f64::from(k) / 2.0 / below);
    (-t * t).exp() / fraction / std::f64::consts::PI.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        let check = |p: f64, expected: f64| {
            assert!((quantile(p) - expected).abs() < 1e-9, "{p}: {} {expected}", quantile(p));
        };
        check(0.5, 0.0);
        check(0.975, 1.959_963_984_540_054);
        check(0.025, -1.959_963_984_540_054);
        check(0.999_999, 4.753_424_308_822_899);
        assert_eq!(quantile(1.0), f64::INFINITY);
        assert_eq!(quantile(0.0), f64::NEG_INFINITY);
    }
}
