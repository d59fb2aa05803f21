//! Functions of time: the current time, and conversions between the types for times.

use model::number::Duration;
use model::{CqlType, timeuuid};
use uuid::Uuid;

use super::calendar;
use crate::StatementError;
use crate::terms::duration;
use crate::terms::time::{NANOSECONDS_PER_DAY, date_of_millis, millis_of_date};

/// The current date in UTC, as a stored value.
pub(super) fn now_date(now_ms: i64) -> Vec<u8> {
    date_of_millis(now_ms).to_be_bytes().to_vec()
}

/// The current time of day in UTC, as a stored value in nanoseconds.
pub(super) fn now_time(now_ms: i64) -> Vec<u8> {
    let nanoseconds = i128::from(now_ms) * 1_000_000;
    (nanoseconds.rem_euclid(i128::from(NANOSECONDS_PER_DAY)) as i64).to_be_bytes().to_vec()
}

/// The smallest or greatest time UUID of a stored timestamp.
pub(super) fn bound_timeuuid(timestamp: &[u8], greatest: bool) -> Option<Vec<u8>> {
    let millis = i64::from_be_bytes(timestamp.try_into().ok()?);
    let bound =
        if greatest { timeuuid::max_at_unix_millis(millis) } else { timeuuid::min_at_unix_millis(millis) };
    Some(bound.as_bytes().to_vec())
}

/// Converts between types of time; `bigint` is milliseconds. Empty values give null.
pub(super) fn convert(from: &CqlType, to: &CqlType, value: &[u8]) -> Option<Vec<u8>> {
    let millis = match from {
        CqlType::Timeuuid => timeuuid::unix_millis(&Uuid::from_slice(value).ok()?)?,
        CqlType::Date => millis_of_date(u32::from_be_bytes(value.try_into().ok()?)),
        _ => i64::from_be_bytes(value.try_into().ok()?),
    };
    Some(match to {
        CqlType::Date => date_of_millis(millis).to_be_bytes().to_vec(),
        _ => millis.to_be_bytes().to_vec(),
    })
}

/// `floor(time, duration[, start])`; null if an argument is null.
///
/// # Errors
/// [`StatementError::Invalid`] if the duration does not fit the type of time, or the start is after the time.
pub(super) fn floor(
    ty: &CqlType,
    time: &[u8],
    rest: &[Option<&[u8]>],
) -> Result<Option<Vec<u8>>, StatementError> {
    let (Some(Some(duration)), false) = (rest.first(), time.is_empty()) else { return Ok(None) };
    if duration.is_empty() {
        return Ok(None);
    }
    let duration = Duration::decode(duration).map_err(|error| StatementError::Invalid(error.to_string()))?;
    let shown = || duration::text(&duration);
    if *ty == CqlType::Time {
        let Ok(time) = time.try_into().map(i64::from_be_bytes) else { return Ok(None) };
        let floor = calendar::floor_time(time, &duration).map_err(StatementError::Invalid)?;
        return Ok(Some(floor.to_be_bytes().to_vec()));
    }
    let millis = |ty: &CqlType, value: &[u8]| {
        let bytes = convert(ty, &CqlType::Bigint, value)?;
        bytes.try_into().ok().map(i64::from_be_bytes)
    };
    let start_type = if *ty == CqlType::Date { CqlType::Date } else { CqlType::Timestamp };
    let start = match rest.get(1) {
        None => Some(0),
        Some(start) => start.and_then(|start| millis(&start_type, start)),
    };
    let (Some(time), Some(start)) = (millis(ty, time), start) else { return Ok(None) };
    if *ty == CqlType::Date && duration.nanoseconds() != 0 {
        return Err(StatementError::Invalid(format!(
            "The floor on date values cannot be computed for the {} duration as precision is below 1 day",
            shown()
        )));
    }
    if duration.nanoseconds() % 1_000_000 != 0 {
        return Err(StatementError::Invalid(format!(
            "The floor cannot be computed for the {} duration as precision is below 1 millisecond",
            shown()
        )));
    }
    let floor = calendar::floor(time, &duration, start).map_err(StatementError::Invalid)?;
    Ok(Some(match ty {
        CqlType::Date => date_of_millis(floor).to_be_bytes().to_vec(),
        _ => floor.to_be_bytes().to_vec(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_convert() {
        let at: i64 = 1_705_464_718_070;
        let uuid = timeuuid::from_unix_micros(at * 1000 + 5, 1, [1; 6]);
        let millis = at.to_be_bytes().to_vec();
        assert_eq!(convert(&CqlType::Timeuuid, &CqlType::Timestamp, uuid.as_bytes()), Some(millis.clone()));
        assert_eq!(convert(&CqlType::Timestamp, &CqlType::Bigint, &millis), Some(millis.clone()));
        let date = convert(&CqlType::Timestamp, &CqlType::Date, &millis).unwrap();
        let midnight = convert(&CqlType::Date, &CqlType::Timestamp, &date).unwrap();
        assert_eq!(midnight, (at - at % 86_400_000).to_be_bytes());
        assert_eq!(convert(&CqlType::Timestamp, &CqlType::Date, b""), None);
        assert_eq!(now_time(-1), (NANOSECONDS_PER_DAY - 1_000_000).to_be_bytes());
    }
}
