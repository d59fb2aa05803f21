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
use model::tombstones::RangeTombstone;
use model::{DeletionTime, PartitionContents, Table, Token, diff};
use smallvec::SmallVec;
use storage::{Dead, Flow, Place, ReadCommand, RowConsumer, Shown, Slices, VisibleScratch};
use wire::node::answer::{Answer, End, Partition};

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
    /// Whether the replicas are told what they lack, in mutations of at most so many bytes where rows can be
    /// parted.
    pub(super) repairs: Option<usize>,
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
            let merged = self.merge((token, key), &pieces, until, &mut lacking).await;
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

    /// Merges what the replicas have of a partition before `until`, and finds what each of them lacks.
    async fn merge(
        &self,
        key: (Token, &[u8]),
        pieces: &[Option<&Partition<'r>>],
        until: Option<Position<'_>>,
        lacking: &mut Vec<(usize, Vec<u8>)>,
    ) -> PartitionContents {
        let table = &*self.command.table;
        let mutations: SmallVec<[Option<MutationView<'_>>; 5]> =
            pieces.iter().map(|piece| piece.map(|piece| piece.mutation)).collect();
        let mut different: SmallVec<[MutationView<'_>; 5]> = SmallVec::new();
        for mutation in mutations.iter().flatten() {
            if different.iter().all(|other| other.as_bytes() != mutation.as_bytes()) {
                different.push(*mutation);
            }
        }
        let mut merged = PartitionContents::merge(table, &different);
        if let Some(until) = until {
            merged.cut(until, self.command.reversed, table.clustering_orders());
        }
        reactor::maybe_yield().await;
        let all_have_it = different.len() == 1 && mutations.iter().all(Option::is_some);
        if let Some(bytes_max) = self.repairs
            && !all_have_it
        {
            let lacks = Lacks { table, key, merged: &merged, until, bytes_max };
            self.find_lacking(&lacks, &mutations, lacking).await;
        }
        merged
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
    async fn find_lacking(
        &self,
        lacks: &Lacks<'_>,
        mutations: &[Option<MutationView<'_>>],
        lacking: &mut Vec<(usize, Vec<u8>)>,
    ) {
        for (at, mutation) in mutations.iter().enumerate() {
            let mut own = PartitionContents::merge(lacks.table, mutation.as_slice());
            if let Some(until) = lacks.until {
                own.cut(until, self.command.reversed, lacks.table.clustering_orders());
            }
            if own != *lacks.merged {
                // Tombstones that a replica may have forgotten shadow in the merge and are not spread again.
                let rest = diff(lacks.table, lacks.merged, &own).without_purgeable(&self.purge);
                lacks.append(rest, at, lacking);
            }
            reactor::maybe_yield().await;
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
        let orders = table.clustering_orders();
        let mut shown = Shown::new(table, now);
        let (mut scratch, mut static_scratch) = (VisibleScratch::default(), VisibleScratch::default());
        let static_row = contents.static_row().and_then(|row| shown.row(row, &mut static_scratch));
        if inside.announced {
            // The dead cells of the static row were told with an earlier page.
            shown.take_dead();
        }
        let mut changes = Changes::new(contents.ranges(), reversed);
        let place = |position| Place { token, key, position };
        let (mut forwards, mut backwards) = (contents.rows(), contents.rows().rev());
        while let Some((clustering, row)) = if reversed { backwards.next() } else { forwards.next() } {
            let at = Position::row(clustering);
            if changes.tell_before(Some(at), orders, &mut shown, (token, key), consumer) == Flow::Stop {
                return Shows::Stop;
            }
            // What is not live counts as dead; it is reported before the next live row.
            let row = shown.row(row, &mut scratch);
            let dead = shown.take_dead();
            if dead != Dead::default() {
                let at = passed(clustering, row.is_some(), reversed);
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
        if changes.tell_before(until, orders, &mut shown, (token, key), consumer) == Flow::Stop {
            return Shows::Stop;
        }
        if is_part && self.rows_per_partition.is_none_or(|most| inside.rows < most.max(1)) {
            return Shows::More;
        }
        if !inside.announced {
            if static_row.is_none() {
                shown.dead_partition();
                let dead = shown.take_dead();
                return Shows::behind(consumer.dead(dead, place(None)));
            }
            if consumer.partition(key, token, static_row) == Flow::Stop {
                return Shows::Stop;
            }
        }
        Shows::end(consumer)
    }
}

/// What replicas may lack of one partition.
struct Lacks<'m> {
    table: &'m Table,
    key: (Token, &'m [u8]),
    merged: &'m PartitionContents,
    until: Option<Position<'m>>,
    bytes_max: usize,
}

impl Lacks<'_> {
    /// Appends `rest` as mutations for the replica with the number `at`.
    fn append(&self, rest: PartitionContents, at: usize, lacking: &mut Vec<(usize, Vec<u8>)>) {
        let (token, key) = self.key;
        let mut left = vec![rest];
        while let Some(rest) = left.pop().filter(|rest| !rest.is_empty()) {
            let mut mutation = Vec::new();
            rest.append_mutation(&mut mutation, self.table.id(), token, key);
            if mutation.len() <= self.bytes_max {
                lacking.push((at, mutation));
                continue;
            }
            match rest.halves() {
                Ok((before, behind)) => left.extend([behind, before]),
                Err(_) => lacking.push((at, mutation)),
            }
        }
    }
}

/// The places, in reading order, at which the range deletion in force changes.
struct Changes<'c> {
    ranges: &'c [RangeTombstone],
    reversed: bool,
    /// Ranges that were passed or entered.
    entered: usize,
    /// Whether the last of these is in force.
    is_inside: bool,
}

impl<'c> Changes<'c> {
    fn new(ranges: &'c [RangeTombstone], reversed: bool) -> Self {
        Self { ranges, reversed, entered: 0, is_inside: false }
    }

    /// The range with that number in reading order: where it begins and ends, and its deletion.
    fn range(&self, number: usize) -> Option<(Position<'c>, Position<'c>, DeletionTime)> {
        let at = if self.reversed { self.ranges.len().checked_sub(number + 1)? } else { number };
        let RangeTombstone { start, end, deletion } = self.ranges.get(at)?;
        let (start, end) = (start.as_ref(), end.as_ref());
        Some(if self.reversed { (end, start, *deletion) } else { (start, end, *deletion) })
    }

    /// Tells a reader of the changes before a place; `None` for the end of the partition.
    fn tell_before(
        &mut self,
        place: Option<Position<'_>>,
        orders: &[ClusteringOrder],
        shown: &mut Shown<'_>,
        (token, key): (Token, &[u8]),
        consumer: &mut dyn RowConsumer,
    ) -> Flow {
        while let Some((at, deletion)) = self.next_before(place, orders) {
            shown.change(deletion);
            if consumer.dead(shown.take_dead(), Place { token, key, position: Some(at) }) == Flow::Stop {
                return Flow::Stop;
            }
        }
        Flow::Continue
    }

    /// The next change, if it lies before a place; `None` for the end of the partition.
    fn next_before(
        &mut self,
        place: Option<Position<'_>>,
        orders: &[ClusteringOrder],
    ) -> Option<(Position<'c>, DeletionTime)> {
        let begin = self.range(self.entered).map(|(begin, _, deletion)| (begin, deletion));
        let end = match self.is_inside {
            true => self.range(self.entered - 1).map(|(_, end, _)| end),
            false => None,
        };
        // Where one range ends and the next begins there is one change.
        let (at, deletion, enters) = match (end, begin) {
            (Some(end), Some((begin, deletion))) if begin.compare(end, orders).is_eq() => {
                (end, deletion, true)
            }
            (Some(end), _) => (end, DeletionTime::LIVE, false),
            (None, Some((begin, deletion))) => (begin, deletion, true),
            (None, None) => return None,
        };
        if reading_order(Some(at), place, self.reversed, orders).is_ge() {
            return None;
        }
        self.entered += usize::from(enters);
        self.is_inside = enters;
        Some((at, deletion))
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
        Self::behind(consumer.partition_end())
    }

    /// What a reader wants that answers so at the end of a partition.
    fn behind(flow: Flow) -> Self {
        if flow == Flow::Stop { Self::Stop } else { Self::Enough }
    }
}

/// The place of a row that the reader has passed; one that is seen is still to come.
fn passed(clustering: &[u8], is_seen: bool, reversed: bool) -> Position<'_> {
    match (is_seen, reversed) {
        (false, _) => Position::row(clustering),
        (true, false) => Position::before(clustering),
        (true, true) => Position::after(clustering),
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
