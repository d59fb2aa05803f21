//! The range of partitions that a SELECT over a table reads.

use model::Token;
use statement::restrictions::{Restrictions, keys};
use statement::terms::Binding;
use storage::{PartitionBound, PartitionRange};

use crate::QueryError;

/// The partitions between the token bounds; `None` if no token can match.
///
/// # Errors
/// [`QueryError::Invalid`] for a null token.
pub(in crate::execute) fn of(
    restrictions: &Restrictions,
    binding: &Binding<'_>,
) -> Result<Option<PartitionRange>, QueryError> {
    if restrictions.token.is_none() {
        return Ok(Some(PartitionRange::all()));
    }
    let bound = |token| PartitionBound { token: Token(token), key: None, inclusive: true };
    Ok(keys::token_bounds(restrictions, binding)?
        .map(|(low, high)| PartitionRange::Between { from: bound(low), to: bound(high) }))
}
