//! Distributions of whole numbers: used by `-pop dist=`, `-col size=`, profiles and the generators.
//!
//! `[~]NAME(arguments)`, with numbers in k, m and b. Sampling reproduces the samples of cassandra-stress for
//! a seed, because partition keys, sizes and values are functions of them: the same generator, the same
//! formulas, the same rounding. Invariant: samples lie within the bounds, for every seed.

mod normal;
mod parse;

pub(super) use parse::{Factory, RatioFactory, bounds, number};

use super::random::JavaRandom;

/// Something to draw whole numbers from.
#[derive(Debug, Clone)]
pub(super) enum Distribution {
    /// Always the same.
    Fixed(i64),
    /// Real numbers of a law, truncated to whole ones and limited to the bounds.
    Bounded { law: Law, min: i64, max: i64, random: JavaRandom },
    /// Real numbers from 0 on, truncated, and counted from `min`.
    Offset { law: Law, min: i64, max: i64, random: JavaRandom },
    /// The wrapped one mirrored within its bounds.
    Inverted(Box<Distribution>),
    /// The wrapped distribution in steps of equal probability, with uniform numbers within each step.
    Quantized { wrapped: Box<Distribution>, bounds: Vec<i64>, random: JavaRandom },
}

/// A law of real numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Law {
    /// Between both.
    Uniform { lower: f64, upper: f64 },
    /// The normal distribution.
    Normal { mean: f64, deviation: f64 },
    /// The exponential distribution.
    Exponential { mean: f64 },
    /// The Weibull distribution.
    Weibull { shape: f64, scale: f64 },
}

/// Sums of ln(2)^k / k! (Ahrens and Dieter 1972, algorithm SA): as many as differ from 1 in double precision.
const EXPONENTIAL_SUMS: [f64; 16] = {
    let mut sums = [0.0; 16];
    let (mut power, mut sum, mut index) = (1.0, 0.0, 0);
    while index < sums.len() {
        power *= std::f64::consts::LN_2 / (index + 1) as f64;
        sum += power;
        sums[index] = sum;
        index += 1;
    }
    sums
};

impl Law {
    #[inline]
    fn sample(&self, random: &mut JavaRandom) -> f64 {
        match *self {
            Self::Uniform { lower, upper } => {
                let u = random.next_f64();
                u * upper + (1.0 - u) * lower
            }
            Self::Normal { mean, deviation } => deviation * random.next_gaussian() + mean,
            Self::Exponential { mean } => mean * exponential(random),
            Self::Weibull { .. } => self.quantile(random.next_f64()),
        }
    }

    /// The number below which a share `p` lies.
    fn quantile(&self, p: f64) -> f64 {
        match *self {
            Self::Uniform { lower, upper } => p * (upper - lower) + lower,
            Self::Normal { mean, deviation } => mean + deviation * normal::quantile(p),
            Self::Exponential { mean } if p < 1.0 => -mean * (1.0 - p).ln(),
            Self::Weibull { shape, scale } if p < 1.0 => scale * (-(1.0 - p).ln()).powf(1.0 / shape),
            Self::Exponential { .. } | Self::Weibull { .. } => f64::INFINITY,
        }
    }
}

/// Doublings tried before a random number is taken for 0, which would double for ever.
const DOUBLINGS_MAX: u32 = 1000;

/// A number of the exponential distribution with mean 1, by Ahrens' and Dieter's algorithm SA.
fn exponential(random: &mut JavaRandom) -> f64 {
    let sums = &EXPONENTIAL_SUMS;
    let mut a = 0.0;
    let mut u = random.next_f64();
    for _ in 0..DOUBLINGS_MAX {
        if u >= 0.5 {
            break;
        }
        a += sums[0];
        u *= 2.0;
    }
    u += u - 1.0;
    if u <= sums[0] {
        return a + u;
    }
    let mut least = random.next_f64();
    for sum in &sums[1..] {
        least = least.min(random.next_f64());
        if u <= *sum {
            break;
        }
    }
    a + least * sums[0]
}

impl Distribution {
    pub(super) fn set_seed(&mut self, seed: i64) {
        match self {
            Self::Fixed(_) => {}
            Self::Bounded { random, .. } | Self::Offset { random, .. } => random.set_seed(seed),
            Self::Inverted(wrapped) | Self::Quantized { wrapped, .. } => wrapped.set_seed(seed),
        }
    }

    /// The next number.
    #[inline]
    pub(super) fn next(&mut self) -> i64 {
        match self {
            Self::Fixed(value) => *value,
            Self::Bounded { law, min, max, random } => (law.sample(random) as i64).clamp(*min, *max),
            Self::Offset { law, min, max, random } => {
                *min + (law.sample(random) as i64).clamp(0, *max - *min)
            }
            Self::Inverted(wrapped) => {
                let (min, max) = (wrapped.min(), wrapped.max());
                max - (wrapped.next() - min)
            }
            Self::Quantized { wrapped, bounds, random } => {
                let quantum = quantum(bounds, wrapped.next());
                let (low, high) = (bounds[quantum], bounds[quantum + 1]);
                low + (random.next_f64() * (high - low) as f64) as i64
            }
        }
    }

    /// The next number before it is cut to a whole one; quantized distributions have only whole ones.
    pub(super) fn next_f64(&mut self) -> f64 {
        match self {
            Self::Fixed(value) => *value as f64,
            Self::Bounded { law, min, max, random } => law.sample(random).clamp(*min as f64, *max as f64),
            Self::Offset { law, min, max, random } => {
                *min as f64 + law.sample(random).clamp(0.0, (*max - *min) as f64)
            }
            Self::Inverted(wrapped) => {
                let (min, max) = (wrapped.min() as f64, wrapped.max() as f64);
                max - (wrapped.next_f64() - min)
            }
            Self::Quantized { .. } => self.next() as f64,
        }
    }

    /// The number below which a share `p` lies.
    pub(super) fn quantile(&self, p: f64) -> i64 {
        match self {
            Self::Fixed(value) => *value,
            Self::Bounded { law, min, max, .. } => (law.quantile(p) as i64).clamp(*min, *max),
            Self::Offset { law, min, max, .. } => min + (law.quantile(p) as i64).clamp(0, max - min),
            Self::Inverted(wrapped) => wrapped.max() - (wrapped.quantile(p) - wrapped.min()),
            Self::Quantized { wrapped, bounds, .. } => {
                let quanta = (bounds.len() - 1) as f64;
                let quantum = quantum(bounds, wrapped.quantile(p));
                let (low, high) = (bounds[quantum], bounds[quantum + 1]);
                let within = (p - quantum as f64 / quanta) * quanta;
                (low + (within * (high - low) as f64) as i64).clamp(self.min(), self.max())
            }
        }
    }

    /// The least number there is.
    pub(super) fn min(&self) -> i64 {
        match self {
            Self::Fixed(value) => *value,
            Self::Bounded { min, .. } | Self::Offset { min, .. } => *min,
            Self::Inverted(wrapped) => wrapped.max() - (wrapped.max() - wrapped.min()),
            Self::Quantized { bounds, .. } => bounds[0],
        }
    }

    /// The greatest number there is.
    pub(super) fn max(&self) -> i64 {
        match self {
            Self::Fixed(value) => *value,
            Self::Bounded { max, .. } | Self::Offset { max, .. } => *max,
            Self::Inverted(wrapped) => wrapped.max(),
            Self::Quantized { bounds, .. } => bounds[bounds.len() - 1] - 1,
        }
    }

    /// About the mean, as positions within a partition are counted: over steps of 0.02 in single precision.
    pub(super) fn average(&self) -> i64 {
        let (mut sum, mut count, mut p) = (0.0, 0.0, 0.0_f32);
        while f64::from(p) <= 1.0 {
            sum += self.quantile(f64::from(p)) as f64;
            count += 1.0;
            p = (f64::from(p) + 0.02) as f32;
        }
        (sum / count) as i64
    }
}

/// Which step of `bounds` holds `value`.
fn quantum(bounds: &[i64], value: i64) -> usize {
    bounds[1..bounds.len() - 1].partition_point(|bound| *bound < value)
}

/// A share of something.
#[derive(Debug, Clone)]
pub(super) struct Ratio {
    distribution: Distribution,
    divisor: f64,
}

impl Ratio {
    /// The next share, in 0..=1.
    pub(super) fn next(&mut self) -> f64 {
        (self.distribution.next_f64() / self.divisor).clamp(0.0, 1.0)
    }

    pub(super) fn min(&self) -> f64 {
        (self.distribution.min() as f64 / self.divisor).min(1.0)
    }

    pub(super) fn max(&self) -> f64 {
        (self.distribution.max() as f64 / self.divisor).min(1.0)
    }

    /// Whether the ratio is always the whole.
    pub(super) fn is_whole(&self) -> bool {
        self.min() >= 1.0
    }
}

#[cfg(test)]
mod tests;
