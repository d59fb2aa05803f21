//! Checks the totals of counters: every increment counts once, those without an answer once or not at all.

use std::collections::BTreeMap;

/// Most increments of one counter without an answer between two checks.
const DOUBTS_MAX: usize = 16;

/// The counters as they must be.
#[derive(Debug, Default)]
pub(super) struct Counters {
    by_key: BTreeMap<usize, Counter>,
}

#[derive(Debug, Default)]
struct Counter {
    /// Increments that were answered, and what a check settled.
    sum: i64,
    /// Increments under way, by number.
    open: BTreeMap<u64, i64>,
    /// Increments that got no answer.
    doubts: Vec<i64>,
}

/// The range of a total that is read while others count.
#[derive(Debug, Clone, Copy)]
pub(super) struct Least(i64);

impl Counters {
    /// An increment begins.
    pub(super) fn begin(&mut self, key: usize, number: u64, by: i64) {
        self.by_key.entry(key).or_default().open.insert(number, by);
    }

    /// It was answered, or with `doubt` it was not.
    pub(super) fn end(&mut self, key: usize, number: u64, doubt: bool) {
        let counter = self.by_key.entry(key).or_default();
        let by = counter.open.remove(&number).unwrap_or_default();
        if doubt {
            counter.doubts.push(by);
        } else {
            counter.sum += by;
        }
    }

    /// The node went: what was under way is in doubt.
    pub(super) fn crashed(&mut self) {
        for counter in self.by_key.values_mut() {
            counter.doubts.extend(std::mem::take(&mut counter.open).into_values());
        }
    }

    /// Whether a counter has so many in doubt that nothing more should be added to it.
    pub(super) fn is_doubtful(&self, key: usize) -> bool {
        self.by_key.get(&key).is_some_and(|counter| counter.doubts.len() + counter.open.len() >= DOUBTS_MAX)
    }

    /// A read begins: it must see at least what was answered until now.
    pub(super) fn least(&self, key: usize) -> Least {
        Least(self.by_key.get(&key).map_or(0, |counter| counter.sum))
    }

    /// Checks what a read saw that began with `least`.
    ///
    /// # Errors
    /// The expected total.
    pub(super) fn check(&self, key: usize, least: Least, seen: i64) -> Result<(), String> {
        let most = self.by_key.get(&key).map_or(0, |counter| {
            counter.sum + counter.doubts.iter().sum::<i64>() + counter.open.values().sum::<i64>()
        });
        if (least.0..=most).contains(&seen) {
            return Ok(());
        }
        Err(format!("counter {key} is {seen}, it should be {} to {most}", least.0))
    }

    /// Settles what was in doubt by what is there while nobody counts.
    ///
    /// # Errors
    /// When no choice of those in doubt comes to `seen`.
    pub(super) fn settle(&mut self, key: usize, seen: i64) -> Result<(), String> {
        let counter = self.by_key.entry(key).or_default();
        let doubts = std::mem::take(&mut counter.doubts);
        let reachable = (0u32..1 << doubts.len()).any(|chosen| {
            let of_doubts = doubts.iter().enumerate().filter(|(at, _)| chosen & (1 << at) != 0);
            counter.sum + of_doubts.map(|(_, by)| by).sum::<i64>() == seen
        });
        if !reachable {
            return Err(format!(
                "counter {key} is {seen}: {} were answered, in doubt {doubts:?}",
                counter.sum
            ));
        }
        counter.sum = seen;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Counters;

    #[test]
    fn what_was_answered_counts_and_what_was_not_counts_once_or_not_at_all() {
        let mut counters = Counters::default();
        counters.begin(0, 1, 5);
        counters.end(0, 1, false);
        counters.begin(0, 2, 7);
        let least = counters.least(0);
        assert_eq!(counters.check(0, least, 5), Ok(()));
        assert_eq!(counters.check(0, least, 12), Ok(()));
        assert!(counters.check(0, least, 13).is_err());
        assert!(counters.check(0, least, 4).is_err());
        counters.crashed();
        assert!(counters.settle(0, 19).is_err());
        counters.begin(0, 3, 7);
        counters.crashed();
        assert_eq!(counters.settle(0, 12), Ok(()));
        assert!(counters.settle(0, 5).is_err());
    }
}
