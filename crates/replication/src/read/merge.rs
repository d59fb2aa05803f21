//! Merges the pages of several replicas, hands live rows to the reader, and finds what each replica lacks.
//!
//! A merge is valid up to the first place, in reading order, at which a page of any replica ends: what lies
//! behind it is not shown, counted or repaired before that replica was asked on. The same holds within a
//! partition of which a page left out the rest. Invariant: what the reader gets is what one replica with all
//! the replicas' writes would give it.

use std::cmp::Ordering;

use model::clustering::{ClusteringOrder, Position};
use model::mutation::MutationView;
use model::partition_key::{DecoratedKey, compare_decorated};
use model::reconcile::Purge;
use model::{PartitionContents, Token, diff};
use storage::{Dead, Flow, Place, ReadCommand, RowConsumer, Shown, Slices, VisibleScratch};
use wire::node::answer::{Answer, End};

use super::position::resume_after;
use crate::plan::Planned;

/// How far a reader has come in a partition.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Inside {
    /// Whether the partition was announced.
    pub(super) announced: bool,
    /// Rows of it that were handed over.
    pub(super) rows: usize,
}

/// Where a read goes on behind a page.
#[derive(Debug)]
pub(super) enum Next {
    /// Nowhere: the reader has enough.
    Stopped,
    /// Behind all that was asked for.
    Done,
    /// Behind a partition.
    Behind(DecoratedKey),
    /// Within a partition: the slices that are left of it.
    Within(DecoratedKey, Slices, Inside),
}

/// A page that was handed over.
#[derive(Debug)]
pub(super) struct Merged {
    pub(super) next: Next,
    /// Mutations that replicas lack, by their number among the answers.
    pub(super) lacking: Vec<(usize, Vec<u8>)>,
}

/// The merge of the pages of several replicas.
pub(super) struct Merge<'a, 'r> {
    pub(super) command: &'a ReadCommand,
    pub(super) rows_per_partition: Option<usize>,
    pub(super) purge: Purge,
    /// Whether the replicas are told what they lack.
    pub(super) repairs: bool,
    pub(super) answers: &'a [(Planned, Answer<'r>)],
    /// How far the reader has come in the first partition.
    pub(super) inside: Option<Inside>,
}

impl<'r> Merge<'_, 'r> {
    /// Hands the merge to `consumer`.
    pub(super) async fn hand_over(mut self, consumer: &mut dyn RowConsumer) -> Merged {
        let (answers, end) = (self.answers, self.end());
        let table = &*self.command.table;
        let orders = table.clustering_orders();
        let mut lacking = Vec::new();
        let mut nexts = vec![0; answers.len()];
        loop {
            let heads = answers.iter().zip(&nexts).filter_map(|((_, answer), at)| answer.partitions.get(*at));
            let first = heads.map(|head| (head.mutation.token, head.mutation.key));
            let Some((token, key)) = first.min_by(|a, b| compare_decorated(*a, *b)) else { break };
            if end.is_some_and(|end| compare_decorated((token, key), (end.token, end.key)).is_gt()) {
                break;
            }
            let pieces: Vec<_> = answers
                .iter()
                .zip(&mut nexts)
                .map(|((_, answer), at)| {
                    let head = answer.partitions.get(*at).filter(|head| head.mutation.key == key);
                    *at += usize::from(head.is_some());
                    head
                })
                .collect();
            let until = pieces
                .iter()
                .map(|piece| piece.and_then(|piece| piece.until))
                .min_by(|a, b| reading_order(*a, *b, self.command.reversed, orders))
                .flatten();
            let views: Vec<MutationView<'_>> = pieces.iter().flatten().map(|piece| piece.mutation).collect();
            let mut merged = PartitionContents::merge(table, &views);
            if let Some(until) = until {
                merged.cut(until, self.command.reversed, orders);
            }
            if self.repairs {
                let pieces = pieces.iter().map(|piece| piece.map(|piece| piece.mutation));
                self.find_lacking((token, key), &merged, (pieces, until), &mut lacking);
            }
            let left = until.map(|until| {
                let mut slices = self.command.slices.clone();
                resume_after(&mut slices, until, self.command.reversed, orders);
                slices
            });
            let left = left.filter(|left| !left.is_empty());
            let mut inside = self.inside.take().unwrap_or_default();
            match self.show((token, key), &merged, (until, left.is_some()), &mut inside, consumer) {
                Shows::Stop => return Merged { next: Next::Stopped, lacking },
                Shows::Enough => {}
                Shows::More => {
                    if let Some(left) = left {
                        let key = DecoratedKey { token, key: key.to_vec() };
                        return Merged { next: Next::Within(key, left, inside), lacking };
                    }
                }
            }
            reactor::maybe_yield().await;
        }
        // The rest of a partition of which no replica has anything.
        if let Some(Inside { announced: true, .. }) = self.inside.take()
            && consumer.partition_end() == Flow::Stop
        {
            return Merged { next: Next::Stopped, lacking };
        }
        let next = match end {
            None => Next::Done,
            Some(end) => Next::Behind(DecoratedKey { token: end.token, key: end.key.to_vec() }),
        };
        Merged { next, lacking }
    }

    /// The first place at which an answer ends.
    fn end(&self) -> Option<End<'r>> {
        let orders = self.command.table.clustering_orders();
        self.answers.iter().filter_map(|(_, answer)| answer.end).min_by(|a, b| {
            let keys = compare_decorated((a.token, a.key), (b.token, b.key));
            keys.then_with(|| reading_order(a.position, b.position, self.command.reversed, orders))
        })
    }

    /// Finds what each replica lacks of a partition.
    fn find_lacking<'m>(
        &self,
        (token, key): (Token, &[u8]),
        merged: &PartitionContents,
        (pieces, until): (impl Iterator<Item = Option<MutationView<'m>>>, Option<Position<'_>>),
        lacking: &mut Vec<(usize, Vec<u8>)>,
    ) {
        let table = &*self.command.table;
        for (at, piece) in pieces.enumerate() {
            let mut own = PartitionContents::merge(table, piece.as_slice());
            if let Some(until) = until {
                own.cut(until, self.command.reversed, table.clustering_orders());
            }
            if own == *merged {
                continue;
            }
            // Tombstones that any replica may have forgotten shadow in the merge and are not spread again.
            let lacks = diff(table, merged, &own).without_purgeable(&self.purge);
            if !lacks.is_empty() {
                let mut mutation = Vec::new();
                lacks.append_mutation(&mut mutation, table.id(), token, key);
                lacking.push((at, mutation));
            }
        }
    }

    /// Hands the live rows of a partition, or of a part of it that ends at `until`, to the reader.
    fn show(
        &self,
        (token, key): (Token, &[u8]),
        contents: &PartitionContents,
        (until, is_part): (Option<Position<'_>>, bool),
        inside: &mut Inside,
        consumer: &mut dyn RowConsumer,
    ) -> Shows {
        let (table, now, reversed) = (&*self.command.table, self.command.now, self.command.reversed);
        let (mut of_rows, of_static) = (Shown::new(table, now), Shown::new(table, now));
        let (mut scratch, mut static_scratch) = (VisibleScratch::default(), VisibleScratch::default());
        let static_row = contents.static_row().and_then(|row| of_static.row(row, &mut static_scratch));
        contents.ranges().iter().for_each(|range| of_rows.range(range.deletion));
        let place = |position| Place { token, key, position };
        let (mut forwards, mut backwards) = (contents.rows(), contents.rows().rev());
        while let Some((clustering, row)) = if reversed { backwards.next() } else { forwards.next() } {
            // What is not live counts as dead; it is reported before the next live row.
            let row = of_rows.row(row, &mut scratch);
            let dead = of_rows.take_dead();
            if dead != Dead::default() {
                let at = match (row.is_some(), reversed) {
                    (false, _) => Position::row(clustering),
                    (true, false) => Position::before(clustering),
                    (true, true) => Position::after(clustering),
                };
                if consumer.dead(dead, place(Some(at))) == Flow::Stop {
                    return Shows::Stop;
                }
            }
            let Some(row) = row else { continue };
            let mut flow = Flow::Continue;
            if !inside.announced {
                inside.announced = true;
                flow = consumer.partition(key, token, static_row);
            }
            if flow == Flow::Continue {
                flow = consumer.row(clustering, row);
                inside.rows += 1;
            }
            match flow {
                Flow::Continue => {}
                Flow::SkipPartition => return Shows::end(consumer),
                Flow::Stop => return Shows::Stop,
            }
        }
        if is_part && self.rows_per_partition.is_none_or(|most| inside.rows < most.max(1)) {
            let dead = of_rows.take_dead();
            if dead != Dead::default() && consumer.dead(dead, place(until)) == Flow::Stop {
                return Shows::Stop;
            }
            return Shows::More;
        }
        if !inside.announced {
            if static_row.is_none() {
                of_rows.dead_partition();
                let dead = of_rows.take_dead();
                return if consumer.dead(dead, place(None)) == Flow::Stop {
                    Shows::Stop
                } else {
                    Shows::Enough
                };
            }
            if consumer.partition(key, token, static_row) == Flow::Stop {
                return Shows::Stop;
            }
        }
        Shows::end(consumer)
    }
}

/// What a reader wants behind the part of a partition that it was shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shows {
    /// The rest of the partition, if there is one.
    More,
    /// The next partition.
    Enough,
    /// Nothing.
    Stop,
}

impl Shows {
    /// Ends a partition that was announced.
    fn end(consumer: &mut dyn RowConsumer) -> Self {
        if consumer.partition_end() == Flow::Stop { Self::Stop } else { Self::Enough }
    }
}

/// The order of two places of a partition in reading order; `None` is its end.
fn reading_order(
    a: Option<Position<'_>>,
    b: Option<Position<'_>>,
    reversed: bool,
    orders: &[ClusteringOrder],
) -> Ordering {
    match (a, b) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (Some(a), Some(b)) if reversed => b.compare(a, orders),
        (Some(a), Some(b)) => a.compare(b, orders),
    }
}
