//! Reads distributions and ratios from the command line and from profiles.

use super::{Distribution, Law, Ratio};
use crate::stress::StressError;
use crate::stress::random::JavaRandom;

/// Most steps of a quantized distribution.
const QUANTA_MAX: usize = 1 << 20;

/// A distribution as written, from which any number of equal ones are made.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::stress) struct Factory {
    shape: Shape,
    inverted: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Shape {
    Fixed(i64),
    Uniform { min: i64, max: i64 },
    Gaussian { min: i64, max: i64, mean: f64, deviation: f64 },
    Exponential { min: i64, max: i64, mean: f64 },
    Extreme { min: i64, max: i64, shape: f64, scale: f64 },
    Quantized { min: i64, max: i64, shape: f64, scale: f64, quanta: usize },
}

/// A whole number with an optional k, m or b.
pub(in crate::stress) fn number(text: &str) -> Option<i64> {
    let text = text.trim();
    let multiplier = match text.as_bytes().last()?.to_ascii_lowercase() {
        b'b' => 1_000_000_000,
        b'm' => 1_000_000,
        b'k' => 1_000,
        _ => 1,
    };
    let digits = if multiplier == 1 { text } else { &text[..text.len() - 1] };
    digits.parse::<i64>().ok()?.checked_mul(multiplier)
}

/// `min..max`.
pub(in crate::stress) fn bounds(text: &str) -> Option<(i64, i64)> {
    let (min, max) = text.split_once("..")?;
    let (min, max) = (number(min)?, number(max.trim_start_matches('.'))?);
    // The width of a range and its upper end plus one are computed with.
    (min <= max && max < i64::MAX && max.checked_sub(min).is_some()).then_some((min, max))
}

impl Factory {
    /// Always `value`.
    pub(in crate::stress) fn fixed(value: i64) -> Self {
        Self { shape: Shape::Fixed(value), inverted: false }
    }

    /// Every number of a range as likely.
    pub(in crate::stress) fn uniform(min: i64, max: i64) -> Self {
        Self { shape: Shape::Uniform { min, max }, inverted: false }
    }

    /// Reads `[~]NAME(arguments)`.
    ///
    /// # Errors
    /// [`StressError::Usage`] in the words of cassandra-stress.
    pub(in crate::stress) fn parse(text: &str) -> Result<Self, StressError> {
        let illegal = || StressError::Usage(format!("Illegal distribution specification: {text}"));
        let (inverted, rest) = match text.strip_prefix('~') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (name, rest) = rest.split_once('(').ok_or_else(illegal)?;
        let arguments = rest.strip_suffix(')').ok_or_else(illegal)?;
        if name.is_empty() || arguments.is_empty() || !name.bytes().all(|b| b.is_ascii_alphabetic()) {
            return Err(illegal());
        }
        let arguments: Vec<&str> = arguments.split(',').filter(|text| !text.is_empty()).collect();
        type Reader = fn(&[&str]) -> Option<Shape>;
        let (kind, counts, reader): (_, _, Reader) = match &*name.to_ascii_lowercase() {
            "exp" => ("gaussian", 1..=1, exponential),
            "extr" | "extreme" | "weibull" => ("extreme (Weibull)", 2..=2, extreme),
            "qextr" | "qextreme" => ("quantized extreme (Weibull)", 3..=3, quantized),
            "gaussian" | "normal" | "gauss" | "norm" => ("gaussian", 1..=3, gaussian),
            "uniform" => ("uniform", 1..=1, uniform),
            "fixed" => ("uniform", 1..=1, |arguments| Some(Shape::Fixed(number(arguments[0])?))),
            _ => return Err(StressError::Usage(format!("Illegal distribution type: {name}"))),
        };
        let invalid = |kind: &str| {
            let list = arguments.join(", ");
            StressError::Usage(format!("Invalid parameter list for {kind} distribution: [{list}]"))
        };
        if !counts.contains(&arguments.len()) {
            return Err(invalid(kind));
        }
        // The original reports errors in the arguments of most laws under the name "uniform".
        let kind = if kind.contains("extreme") { kind } else { "uniform" };
        let shape = reader(&arguments).ok_or_else(|| invalid(kind))?;
        Ok(Self { shape, inverted })
    }

    /// A distribution, with a seed that matters only if no other one is set.
    pub(in crate::stress) fn build(&self, seed: i64) -> Distribution {
        let random = JavaRandom::new(seed);
        let distribution = match self.shape {
            Shape::Fixed(value) => Distribution::Fixed(value),
            Shape::Uniform { min, max } => {
                let law = Law::Uniform { lower: min as f64, upper: (max + 1) as f64 };
                Distribution::Bounded { law, min, max, random }
            }
            Shape::Gaussian { min, max, mean, deviation } => {
                Distribution::Bounded { law: Law::Normal { mean, deviation }, min, max, random }
            }
            Shape::Exponential { min, max, mean } => {
                Distribution::Offset { law: Law::Exponential { mean }, min, max, random }
            }
            Shape::Extreme { min, max, shape, scale } => {
                Distribution::Offset { law: Law::Weibull { shape, scale }, min, max, random }
            }
            Shape::Quantized { min, max, shape, scale, quanta } => {
                let law = Law::Weibull { shape, scale };
                let wrapped = Distribution::Offset { law, min, max, random: random.clone() };
                let mut bounds = vec![min];
                bounds.extend((1..quanta).map(|step| wrapped.quantile(step as f64 / quanta as f64)));
                bounds.push(max + 1);
                Distribution::Quantized { wrapped: Box::new(wrapped), bounds, random }
            }
        };
        if self.inverted { Distribution::Inverted(Box::new(distribution)) } else { distribution }
    }

    /// As the settings are printed.
    pub(in crate::stress) fn describe(&self) -> String {
        let text = match self.shape {
            Shape::Fixed(key) => format!("Fixed:  key={key}"),
            Shape::Uniform { min, max } => format!("Uniform:  min={min},max={max}"),
            Shape::Gaussian { min, max, mean, deviation } => {
                format!("Gaussian:  min={min},max={max},mean={mean:.6},stdev={deviation:.6}")
            }
            Shape::Exponential { min, max, mean } => {
                format!("Exponential:  min={min},max={max},mean={mean:.6}")
            }
            Shape::Extreme { min, max, shape, scale } => {
                format!("Extreme:  min={min},max={max},shape={shape:.6}, scale={scale:.6}")
            }
            Shape::Quantized { min, max, shape, scale, quanta } => {
                format!(
                    "QuantizedExtreme:  min={min},max={max},shape={shape:.6}, scale={scale:.6}, quantas={quanta}"
                )
            }
        };
        if self.inverted { format!("Inverse: {text}") } else { text }
    }
}

fn uniform(arguments: &[&str]) -> Option<Shape> {
    let (min, max) = bounds(arguments[0])?;
    Some(if min == max { Shape::Fixed(min) } else { Shape::Uniform { min, max } })
}

fn gaussian(arguments: &[&str]) -> Option<Shape> {
    let (min, max) = bounds(arguments[0])?;
    let real = |index: usize| arguments.get(index)?.trim().parse::<f64>().ok();
    let (mean, deviation) = if arguments.len() == 3 {
        (real(1)?, real(2)?)
    } else {
        let deviations_to_edge = if arguments.len() == 1 { 3.0 } else { real(1)? };
        ((min as f64 + max as f64) / 2.0, (max - min) as f64 / 2.0 / deviations_to_edge)
    };
    if min == max {
        return Some(Shape::Fixed(min));
    }
    let is_law = mean.is_finite() && deviation.is_finite() && deviation > 0.0;
    is_law.then_some(Shape::Gaussian { min, max, mean, deviation })
}

/// The share above which the laws' tails are cut: every number of the range is to be drawn now and then, but
/// the root of that chance keeps the law from being squeezed to its first numbers.
fn edge(min: i64, max: i64) -> f64 {
    1.0 - (1.0 / (max - min) as f64).sqrt()
}

fn exponential(arguments: &[&str]) -> Option<Shape> {
    let (min, max) = bounds(arguments[0])?;
    if min == max {
        return Some(Shape::Fixed(min));
    }
    let mean = (max - min) as f64 / Law::Exponential { mean: 1.0 }.quantile(edge(min, max));
    Some(Shape::Exponential { min, max, mean })
}

fn extreme(arguments: &[&str]) -> Option<Shape> {
    let (min, max) = bounds(arguments[0])?;
    if min == max {
        return Some(Shape::Fixed(min));
    }
    let shape: f64 = arguments[1].trim().parse().ok()?;
    if !(shape.is_finite() && shape > 0.0) {
        return None;
    }
    let scale = (max - min) as f64 / Law::Weibull { shape, scale: 1.0 }.quantile(edge(min, max));
    Some(Shape::Extreme { min, max, shape, scale })
}

fn quantized(arguments: &[&str]) -> Option<Shape> {
    let quanta: usize = arguments[2].trim().parse().ok()?;
    match extreme(&arguments[..2])? {
        Shape::Extreme { min, max, shape, scale } if (1..=QUANTA_MAX).contains(&quanta) => {
            Some(Shape::Quantized { min, max, shape, scale, quanta })
        }
        Shape::Fixed(value) => Some(Shape::Fixed(value)),
        _ => None,
    }
}

/// A ratio as written: a distribution, a slash, a divisor.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::stress) struct RatioFactory {
    factory: Factory,
    divisor: i64,
}

impl RatioFactory {
    /// Reads `DISTRIBUTION/divisor`.
    ///
    /// # Errors
    /// [`StressError::Usage`].
    pub(in crate::stress) fn parse(text: &str) -> Result<Self, StressError> {
        let parts = text.rsplit_once('/').and_then(|(left, right)| Some((left, number(right)?)));
        match parts {
            Some((left, divisor)) if divisor > 0 => Ok(Self { factory: Factory::parse(left)?, divisor }),
            _ => Err(StressError::Usage(format!("Invalid ratio definition: {text}"))),
        }
    }

    pub(in crate::stress) fn build(&self, seed: i64) -> Ratio {
        Ratio { distribution: self.factory.build(seed), divisor: self.divisor as f64 }
    }

    pub(in crate::stress) fn describe(&self) -> String {
        format!("Ratio: divisor={:.6};delegate={}", self.divisor as f64, self.factory.describe())
    }
}
