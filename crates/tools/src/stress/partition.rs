//! The rows of one partition, generated in an order that any visit to it can continue.
//!
//! Clustering columns form a tree: each value of the first has its own values of the second, and so on, all
//! functions of the partition's seed. Rows are numbered by the average size of the tree, so that a visit is a
//! range of numbers; numbers beyond the existing rows are skipped. A share of the rows may be chosen at
//! random. The algorithm is that of cassandra-stress, because it decides which rows a visit writes.
//! Invariant: space is proportional to the values on one path through the tree, not to the partition.

use std::collections::VecDeque;
use std::rc::Rc;

use model::CqlType;

use super::generate::Generator;
use super::random::JavaRandom;
use super::seeds::{Seed, SeedManager};
use super::settings::Order;

/// Most values of one clustering column below one parent.
const FAN_OUT_MAX: i64 = 10_000_000;

/// A row: the values of the clustering columns, then those of the other columns.
pub(super) type Row = Vec<Option<Vec<u8>>>;

/// How the partitions of a table are generated.
#[derive(Debug, Clone)]
pub(super) struct PartitionGenerator {
    pub(super) keys: Vec<(String, Generator)>,
    pub(super) clustering: Vec<(String, CqlType, Generator)>,
    pub(super) values: Vec<(String, Generator)>,
    order: Order,
    /// Rows below one value of each clustering column, on average.
    descendants: Vec<i64>,
    /// Values of each clustering column, on average.
    averages: Vec<i64>,
}

/// Values of the first clustering columns, as many as bound a slice.
pub(super) type Bound = Vec<Vec<u8>>;

/// Place of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Key(usize),
    /// Clustering columns first.
    Row(usize),
}

impl PartitionGenerator {
    pub(super) fn new(
        keys: Vec<(String, Generator)>,
        clustering: Vec<(String, CqlType, Generator)>,
        values: Vec<(String, Generator)>,
        order: Order,
    ) -> Self {
        let averages: Vec<i64> =
            clustering.iter().map(|(_, _, generator)| generator.cluster.average().max(1)).collect();
        let mut descendants = vec![1_i64; averages.len()];
        for depth in (0..averages.len().saturating_sub(1)).rev() {
            descendants[depth] = averages[depth + 1].saturating_mul(descendants[depth + 1]);
        }
        Self { keys, clustering, values, order, descendants, averages }
    }

    pub(super) fn place(&self, name: &str) -> Option<Place> {
        if let Some(index) = self.keys.iter().position(|(key, _)| key == name) {
            return Some(Place::Key(index));
        }
        let clustering = self.clustering.iter().map(|(column, ..)| column);
        let values = self.values.iter().map(|(column, _)| column);
        clustering.chain(values).position(|column| column == name).map(Place::Row)
    }

    /// Fewest and most rows of a partition.
    pub(super) fn row_counts(&self) -> (f64, f64) {
        let product = |count: fn(&Generator) -> i64| {
            self.clustering.iter().map(|(_, _, generator)| count(generator) as f64).product()
        };
        (product(|generator| generator.cluster.min()), product(|generator| generator.cluster.max()))
    }
}

/// The rows that a visit takes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Share {
    /// Each with a probability.
    Chance(f64),
    /// About so many.
    Count(i64),
}

/// One visit to a partition.
#[derive(Debug)]
pub(super) struct Partition<'a> {
    generator: &'a mut PartitionGenerator,
    seed: Rc<Seed>,
    /// The partition key's values.
    pub(super) key: Vec<Vec<u8>>,
    id_seed: i64,
    order: Order,
    populated: f64,
    is_write: bool,
    is_first_write: bool,
    has_next: bool,
    use_chance: f64,
    chance_modifier: Vec<f64>,
    roll_modifier: Vec<f64>,
    /// The values that are still to be visited at each depth, below the first value of the previous depth.
    components: Vec<VecDeque<Vec<u8>>>,
    seeds: Vec<i64>,
    current: Vec<i64>,
    last: Vec<i64>,
    path: Vec<Vec<u8>>,
}

impl<'a> Partition<'a> {
    fn begin(generator: &'a mut PartitionGenerator, seed: Rc<Seed>, order: Order) -> Self {
        let mut id_seed = 0;
        let mut key = Vec::with_capacity(generator.keys.len());
        for (_, column) in &mut generator.keys {
            let mut value = Vec::new();
            column.set_seed(seed.value);
            column.append(&mut value);
            id_seed = column.child_seed(&value, id_seed);
            key.push(value);
        }
        let depth = generator.clustering.len();
        Self {
            seed,
            key,
            id_seed,
            order,
            populated: 1.0,
            is_write: false,
            is_first_write: false,
            has_next: true,
            use_chance: 1.0,
            chance_modifier: vec![1.0; depth],
            roll_modifier: vec![1.0; depth],
            components: vec![VecDeque::new(); depth],
            seeds: vec![0; depth],
            current: vec![0; depth],
            last: vec![0; depth],
            path: vec![Vec::new(); depth],
            generator,
        }
    }

    /// Visits the partition of `seed`; `None` if nothing of it is left to write.
    pub(super) fn visit(
        generator: &'a mut PartitionGenerator,
        manager: &mut SeedManager,
        seed: Rc<Seed>,
        share: Share,
        populated: f64,
        is_write: bool,
        random: &mut JavaRandom,
    ) -> Option<Self> {
        let order = generator.order;
        let mut visit = Self::begin(generator, seed, order);
        visit.populated = populated;
        visit.is_write = is_write;
        if visit.components.is_empty() {
            return Some(visit);
        }
        visit.generator.clustering[0].2.set_seed(visit.id_seed);
        let first = visit.generator.clustering[0].2.cluster.next().max(1);
        let position = visit.seed.position();
        let expected = if is_write {
            first.saturating_mul(visit.generator.descendants[0])
        } else if position != 0 {
            visit.set_last(position - 1)
        } else {
            visit.last.fill(i64::MAX);
            first.saturating_mul(visit.generator.descendants[0])
        };
        visit.use_chance = match share {
            Share::Chance(chance) => chance,
            Share::Count(count) => (count as f64 / expected.max(1) as f64).clamp(0.0, 1.0),
        };
        visit.chance_modifier[0] = visit.generator.descendants[0] as f64;
        if visit.use_chance < 1.0 {
            visit.chance_modifier[0] = 1.0;
        }
        visit.fill(0, random);
        if !is_write {
            return visit.seek(0, manager, random).then_some(visit);
        }
        let (_, most) = visit.generator.row_counts();
        let count = if visit.seed.visits == 1 {
            (most as i64).saturating_add(1)
        } else {
            (expected / visit.seed.visits.max(1)).max(1)
        };
        let position = visit.seed.move_forwards(count);
        visit.is_first_write = position == 0;
        visit.set_last(position.saturating_add(count - 1));
        visit.seek(position, manager, random).then_some(visit)
    }

    /// Visits all rows between two that are chosen at random, by their first `depth` clustering columns, both
    /// included; the bounds' values.
    pub(super) fn between(
        generator: &'a mut PartitionGenerator,
        manager: &mut SeedManager,
        seed: Rc<Seed>,
        depth: usize,
        random: &mut JavaRandom,
    ) -> Option<(Self, Bound, Bound)> {
        let mut visit = Self::begin(generator, seed, Order::Sorted);
        if visit.components.is_empty() {
            return Some((visit, Vec::new(), Vec::new()));
        }
        visit.chance_modifier[0] = visit.generator.descendants[0] as f64;
        visit.last.fill(i64::MAX);
        visit.fill(0, random);
        if depth == 0 {
            return visit.seek(0, manager, random).then_some((visit, Vec::new(), Vec::new()));
        }
        let (mut low, mut high) = (visit.bound(depth, random), visit.bound(depth, random));
        if low.0 > high.0 {
            std::mem::swap(&mut low, &mut high);
        }
        // Below the chosen columns a bound includes everything.
        visit.last.fill(i64::MAX);
        visit.last[..depth].copy_from_slice(&high.0);
        visit.current.fill(0);
        visit.current[..depth].copy_from_slice(&low.0);
        visit.seek_current(manager, random).then_some((visit, low.1, high.1))
    }

    fn bound(&mut self, depth: usize, random: &mut JavaRandom) -> (Vec<i64>, Vec<Vec<u8>>) {
        let (mut positions, mut values) = (Vec::new(), Vec::new());
        let whole = self.components[0].clone();
        for level in 0..depth {
            if level > 0 {
                self.fill(level, random);
            }
            let place = random.below(self.components[level].len());
            positions.push(place as i64);
            values.push(self.components[level][place].clone());
            // The values below depend on the first value.
            self.components[level].drain(..place);
            self.child_seed(level);
        }
        self.components[0] = whole;
        self.child_seed(0);
        self.components[1..].iter_mut().for_each(VecDeque::clear);
        (positions, values)
    }

    /// The seed below the first value at `depth`.
    fn child_seed(&mut self, depth: usize) {
        let parent = if depth == 0 { self.id_seed } else { self.seeds[depth - 1] };
        let value = self.components[depth].front().map_or(&[][..], Vec::as_slice);
        self.seeds[depth] = self.generator.clustering[depth].2.child_seed(value, parent);
    }

    /// Generates the values of a depth, below the first value of the previous depth.
    fn fill(&mut self, depth: usize, random: &mut JavaRandom) {
        if depth > 0 {
            self.child_seed(depth - 1);
        }
        let parent = if depth == 0 { self.id_seed } else { self.seeds[depth - 1] };
        let (_, ty, generator) = &mut self.generator.clustering[depth];
        generator.set_seed(parent);
        let count = generator.cluster.next().clamp(1, FAN_OUT_MAX) as usize;
        let mut values: Vec<Vec<u8>> = Vec::with_capacity(count);
        let mut known = hashbrown::HashSet::<Vec<u8>, foldhash::fast::FixedState>::default();
        for _ in 0..count {
            let mut value = Vec::new();
            generator.append(&mut value);
            if count == 1 || known.insert(value.clone()) {
                values.push(value);
            }
        }
        match self.order {
            Order::Arbitrary => {}
            Order::Sorted => values.sort_by(|a, b| model::compare::compare(ty, a, b)),
            Order::Shuffled => {
                for place in 0..values.len() {
                    let other = place + random.below(values.len() - place);
                    values.swap(place, other);
                }
            }
        }
        self.components[depth] = values.into();
        self.child_seed(depth);
    }

    /// Limits the visit to the rows up to number `position`; how many rows that is, about.
    fn set_last(&mut self, position: i64) -> i64 {
        self.last = self.decompose(position);
        let rows = self.last.iter().zip(&self.generator.descendants);
        rows.fold(1_i64, |sum, (count, each)| sum.saturating_add(count.saturating_mul(*each)))
    }

    /// A row's number as places at each depth.
    fn decompose(&self, mut position: i64) -> Vec<i64> {
        let mut places: Vec<i64> = Vec::with_capacity(self.generator.descendants.len());
        for each in &self.generator.descendants {
            places.push(position / each);
            position %= each;
        }
        for depth in (1..places.len()).rev() {
            let average = self.generator.averages[depth];
            if places[depth] >= average {
                places[depth - 1] += places[depth] / average;
                places[depth] %= average;
            }
        }
        places
    }

    fn seek(&mut self, position: i64, manager: &mut SeedManager, random: &mut JavaRandom) -> bool {
        if position == 0 {
            self.current[0] = -1;
            let has_next = self.advance(0, true, random);
            return self.set_has_next(has_next, manager);
        }
        self.current = self.decompose(position);
        self.seek_current(manager, random)
    }

    fn seek_current(&mut self, manager: &mut SeedManager, random: &mut JavaRandom) -> bool {
        for depth in 0..self.current.len() {
            if depth > 0 {
                self.fill(depth, random);
            }
            let skip = usize::try_from(self.current[depth]).unwrap_or(usize::MAX);
            let skip = skip.min(self.components[depth].len());
            self.components[depth].drain(..skip);
            if self.components[depth].is_empty() {
                // There is no such row: go up, on, and down again.
                let mut up = depth;
                loop {
                    let Some(above) = up.checked_sub(1) else { return self.set_has_next(false, manager) };
                    up = above;
                    self.components[up].pop_front();
                    if !self.components[up].is_empty() {
                        break;
                    }
                }
                self.current[up] += 1;
                self.path[up] = self.components[up][0].clone();
                self.current[up + 1..].fill(0);
                while up < depth {
                    up += 1;
                    self.fill(up, random);
                }
            }
            self.path[depth] = self.components[depth][0].clone();
        }
        let deepest = self.current.len() - 1;
        if self.compare_to_last(deepest) > 0 {
            return self.set_has_next(false, manager);
        }
        // The first row is visited as if the one before it had been.
        self.current[deepest] -= 1;
        let has_next = self.advance(deepest, true, random);
        self.set_has_next(has_next, manager)
    }

    /// Whether the present row is before, at, or behind the last one, judged by the columns up to `depth`.
    fn compare_to_last(&self, depth: usize) -> i64 {
        let mut before = 0;
        for level in 0..=depth {
            let (place, last, left) = (self.current[level], self.last[level], self.components[level].len());
            if before < 0 {
                if left > 1 {
                    return -1;
                }
            } else if place > last {
                return 1;
            } else if place < last {
                if left != 1 {
                    return -1;
                }
                before = place - last;
            }
        }
        0
    }

    /// Moves to the next row that is visited; with `first`, to the present one if it is visited.
    fn advance(&mut self, mut depth: usize, first: bool, random: &mut JavaRandom) -> bool {
        if !first {
            self.components[depth].pop_front();
        }
        self.current[depth] += 1;
        loop {
            if self.components[depth].is_empty() {
                let Some(above) = depth.checked_sub(1) else { return false };
                depth = above;
                self.components[depth].pop_front();
                self.current[depth] += 1;
                if self.current[depth] > self.last[depth] {
                    return false;
                }
                continue;
            }
            let compared = self.compare_to_last(depth);
            if compared > 0 {
                return false;
            }
            // The chance to go down is that of one row times the rows below, made up for the chances already
            // taken.
            let chance = self.use_chance * self.chance_modifier[depth];
            let must = first && compared == 0;
            if must || chance > 0.99999 || chance >= random.next_f64() {
                self.path[depth] = self.components[depth][0].clone();
                depth += 1;
                if depth == self.components.len() {
                    return true;
                }
                if self.use_chance < 1.0 {
                    self.roll_modifier[depth] =
                        self.roll_modifier[depth - 1] / chance.clamp(f64::MIN_POSITIVE, 1.0);
                    self.chance_modifier[depth] =
                        self.generator.descendants[depth] as f64 * self.roll_modifier[depth];
                } else {
                    self.chance_modifier[depth] = self.generator.descendants[depth] as f64;
                }
                self.current[depth] = 0;
                self.fill(depth, random);
                continue;
            }
            if compared >= 0 {
                return false;
            }
            self.components[depth].pop_front();
            self.current[depth] += 1;
        }
    }

    fn set_has_next(&mut self, has_next: bool, manager: &mut SeedManager) -> bool {
        self.has_next = has_next;
        if !has_next && self.is_write {
            let is_last = self.components[0].is_empty();
            if self.is_first_write {
                manager.first_write_done(&self.seed, is_last);
            }
            if is_last {
                manager.last_write_done(&self.seed);
            }
        }
        has_next
    }

    /// The next row.
    pub(super) fn next(&mut self, manager: &mut SeedManager, random: &mut JavaRandom) -> Option<Row> {
        if !self.has_next {
            return None;
        }
        let depth = self.components.len();
        let mut row: Row = self.path.iter().cloned().map(Some).collect();
        let row_seed = match depth {
            0 => self.id_seed,
            _ => {
                self.child_seed(depth - 1);
                self.seeds[depth - 1]
            }
        };
        let all = self.generator.values.len() as f64;
        for (index, (_, column)) in self.generator.values.iter_mut().enumerate() {
            row.push(((index + 1) as f64 / all <= self.populated).then(|| {
                let mut value = Vec::new();
                column.set_seed(row_seed);
                column.append(&mut value);
                value
            }));
        }
        if depth == 0 {
            self.has_next = false;
            if self.is_write {
                manager.first_write_done(&self.seed, true);
                manager.last_write_done(&self.seed);
            }
        } else {
            let has_next = self.advance(depth - 1, false, random);
            self.set_has_next(has_next, manager);
        }
        Some(row)
    }
}

#[cfg(test)]
mod tests;
