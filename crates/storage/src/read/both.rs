//! One row that both a memtable and the row cache may have: merged at once, without waiting and without
//! allocating.
//!
//! Rows that are written again and again are read like this: flushed writes are in the cache, newer ones in
//! the memtable. Anything less simple (a gap in the cache, static rows, range tombstones, versions that
//! readers pin) is read by the general merge.

use std::rc::Rc;

use model::reconcile::{deletion, merge_rows};
use model::{DeletionTime, RowView, Token, Unfiltered};

use super::dead::Graves;
use super::partition::{Reader, passed};
use super::visible::{Pair, visible};
use super::{Flow, RowConsumer};
use crate::cache::{Claim, Sought, Walked};
use crate::memtable::{Memtable, PartitionRef, VersionCursor};
use crate::tablet::Tablet;

/// The outcome of [`Reader::row_of_both`]. Unless the row was handed over, a merge has to read it.
pub(super) enum Both {
    /// The row, or that there is none.
    HandedOver(Flow),
    /// Nothing: the row cache has the partition and lacks the row.
    Gap,
    /// Nothing: the partition is not of the simple kind, or not in the row cache.
    Merge,
}

impl Reader<'_> {
    /// Hands over the one row that is requested.
    ///
    /// The memtable is the tablet's only one, and the version the partition's only one.
    #[inline(never)]
    pub(super) fn row_of_both(
        &mut self,
        (tablet, claim): (&Tablet, Claim),
        (memtable, partition, version): (&Rc<Memtable>, PartitionRef, u32),
        (token, key): (Token, &[u8]),
        consumer: &mut dyn RowConsumer,
    ) -> Both {
        let mut pair = std::mem::take(&mut self.scratch.pair);
        let flow = self.merge_both(
            &mut pair,
            (tablet, claim),
            (memtable, partition, version),
            (token, key),
            consumer,
        );
        self.scratch.pair = pair;
        flow
    }

    fn merge_both(
        &mut self,
        pair: &mut Pair,
        (tablet, claim): (&Tablet, Claim),
        (memtable, partition, version): (&Rc<Memtable>, PartitionRef, u32),
        (token, key): (Token, &[u8]),
        consumer: &mut dyn RowConsumer,
    ) -> Both {
        let shape = self.shape();
        let (table, now) = (&self.command.table, self.command.now);
        let contents = memtable.contents();
        let (own_deletion, own_static) = contents.head(partition, version);
        let mut cursor = VersionCursor::new(partition, version);
        let own = match cursor.next(&contents, shape) {
            None => None,
            Some(Unfiltered::Row { clustering, row }) => Some((clustering, row)),
            Some(Unfiltered::Change { .. }) => return Both::Merge,
        };
        if own_static.is_some() || cursor.next(&contents, shape).is_some() {
            return Both::Merge;
        }
        let (mut cached_deletion, mut is_plain) = (DeletionTime::LIVE, true);
        pair.cached.clear();
        let sought = Sought { token, key, orders: shape.orders };
        let walked = tablet.cache().walk(claim, sought, shape, &mut |head, found| {
            cached_deletion = head.deletion;
            is_plain &= head.static_row.is_none();
            if let Some((clustering, row)) = found {
                // One row is asked for: a second cannot be.
                is_plain &= pair.cached.is_empty();
                pair.clustering.clear();
                pair.clustering.extend_from_slice(clustering);
                pair.cached.extend_from_slice(row.as_bytes());
            }
            Flow::Continue
        });
        match walked {
            Walked::Done(_) if is_plain => {}
            Walked::Left(_) => return Both::Gap,
            Walked::Done(_) | Walked::Unknown => return Both::Merge,
        }
        let cached = (!pair.cached.is_empty()).then(|| RowView::trusted(&pair.cached));
        let (clustering, row) = match (own, cached) {
            (Some((clustering, own)), Some(cached)) => {
                pair.merged.clear();
                merge_rows(table, own, cached, &mut pair.merged);
                (clustering, Some(RowView::trusted(&pair.merged)))
            }
            (Some((clustering, own)), None) => (clustering, Some(own)),
            (None, Some(cached)) => (pair.clustering.as_slice(), Some(cached)),
            (None, None) => (&[][..], None),
        };
        let graves = Graves::new(table, now);
        let whole = deletion(own_deletion, cached_deletion);
        let there = row.is_some();
        let row = row.and_then(|row| visible(table, row, whole, now, &graves, &mut self.scratch));
        if there && graves.found_any() {
            let place = passed(clustering, row.is_some(), shape.reversed);
            if graves.say((token, key), Some(place), consumer) == Flow::Stop {
                return Both::HandedOver(Flow::Stop);
            }
        }
        let Some(row) = row else { return Both::HandedOver(graves.partition((token, key), consumer)) };
        let mut flow = consumer.partition(key, token, None);
        if flow == Flow::Continue {
            flow = consumer.row(clustering, row);
        }
        Both::HandedOver(if flow == Flow::Stop { Flow::Stop } else { consumer.partition_end() })
    }
}
