//! Chooses the next partition: a sequence or a distribution of seeds, and the partitions that are not
//! finished yet.
//!
//! A partition is identified by a seed. Writes may visit it several times, and partitions with further visits
//! are revisited before new ones begin; a read knows how far such a partition has been written. The factor
//! that spreads numbers over seeds is that of cassandra-stress, so that partition n is the same in both
//! tools.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::StressError;
use super::distribution::Distribution;
use super::settings::{Seeds, Settings};

/// A partition while it is worked on.
#[derive(Debug)]
pub(super) struct Seed {
    /// The value that determines everything in the partition.
    pub(super) value: i64,
    /// Number of visits in which it is written.
    pub(super) visits: i64,
    /// Rows handed out to writes so far.
    position: Cell<i64>,
    /// Its index among the unfinished ones.
    place: Cell<Option<usize>>,
    number: i64,
}

impl Seed {
    pub(super) fn position(&self) -> i64 {
        self.position.get()
    }

    /// Hands out `rows` rows; the first of them.
    pub(super) fn move_forwards(&self, rows: i64) -> i64 {
        self.position.replace(self.position.get().saturating_add(rows))
    }
}

#[derive(Debug)]
enum Source {
    Random(Distribution),
    Series { first: i64, count: i64, wrap: bool, next: i64 },
}

/// Reads behind the writes.
#[derive(Debug)]
struct Lookback {
    distance: Distribution,
    /// Partitions from the first on that are written without a gap.
    written: i64,
    /// Written ones behind the gap.
    ahead: BTreeSet<i64>,
}

/// Hands out seeds.
#[derive(Debug)]
pub(super) struct SeedManager {
    source: Source,
    lookback: Option<Lookback>,
    multiplier: i64,
    visits: Distribution,
    /// Unfinished partitions, in no particular order.
    unfinished: Vec<Rc<Seed>>,
    unfinished_max: usize,
    /// Which of the unfinished is revisited; beyond their end means a new partition.
    revisit: Distribution,
    revisit_offset: i64,
    /// Unfinished seeds and those being written for the first time, by their seed.
    managed: HashMap<i64, Rc<Seed>, FixedState>,
    saves_at_once: bool,
}

/// Seeds tried to find one that is not being written at the moment.
const ATTEMPTS_MAX: u32 = 10_000;

impl SeedManager {
    /// # Errors
    /// [`StressError::Usage`] for settings that do not fit together.
    pub(super) fn new(settings: &Settings, random_seed: i64) -> Result<Self, StressError> {
        let revisit = settings.insert.revisit.build(random_seed);
        let offset = revisit.min();
        let width = revisit.max().saturating_sub(offset).saturating_add(1);
        if offset < 0 || width > i64::from(i32::MAX) {
            return Err(StressError::Usage("sample range is invalid".to_owned()));
        }
        // One more than a power of ten: numbers differ then in all digits of their seeds.
        let multiplier = (10_f64.powf(22.0 - (width as f64).log10()).round() as i64).wrapping_add(1);
        let mut lookback = None;
        let source = match &settings.population.seeds {
            Seeds::Distribution(factory) => Source::Random(factory.build(random_seed.wrapping_add(1))),
            Seeds::Sequence { first, last, wrap, lookback: behind } => {
                let count = last - first + 1;
                if let Some(factory) = behind {
                    let distance = factory.build(random_seed.wrapping_add(2));
                    if distance.max() > first.saturating_add(count) {
                        return Err(StressError::Usage(format!(
                            "Invalid lookback distribution; max value is {}, but series only ranges from 0 to {}",
                            distance.max(),
                            first.saturating_add(count)
                        )));
                    }
                    lookback = Some(Lookback { distance, written: 0, ahead: BTreeSet::new() });
                }
                Source::Series { first: *first, count, wrap: *wrap, next: 0 }
            }
        };
        let visits = settings.insert.visits.build(random_seed.wrapping_add(3));
        Ok(Self {
            source,
            lookback,
            multiplier,
            saves_at_once: visits.average() > 1,
            visits,
            unfinished: Vec::new(),
            unfinished_max: width as usize,
            revisit,
            revisit_offset: offset,
            managed: HashMap::default(),
        })
    }

    /// The partition for the next operation; `None` if all have been used.
    #[inline]
    pub(super) fn next(&mut self, is_write: bool) -> Option<Rc<Seed>> {
        if !is_write {
            let number = match self.read_behind() {
                Some(number) => number?,
                None => self.advance()?,
            };
            let seed = self.seed(number, -1);
            return Some(self.managed.get(&seed.value).cloned().unwrap_or(seed));
        }
        for _ in 0..ATTEMPTS_MAX {
            if !self.unfinished.is_empty() {
                // Mirrored: the likeliest are those that have waited longest.
                let drawn = self.revisit_offset + self.unfinished_max as i64 - 1 - self.revisit.next();
                let place = usize::try_from(drawn).unwrap_or(usize::MAX);
                if let Some(seed) = self.unfinished.get(place) {
                    return Some(seed.clone());
                }
            }
            let number = self.advance()?;
            let visits = self.visits.next();
            let seed = self.seed(number, visits);
            if self.managed.contains_key(&seed.value) {
                continue;
            }
            if self.saves_at_once && !self.save(&seed) {
                continue;
            }
            self.managed.insert(seed.value, seed.clone());
            return Some(seed);
        }
        None
    }

    /// The next partition of a read or of a write that is done in one visit, as a bare seed: no bookkeeping.
    #[inline]
    pub(super) fn next_value(&mut self, is_write: bool) -> Option<i64> {
        let number = match self.read_behind() {
            Some(number) if !is_write => number?,
            _ => self.advance()?,
        };
        Some(number.wrapping_mul(self.multiplier))
    }

    /// Whether seeds need no bookkeeping: every write is complete at once, and no read depends on earlier
    /// writes.
    pub(super) fn is_plain(&self) -> bool {
        self.lookback.is_none()
    }

    fn seed(&self, number: i64, visits: i64) -> Rc<Seed> {
        let value = number.wrapping_mul(self.multiplier);
        Rc::new(Seed { value, visits, position: Cell::new(0), place: Cell::new(None), number })
    }

    #[inline]
    fn advance(&mut self) -> Option<i64> {
        match &mut self.source {
            Source::Random(distribution) => Some(distribution.next()),
            Source::Series { first, count, wrap, next } => {
                let number = *next;
                *next += 1;
                (*wrap || number < *count).then(|| *first + number % *count)
            }
        }
    }

    /// A partition behind the writes; the inner `None` if there will be none, the outer if reads do not
    /// follow writes.
    fn read_behind(&mut self) -> Option<Option<i64>> {
        let lookback = self.lookback.as_mut()?;
        let Source::Series { first, count, wrap, .. } = &self.source else { return None };
        let distance = lookback.distance.next();
        let mut offset = lookback.written - distance;
        if offset < 0 {
            if lookback.written == *count && !wrap {
                return Some(None);
            }
            offset = if lookback.written == 0 { 0 } else { distance % lookback.written };
        }
        Some(Some(first + offset))
    }

    fn save(&mut self, seed: &Rc<Seed>) -> bool {
        if self.unfinished.len() >= self.unfinished_max {
            return false;
        }
        seed.place.set(Some(self.unfinished.len()));
        self.unfinished.push(seed.clone());
        true
    }

    /// The first visit to a partition is over.
    pub(super) fn first_write_done(&mut self, seed: &Rc<Seed>, is_last: bool) {
        if !is_last && !self.saves_at_once && seed.place.get().is_none() {
            self.save(seed);
        }
        if let (Some(lookback), Source::Series { first, .. }) = (&mut self.lookback, &self.source) {
            lookback.finished(seed.number - first);
        }
    }

    /// The last visit to a partition is over.
    pub(super) fn last_write_done(&mut self, seed: &Rc<Seed>) {
        if !self.managed.get(&seed.value).is_some_and(|managed| Rc::ptr_eq(managed, seed)) {
            return;
        }
        self.managed.remove(&seed.value);
        if let Some(place) = seed.place.take() {
            self.unfinished.swap_remove(place);
            if let Some(moved) = self.unfinished.get(place) {
                moved.place.set(Some(place));
            }
        }
    }
}

impl Lookback {
    fn finished(&mut self, number: i64) {
        if number < self.written {
            return;
        }
        self.ahead.insert(number);
        while self.ahead.remove(&self.written) {
            self.written += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stress::settings_of;

    fn manager(line: &str) -> SeedManager {
        SeedManager::new(&settings_of(line).unwrap(), 1).unwrap()
    }

    #[test]
    fn sequences_come_in_order_wrap_or_end() {
        const FACTOR: i64 = 10_000_000_000_000_001;
        let mut seeds = manager("write n=5 -pop seq=7..8");
        let values: Vec<i64> = (0..3).map(|_| seeds.next_value(true).unwrap()).collect();
        assert_eq!(values, [7 * FACTOR, 8 * FACTOR, 7 * FACTOR]);
        let mut seeds = manager("write n=5 -pop seq=7..8 no-wrap");
        assert!(seeds.next_value(true).is_some() && seeds.next_value(true).is_some());
        assert_eq!(seeds.next_value(true), None);
    }

    #[test]
    fn partitions_with_visits_to_come_are_revisited() {
        let mut seeds = manager("write n=5 -pop seq=1..10 -insert visits=fixed(3) revisit=fixed(0)");
        let first = seeds.next(true).unwrap();
        assert_eq!(first.visits, 3);
        let again = seeds.next(true).unwrap();
        assert!(Rc::ptr_eq(&first, &again), "one unfinished at a time");
        seeds.last_write_done(&first);
        let second = seeds.next(true).unwrap();
        assert_ne!(second.value, first.value);
    }

    #[test]
    fn a_partition_is_written_once_at_a_time() {
        let mut seeds = manager("write n=5 -pop seq=1..2");
        let (first, second) = (seeds.next(true).unwrap(), seeds.next(true).unwrap());
        assert!(seeds.next(true).is_none(), "both are being written");
        seeds.last_write_done(&first);
        assert_eq!(seeds.next(true).unwrap().value, first.value);
        assert!(Rc::ptr_eq(&seeds.managed[&second.value], &second));
    }

    #[test]
    fn reads_stay_behind_the_writes() {
        let mut seeds = manager("mixed n=5 -pop seq=1..100 read-lookback=uniform(1..10)");
        for _ in 0..50 {
            let seed = seeds.next(true).unwrap();
            seeds.first_write_done(&seed, true);
            seeds.last_write_done(&seed);
        }
        for _ in 0..200 {
            let number = seeds.next(false).unwrap().number;
            assert!((41..=50).contains(&number), "{number}");
        }
    }
}
