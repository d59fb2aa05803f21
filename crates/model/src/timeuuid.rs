//! Version 1 UUIDs: reading their time, building them, and the bounds that `minTimeuuid` and `maxTimeuuid`
//! need.
//!
//! Time inside a UUID is a 60-bit count of 100 ns ticks since 1582-10-15 (RFC 9562 §5.1). The bounds are
//! chosen for Cassandra's order of timeuuids, which compares the last eight bytes as *signed* bytes (see
//! `compare`), so their variant bits are not those of the RFC. Nothing here reads a clock.

use uuid::Uuid;

/// Ticks of 100 ns between the start of UUID time and 1970-01-01.
pub const TICKS_AT_UNIX_EPOCH: u64 = 0x01b2_1dd2_1381_4000;

const TICKS_PER_MILLISECOND: i128 = 10_000;
const TICKS_PER_MICROSECOND: i128 = 10;
const TICK_MASK: u64 = (1 << 60) - 1;
/// The least last eight bytes in signed byte order.
const CLOCK_AND_NODE_MIN: u64 = 0x8080_8080_8080_8080;
/// The greatest last eight bytes in signed byte order.
const CLOCK_AND_NODE_MAX: u64 = 0x7f7f_7f7f_7f7f_7f7f;

/// A version 1 UUID of `ticks` (60 bits are kept), a clock sequence (14 bits are kept) and a node.
pub fn from_ticks(ticks: u64, clock_sequence: u16, node: [u8; 6]) -> Uuid {
    let [a, b, c, d, e, f] = node;
    let clock = 0x8000 | (clock_sequence & 0x3fff);
    let [clock_high, clock_low] = clock.to_be_bytes();
    assemble(ticks, u64::from_be_bytes([clock_high, clock_low, a, b, c, d, e, f]))
}

/// A version 1 UUID of a time in microseconds since the Unix epoch.
pub fn from_unix_micros(micros: i64, clock_sequence: u16, node: [u8; 6]) -> Uuid {
    from_ticks(ticks_of_unix_micros(micros), clock_sequence, node)
}

/// Ticks of a time in milliseconds since the Unix epoch. Times outside UUID time (1582 to 5236) give its
/// first or last tick, so that bounds made from them still enclose every UUID they should; Cassandra spoils
/// the version instead.
pub fn ticks_of_unix_millis(millis: i64) -> u64 {
    ticks_at(i128::from(millis) * TICKS_PER_MILLISECOND)
}

/// Ticks of a time in microseconds since the Unix epoch, with the ends of [`ticks_of_unix_millis`].
pub fn ticks_of_unix_micros(micros: i64) -> u64 {
    ticks_at(i128::from(micros) * TICKS_PER_MICROSECOND)
}

/// The least timeuuid of a millisecond in Cassandra's order (`minTimeuuid`); for comparisons only, not
/// unique.
pub fn min_at_unix_millis(millis: i64) -> Uuid {
    assemble(ticks_of_unix_millis(millis), CLOCK_AND_NODE_MIN)
}

/// The greatest timeuuid of a millisecond in Cassandra's order (`maxTimeuuid`); for comparisons only, not
/// unique.
pub fn max_at_unix_millis(millis: i64) -> Uuid {
    let last = (i128::from(millis) + 1) * TICKS_PER_MILLISECOND - 1;
    assemble(ticks_at(last), CLOCK_AND_NODE_MAX)
}

/// Ticks of 100 ns since 1582-10-15 in a version 1 UUID; `None` for other versions.
pub fn ticks(uuid: &Uuid) -> Option<u64> {
    let (high, _) = uuid.as_u64_pair();
    (high >> 12 & 0xf == 1).then(|| ordered_time(high) & TICK_MASK)
}

/// Milliseconds since the Unix epoch of a version 1 UUID; `None` for other versions.
///
/// The microseconds are rounded down, and the milliseconds towards the epoch, as Cassandra 5's `TimeUUID`
/// does.
pub fn unix_millis(uuid: &Uuid) -> Option<i64> {
    unix_micros(uuid).map(|micros| micros / 1000)
}

/// Microseconds since the Unix epoch, rounded down, of a version 1 UUID; `None` for other versions.
pub fn unix_micros(uuid: &Uuid) -> Option<i64> {
    // 60 bits of ticks minus the epoch fit an i64.
    ticks(uuid).map(|ticks| (ticks as i64 - TICKS_AT_UNIX_EPOCH as i64).div_euclid(10))
}

/// The first eight bytes with the fields put in the order of significance; the version stays in the top four
/// bits.
pub(crate) fn ordered_time(high: u64) -> u64 {
    high << 48 | (high << 16 & 0xffff_0000_0000) | high >> 32
}

/// UUID ticks of a number of ticks since the Unix epoch.
fn ticks_at(ticks_since_unix_epoch: i128) -> u64 {
    let ticks = ticks_since_unix_epoch + i128::from(TICKS_AT_UNIX_EPOCH);
    ticks.clamp(0, i128::from(TICK_MASK)) as u64
}

fn assemble(ticks: u64, clock_and_node: u64) -> Uuid {
    let ticks = ticks & TICK_MASK;
    let high = ticks << 32 | (ticks >> 16 & 0xffff_0000) | 0x1000 | ticks >> 48;
    Uuid::from_u64_pair(high, clock_and_node)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::compare::compare;
    use crate::types::CqlType;

    #[test]
    fn known_times() {
        for (text, millis) in [
            ("13814000-1dd2-11b2-8080-808080808080", 0),
            ("8e7b0930-b4ee-11ee-9c73-e9a0a4bb2d3f", 1_705_464_718_070),
            ("d2177dd0-eaa2-11de-a572-001b779c76e3", 1_261_009_589_805),
            // Before the epoch: 1 tick, 5,001, 9,999, 10,000 and 16,364 of them; then the first of all.
            ("13813fff-1dd2-11b2-8080-808080808080", 0),
            ("13812c77-1dd2-11b2-8080-808080808080", 0),
            ("138118f1-1dd2-11b2-8080-808080808080", -1),
            ("138118f0-1dd2-11b2-8080-808080808080", -1),
            ("13810014-1dd2-11b2-8080-808080808080", -1),
            ("00000000-0000-1000-8080-808080808080", -12_219_292_800_000),
        ] {
            let uuid = Uuid::parse_str(text).unwrap();
            assert_eq!(unix_millis(&uuid), Some(millis), "{text}");
        }
    }

    /// Printed by Apache Cassandra 5.0.6 (`TimeUUID.minAtUnixMillis`, `maxAtUnixMillis`).
    #[test]
    fn bounds_are_cassandras() {
        for (millis, min, max) in [
            (0, "13814000-1dd2-11b2-8080-808080808080", "1381670f-1dd2-11b2-7f7f-7f7f7f7f7f7f"),
            (-1, "138118f0-1dd2-11b2-8080-808080808080", "13813fff-1dd2-11b2-7f7f-7f7f7f7f7f7f"),
            (1, "13816710-1dd2-11b2-8080-808080808080", "13818e1f-1dd2-11b2-7f7f-7f7f7f7f7f7f"),
            (
                1_705_464_718_070,
                "8e7ae960-b4ee-11ee-8080-808080808080",
                "8e7b106f-b4ee-11ee-7f7f-7f7f7f7f7f7f",
            ),
            (
                -12_219_292_800_000,
                "00000000-0000-1000-8080-808080808080",
                "0000270f-0000-1000-7f7f-7f7f7f7f7f7f",
            ),
        ] {
            assert_eq!(min_at_unix_millis(millis).to_string(), min, "{millis}");
            assert_eq!(max_at_unix_millis(millis).to_string(), max, "{millis}");
        }
    }

    #[test]
    fn times_outside_uuid_time_give_its_ends() {
        let year_9999 = 253_402_300_799_999;
        assert_eq!(max_at_unix_millis(year_9999).to_string(), "ffffffff-ffff-1fff-7f7f-7f7f7f7f7f7f");
        assert_eq!(min_at_unix_millis(i64::MIN).to_string(), "00000000-0000-1000-8080-808080808080");
    }

    #[test]
    fn other_versions_have_no_time() {
        let random = Uuid::parse_str("0b2a0d38-5a3e-4c51-8a0a-6a0d7ae1d2a4").unwrap();
        assert_eq!((ticks(&random), unix_millis(&random), unix_micros(&random)), (None, None, None));
    }

    proptest! {
        #[test]
        fn bounds_enclose_every_uuid_of_their_millisecond(
            micros in -12_219_292_800_000_000_i64..100_000_000_000_000_000,
            clock: u16,
            node: [u8; 6],
        ) {
            let uuid = from_unix_micros(micros, clock, node);
            prop_assert_eq!(unix_micros(&uuid), Some(micros));
            prop_assert_eq!(uuid.get_version_num(), 1);
            prop_assert_eq!(unix_millis(&uuid), Some(micros / 1000));
            let millis = micros.div_euclid(1000);
            let order = |a: &Uuid, b: &Uuid| compare(&CqlType::Timeuuid, a.as_bytes(), b.as_bytes());
            prop_assert!(order(&min_at_unix_millis(millis), &uuid).is_le());
            prop_assert!(order(&max_at_unix_millis(millis), &uuid).is_ge());
            prop_assert!(order(&max_at_unix_millis(millis - 1), &uuid).is_lt());
            prop_assert!(order(&min_at_unix_millis(millis + 1), &uuid).is_gt());
        }

        #[test]
        fn any_time_makes_a_version_1_uuid(millis: i64) {
            prop_assert_eq!(min_at_unix_millis(millis).get_version_num(), 1);
            prop_assert_eq!(max_at_unix_millis(millis).get_version_num(), 1);
        }
    }
}
