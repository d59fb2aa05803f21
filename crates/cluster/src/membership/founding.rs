//! Whether a node without a cluster founds one, joins one, or waits: decided by what its seeds answer.
//!
//! A seed that is in a cluster is joined. Otherwise only the first address of the list founds, when it is
//! this node's own and all other seeds have answered that they are in no cluster, with an equal list, and
//! have promised not to found one or to answer another candidate for a while. So two nodes of equal lists
//! never both found. Pure: times and answers come in, decisions go out.

use std::net::SocketAddr;
use std::time::Duration;

use reactor::Instant;

/// How long a promise holds.
pub const PROMISE: Duration = Duration::from_secs(10);

/// The answer of one seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SeedAnswer {
    /// It is in a cluster.
    Member,
    /// It is in none.
    NoCluster {
        /// A hash of its own list of seeds.
        seeds_hash: u64,
        /// Whether it promises not to found one, nor to promise another candidate, for [`PROMISE`].
        promises: bool,
    },
    /// It did not answer, or refused, for this reason.
    Silent(String),
}

/// The next step of a node without a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Begin a new cluster.
    Found,
    /// Ask this member to be taken in.
    Join(SocketAddr),
    /// Ask again later; the reason is for the log.
    Wait(String),
}

/// A hash of a list of seeds, the same on every node.
pub fn seeds_hash(seeds: &[SocketAddr]) -> u64 {
    let text: String = seeds.iter().map(|seed| format!("{seed}\n")).collect();
    let low = crc32fast::hash(text.as_bytes());
    let high = crc32fast::hash(format!("ceto {text}").as_bytes());
    u64::from(high) << 32 | u64::from(low)
}

/// Whether a node with this address and these seeds founds at once, without asking: it is nobody else's.
pub fn is_alone(own: SocketAddr, seeds: &[SocketAddr]) -> bool {
    seeds.iter().all(|seed| *seed == own)
}

/// Decides by the answers of all seeds but this node itself.
pub fn decide(own: SocketAddr, seeds: &[SocketAddr], answers: &[(SocketAddr, SeedAnswer)]) -> Step {
    if let Some((member, _)) = answers.iter().find(|(_, answer)| *answer == SeedAnswer::Member) {
        return Step::Join(*member);
    }
    if seeds.first() != Some(&own) {
        let first = seeds.first().map_or_else(String::new, ToString::to_string);
        let silent = answers.iter().find_map(|(seed, answer)| match answer {
            SeedAnswer::Silent(reason) => Some(format!("; seed {seed} does not answer: {reason}")),
            SeedAnswer::Member | SeedAnswer::NoCluster { .. } => None,
        });
        let silent = silent.unwrap_or_default();
        return Step::Wait(format!(
            "no seed is in a cluster yet; {first}, the first of the list, founds it{silent}"
        ));
    }
    for seed in seeds.iter().filter(|seed| **seed != own) {
        let answer = answers.iter().find(|(address, _)| address == seed).map(|(_, answer)| answer);
        match answer {
            Some(SeedAnswer::NoCluster { seeds_hash: theirs, .. }) if *theirs != seeds_hash(seeds) => {
                return Step::Wait(format!("seed {seed} has another list of seeds: make them equal"));
            }
            Some(SeedAnswer::NoCluster { promises: true, .. }) => {}
            Some(SeedAnswer::NoCluster { promises: false, .. }) => {
                return Step::Wait(format!("seed {seed} has promised another node to wait"));
            }
            Some(SeedAnswer::Silent(reason)) => {
                return Step::Wait(format!(
                    "seed {seed} does not answer ({reason}); a cluster is founded once all seeds do"
                ));
            }
            Some(SeedAnswer::Member) => unreachable!("a member was looked for above"),
            None => return Step::Wait(format!("seed {seed} was not asked")),
        }
    }
    Step::Found
}

/// The promise that this node has given while it is in no cluster.
#[derive(Debug, Default)]
pub struct Promise {
    /// The candidate's host id, and until when.
    given: Option<([u8; 16], Instant)>,
}

impl Promise {
    /// Answers a candidate: whether this node promises to wait for it.
    pub fn give(&mut self, candidate: [u8; 16], now: Instant) -> bool {
        match self.given {
            Some((other, until)) if other != candidate && now < until => false,
            _ => {
                self.given = Some((candidate, now + PROMISE));
                true
            }
        }
    }

    /// Whether this node may found a cluster itself.
    pub fn may_found(&self, now: Instant) -> bool {
        self.given.is_none_or(|(_, until)| until <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(last: u8) -> SocketAddr {
        SocketAddr::new([127, 0, 0, last].into(), 7000)
    }

    fn no_cluster(seeds: &[SocketAddr], promises: bool) -> SeedAnswer {
        SeedAnswer::NoCluster { seeds_hash: seeds_hash(seeds), promises }
    }

    /// The decision; the reason of a wait must contain `expected`.
    fn check(own: u8, answers: &[(SocketAddr, SeedAnswer)], expected: Result<Step, &str>) {
        let seeds = [at(1), at(2), at(3)];
        match (decide(at(own), &seeds, answers), expected) {
            (Step::Wait(reason), Err(part)) => assert!(reason.contains(part), "{reason}"),
            (step, Ok(expected)) => assert_eq!(step, expected),
            (step, Err(part)) => panic!("{step:?} instead of waiting: {part}"),
        }
    }

    #[test]
    fn only_the_first_seed_founds_and_only_with_everybodys_promise() {
        let seeds = [at(1), at(2), at(3)];
        let promised = || (at(2), no_cluster(&seeds, true));
        check(1, &[promised(), (at(3), no_cluster(&seeds, true))], Ok(Step::Found));
        check(1, &[promised(), (at(3), no_cluster(&seeds, false))], Err("promised another"));
        check(1, &[promised(), (at(3), no_cluster(&seeds[..2], true))], Err("another list"));
        check(
            1,
            &[promised(), (at(3), SeedAnswer::Silent("refused".into()))],
            Err("does not answer (refused)"),
        );
        check(1, &[promised()], Err("was not asked"));
        check(
            2,
            &[(at(1), no_cluster(&seeds, true)), (at(3), no_cluster(&seeds, true))],
            Err("127.0.0.1:7000"),
        );
        check(4, &[], Err("no seed is in a cluster"));
        check(
            2,
            &[(at(1), SeedAnswer::Silent("another name".into()))],
            Err("7000 does not answer: another name"),
        );
    }

    #[test]
    fn a_member_is_joined_whatever_the_others_say() {
        let seeds = [at(1), at(2), at(3)];
        let member = (at(3), SeedAnswer::Member);
        check(1, &[(at(2), no_cluster(&seeds, true)), member.clone()], Ok(Step::Join(at(3))));
        check(2, &[(at(1), SeedAnswer::Silent(String::new())), member], Ok(Step::Join(at(3))));
    }

    #[test]
    fn a_node_that_is_its_only_seed_is_alone() {
        assert!(is_alone(at(1), &[]) && is_alone(at(1), &[at(1)]));
        assert!(!is_alone(at(1), &[at(1), at(2)]) && !is_alone(at(1), &[at(2)]));
        assert_ne!(seeds_hash(&[at(1), at(2)]), seeds_hash(&[at(2), at(1)]));
    }

    #[test]
    fn a_promise_binds_to_one_candidate_for_its_time() {
        let (mut promise, begin) = (Promise::default(), Instant::from_nanos(5));
        assert!(promise.may_found(begin));
        assert!(promise.give([1; 16], begin));
        assert!(!promise.give([2; 16], begin + PROMISE / 2));
        assert!(promise.give([1; 16], begin + PROMISE / 2), "the same one again, for longer");
        assert!(!promise.may_found(begin + PROMISE) && !promise.give([2; 16], begin + PROMISE));
        assert!(promise.may_found(begin + 2 * PROMISE));
        assert!(promise.give([2; 16], begin + 2 * PROMISE));
    }
}
