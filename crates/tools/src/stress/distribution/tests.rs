//! Draws of each distribution, held to Cassandra's for the same seed.

use super::*;

fn drawn(text: &str, seed: i64, count: usize) -> Vec<i64> {
    let mut distribution = Factory::parse(text).unwrap().build(0);
    distribution.set_seed(seed);
    (0..count).map(|_| distribution.next()).collect()
}

/// Drawn in Java from commons-math 3.2, which cassandra-stress uses, seeded with 42.
#[test]
fn draws_are_those_of_the_original() {
    let check = |text: &str, expected: [i64; 8]| assert_eq!(drawn(text, 42, 8), expected, "{text}");
    check("uniform(1..1000)", [728, 684, 309, 278, 666, 904, 369, 276]);
    let gaussian = [690_317, 653_235, 341_689, 315_502, 546_830, 614_104, 363_797, 267_226];
    check("gaussian(1..1M)", gaussian);
    check("NORM(1..1000K,3)", gaussian);
    check(
        "gauss(1..10000000,5000000,500000)",
        [5_570_952, 5_459_703, 4_525_066, 4_446_504, 5_140_488, 5_342_311, 4_591_389, 4_301_678],
    );
    check("exp(1..1000)", [132, 107, 269, 232, 96, 56, 358, 279]);
    check("extreme(1..1000,0.6)", [197, 160, 25, 20, 148, 522, 35, 20]);
    check("extr(1..1m,2)", [433_872, 407_941, 231_190, 216_725, 398_191, 581_635, 258_084, 216_110]);
    check("fixed(34)", [34; 8]);
    check("uniform(5..5)", [5; 8]);
}

#[test]
fn inverting_mirrors_within_the_bounds() {
    let plain = drawn("exp(1..1000)", 42, 100);
    let mirrored = drawn("~exp(1..1000)", 42, 100);
    assert!(plain.iter().zip(&mirrored).all(|(a, b)| a + b == 1001));
}

#[test]
fn every_law_stays_in_its_bounds_and_has_its_shape() {
    let check = |text: &str, mean: std::ops::RangeInclusive<f64>| {
        let values = drawn(text, 7, 20_000);
        assert!(values.iter().all(|value| (1..=100).contains(value)), "{text}");
        let found = values.iter().sum::<i64>() as f64 / values.len() as f64;
        assert!(mean.contains(&found), "{text}: {found}");
    };
    check("uniform(1..100)", 49.5..=51.5);
    check("gaussian(1..100)", 49.0..=51.0);
    check("gaussian(1..100,90,1)", 88.5..=90.0);
    check("exp(1..100)", 30.0..=44.0);
    check("~exp(1..100)", 57.0..=71.0);
    check("extreme(1..100,2)", 35.0..=65.0);
    check("qextreme(1..100,2,5)", 30.0..=65.0);
}

#[test]
fn quantiles_and_averages_are_those_of_the_original() {
    let gaussian = Factory::parse("gaussian(1..1M)").unwrap().build(0);
    let found: Vec<i64> = [0.1, 0.5, 0.9, 0.99, 1.0].iter().map(|p| gaussian.quantile(*p)).collect();
    assert_eq!(found, [286_408, 500_000, 713_592, 887_724, 1_000_000]);
    assert_eq!(Factory::parse("gaussian(1..100)").unwrap().build(0).average(), 50);
    assert_eq!(Factory::parse("uniform(1..1000)").unwrap().build(0).average(), 500);
    let quantized = Factory::parse("qextreme(1..1M,2,2)").unwrap().build(0);
    assert_eq!((quantized.min(), quantized.max()), (1, 1_000_000));
}

#[test]
fn what_is_no_distribution_is_refused_in_the_words_of_the_original() {
    let check = |text: &str, expected: &str| {
        assert_eq!(Factory::parse(text).unwrap_err().to_string(), expected, "{text}");
    };
    check("1..10", "Illegal distribution specification: 1..10");
    check("uniform()", "Illegal distribution specification: uniform()");
    check("zipf(1..10)", "Illegal distribution type: zipf");
    check("uniform(1)", "Invalid parameter list for uniform distribution: [1]");
    check("uniform(10..1)", "Invalid parameter list for uniform distribution: [10..1]");
    check("gauss(1..10,1,2,3)", "Invalid parameter list for gaussian distribution: [1..10, 1, 2, 3]");
    check("gauss(1..10,0,0)", "Invalid parameter list for uniform distribution: [1..10, 0, 0]");
    check("extreme(1..10)", "Invalid parameter list for extreme (Weibull) distribution: [1..10]");
    check("fixed(99999999999b)", "Invalid parameter list for uniform distribution: [99999999999b]");
    assert!(RatioFactory::parse("fixed(1)").is_err());
    assert!(RatioFactory::parse("fixed(1)/0").is_err());
}

#[test]
fn settings_are_described_as_the_original_does() {
    let check = |text: &str, expected: &str| assert_eq!(Factory::parse(text).unwrap().describe(), expected);
    check("gaussian(1..10000)", "Gaussian:  min=1,max=10000,mean=5000.500000,stdev=1666.500000");
    check("uniform(1..1M)", "Uniform:  min=1,max=1000000");
    check("fixed(34)", "Fixed:  key=34");
    let ratio = RatioFactory::parse("fixed(1)/1").unwrap();
    assert_eq!(ratio.describe(), "Ratio: divisor=1.000000;delegate=Fixed:  key=1");
    assert!(ratio.build(0).is_whole());
}
