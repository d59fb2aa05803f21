//! The order in which Cassandra's messages list several unknown options: the order of a Java hash map.
//!
//! The order follows from `String.hashCode`, spread and cut to a power of two of buckets, as documented for
//! `java.lang.String` and seen in answers of a Cassandra. Only messages depend on it. Names that share a
//! bucket keep the order in which they are given here.

/// Buckets of a map that was filled entry by entry, before it grows.
const BUCKETS_AT_FIRST: usize = 16;

/// The names in the order of a map that was filled entry by entry.
pub(super) fn in_hash_order<'n>(names: impl IntoIterator<Item = &'n str>) -> Vec<&'n str> {
    let mut names: Vec<&str> = names.into_iter().collect();
    let mut buckets = BUCKETS_AT_FIRST;
    while names.len() > buckets / 4 * 3 {
        buckets *= 2;
    }
    names.sort_by_key(|name| {
        let hash =
            name.encode_utf16().fold(0_u32, |hash, unit| hash.wrapping_mul(31).wrapping_add(u32::from(unit)));
        (hash ^ (hash >> 16)) as usize & (buckets - 1)
    });
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_as_cassandra_was_seen_to_give_them() {
        assert_eq!(in_hash_order(["alpha", "bar", "comment", "foo", "zip"])[0], "zip");
        assert_eq!(in_hash_order(["aar", "mid", "zoo"])[0], "aar");
        assert!(in_hash_order([]).is_empty());
    }
}
