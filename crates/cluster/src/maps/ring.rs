//! The tokens that nodes show to drivers, and by which new tables are placed.
//!
//! Nothing is stored by them. A driver that knows no tablets routes by them and by the keyspace's
//! replication, so a new table is placed as Cassandra's strategies would place it on this ring.

/// Tokens of each node.
pub const TOKENS: usize = 16;

/// The tokens of a node that joins a ring of `taken` tokens, ascending: of an empty ring the ends of equal
/// parts, else the middles of the widest gaps, one after the other.
pub fn tokens_of_next(taken: &[i64]) -> Vec<i64> {
    let mut ring: Vec<i64> = taken.to_vec();
    ring.sort_unstable();
    ring.dedup();
    let mut tokens = Vec::with_capacity(TOKENS);
    if ring.is_empty() {
        let part = u64::MAX / TOKENS as u64 + 1;
        tokens.extend((1..=TOKENS as u64).map(|end| (end.wrapping_mul(part).wrapping_sub(1) ^ SIGN) as i64));
        return tokens;
    }
    for _ in 0..TOKENS {
        let (at, middle) = widest_gap(&ring);
        tokens.push(middle);
        ring.insert(at, middle);
    }
    tokens.sort_unstable();
    tokens
}

const SIGN: u64 = 1 << 63;

/// The place of the gap's end in the ring, and the gap's middle. The first of equally wide ones.
fn widest_gap(ring: &[i64]) -> (usize, i64) {
    let mut widest = (0u64, 0usize, 0i64);
    for (at, end) in ring.iter().enumerate() {
        let begin = if at == 0 { ring[ring.len() - 1] } else { ring[at - 1] };
        // A ring of one token is one gap, all around.
        let width = match (*end as u64).wrapping_sub(begin as u64) {
            0 => u64::MAX,
            width => width,
        };
        if width > widest.0 {
            widest = (width, at, (begin as u64).wrapping_add(width / 2) as i64);
        }
    }
    let (_, at, middle) = widest;
    // The gap around the end of the numbers may have its middle before the first token or behind the last.
    let at = if at == 0 { ring.partition_point(|token| *token < middle) } else { at };
    (at, middle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_node_has_equal_parts_and_the_next_ones_halve_the_gaps() {
        let first = tokens_of_next(&[]);
        assert_eq!((first.len(), first[0], first[TOKENS - 1]), (TOKENS, i64::MIN + (1 << 60) - 1, i64::MAX));
        assert!(first.windows(2).all(|pair| pair[1].wrapping_sub(pair[0]) == 1 << 60));
        let mut ring = first.clone();
        for _ in 0..40 {
            let next = tokens_of_next(&ring);
            assert_eq!(next.len(), TOKENS);
            assert!(next.iter().all(|token| !ring.contains(token)), "no token is given twice");
            ring.extend(next);
            ring.sort_unstable();
            assert!(ring.windows(2).all(|pair| pair[0] < pair[1]));
        }
        let gaps: Vec<u64> = ring.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]) as u64).collect();
        let (least, most) = (gaps.iter().min().unwrap(), gaps.iter().max().unwrap());
        assert!(most / least <= 2, "gaps differ by their halving alone: {least} to {most}");
        assert_eq!(tokens_of_next(&ring), tokens_of_next(&ring), "the same on every node");
    }

    #[test]
    fn a_ring_of_one_token_is_one_gap() {
        for token in [i64::MIN, -1, 0, i64::MAX] {
            let next = tokens_of_next(&[token]);
            assert_eq!(next.len(), TOKENS);
            assert!(!next.contains(&token));
        }
    }
}
