//! Long partitions: pages of replicas, and pages of readers that end at dead data.

use std::time::Duration;

use model::clustering::{OwnedPosition, Slice};
use model::mutation::MutationBuilder;
use model::partition_key::DecoratedKey;
use model::row::{CellKind, CellView};
use model::{ColumnId, DeletionTime, Liveness, RowBuilder, RowView, Token};
use reactor::Deadline;
use replication::{Consistency, ReadLimits};
use storage::{Dead, Flow, PartitionRange, Place, ReadCommand, RowConsumer};

use super::nodes::{Nodes, RF3, Reader, THREE, run};
use super::writes::{BASE, Kind, Write, prefix};

/// So long ago that it may be purged.
const OLD: u32 = 1_000_000;
/// Dead items after which a reader ends its page.
const DEAD_MAX: u32 = 50;

fn command(nodes: &Nodes, slice: Slice) -> ReadCommand {
    ReadCommand {
        table: nodes.table.clone(),
        range: PartitionRange::Key(DecoratedKey::new(vec![1])),
        slices: [slice].into_iter().collect(),
        reversed: false,
        now: BASE,
        bypass_cache: false,
    }
}

async fn give(nodes: &Nodes, to: &[u16], timestamp: i64, kind: Kind) {
    let mutation = Write { key: 1, timestamp, local: 0, base: BASE, kind }.mutation(&nodes.table);
    for node in to {
        nodes.give(*node, &mutation).await;
    }
}

/// Rows whose value expired long ago, `count` of them from `first` on.
fn expired(nodes: &Nodes, first: i32, count: i32) -> Vec<u8> {
    let (key, value) = (DecoratedKey::new(vec![1]), vec![7; 4096]);
    let mut out = Vec::new();
    let live = DeletionTime::LIVE;
    let builder = MutationBuilder::new(&mut out, nodes.table.id(), key.token, &key.key, live, |_| {});
    let mut rows = builder.rows();
    for a in first..first + count {
        rows.row(&prefix(a, Some(0)), |out| {
            let mut row = RowBuilder::new(out, Liveness::NONE, live);
            let kind = CellKind::Expiring { value: &value, ttl: 7, expires_at: OLD };
            row.cell(CellView { column: ColumnId(4), timestamp: 1, path: None, kind });
            row.finish();
        });
    }
    rows.finish();
    out
}

/// A replica's page may end within a megabyte of such data, with a digest of nothing.
#[test]
fn purgeable_data_that_fills_a_page_hides_no_row_behind_it() {
    let ran = run(1, || async {
        let nodes = Nodes::open(&RF3, &THREE, &[1, 2, 3], 0).await;
        for first in (0..300).step_by(6) {
            let mutation = expired(&nodes, first, 6);
            nodes.give(2, &mutation).await;
            nodes.give(3, &mutation).await;
        }
        give(&nodes, &[2, 3], 5, Kind::Insert(1_000, 0, 1, false)).await;
        let (deadline, mut reader) = (Deadline::after(Duration::from_secs(2)), Reader::new(None, None));
        let (command, limits) = (command(&nodes, Slice::all()), ReadLimits::default());
        let read = nodes.replicator.read(&command, limits, Consistency::Quorum, deadline, &mut reader).await;
        read.expect("a read");
        assert_eq!(reader.partitions.iter().map(|(.., rows)| rows.len()).sum::<usize>(), 1);
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

/// A reader that ends its page after [`DEAD_MAX`] dead items.
#[derive(Default)]
struct Paging {
    dead: u32,
    rows: usize,
    place: Option<OwnedPosition>,
}

impl RowConsumer for Paging {
    fn partition(&mut self, _: &[u8], _: Token, _: Option<RowView<'_>>) -> Flow {
        Flow::Continue
    }

    fn row(&mut self, _: &[u8], _: RowView<'_>) -> Flow {
        self.rows += 1;
        Flow::Continue
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }

    fn dead(&mut self, dead: Dead, place: Place<'_>) -> Flow {
        self.dead += dead.passed;
        if self.dead < DEAD_MAX {
            return Flow::Continue;
        }
        self.place = place.position.map(|position| position.to_owned());
        Flow::Stop
    }
}

#[test]
fn a_reader_that_pages_by_dead_data_comes_to_the_rows_behind_deleted_ranges() {
    let ran = run(1, || async {
        let nodes = Nodes::open(&RF3, &THREE, &[1, 2, 3], 1000).await;
        for a in 0..300 {
            give(&nodes, &[1, 2, 3], 5, Kind::DeleteRange((a, None, -1), (a, None, 1))).await;
        }
        give(&nodes, &[1, 2, 3], 5, Kind::Insert(1_000, 0, 1, false)).await;
        let mut pages = Vec::new();
        for level in [Consistency::One, Consistency::Quorum] {
            let (mut slice, mut count) = (Slice::all(), 0);
            loop {
                count += 1;
                assert!(count < 100, "at {level:?} pages end at {:?} again and again", slice.start);
                let (deadline, mut reader) = (Deadline::after(Duration::from_secs(2)), Paging::default());
                let (command, limits) = (command(&nodes, slice.clone()), ReadLimits::default());
                let read = nodes.replicator.read(&command, limits, level, deadline, &mut reader).await;
                read.expect("a read");
                match reader.place {
                    Some(place) => slice.start = place,
                    None => {
                        assert_eq!(reader.rows, 1, "the row behind all the ranges");
                        break;
                    }
                }
            }
            pages.push(count);
        }
        assert_eq!(pages[0], pages[1], "pages by this shard alone, and by several replicas");
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}
