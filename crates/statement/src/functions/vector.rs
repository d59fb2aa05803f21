//! Similarity of two vectors of floats: the scores of Cassandra 5's similarity functions, which are 1 for
//! equal vectors and lie between 0 and 1 for vectors of length one.

use crate::StatementError;

/// The measure of similarity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Similarity {
    /// The angle between the vectors.
    Cosine,
    /// The distance between the vectors.
    Euclidean,
    /// The dot product of the vectors.
    DotProduct,
}

/// The score of two serialised vectors with equal dimensions.
///
/// # Errors
/// [`StatementError::Invalid`] for the angle to a vector of zeros.
pub(super) fn score(
    name: &str,
    similarity: Similarity,
    left: &[u8],
    right: &[u8],
) -> Result<Vec<u8>, StatementError> {
    let floats = |bytes: &[u8]| -> Vec<f32> {
        bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_be_bytes(*bytes)).collect()
    };
    let (left, right) = (floats(left), floats(right));
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let score = match similarity {
        Similarity::Cosine => {
            let zero = |vector: &[f32]| vector.iter().all(|value| *value == 0.0);
            if zero(&left) || zero(&right) {
                return Err(StatementError::Invalid(format!(
                    "Function system.{name} doesn't support all-zero vectors."
                )));
            }
            let lengths = f64::from(dot(&left, &left)) * f64::from(dot(&right, &right));
            let cosine = (f64::from(dot(&left, &right)) / lengths.sqrt()) as f32;
            (1.0 + cosine) / 2.0
        }
        Similarity::Euclidean => {
            let distance: f32 = left.iter().zip(&right).map(|(a, b)| (a - b) * (a - b)).sum();
            1.0 / (1.0 + distance)
        }
        Similarity::DotProduct => (1.0 + dot(&left, &right)) / 2.0,
    };
    Ok(score.to_be_bytes().to_vec())
}
