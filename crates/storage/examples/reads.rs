//! Point reads of storage alone, for counting: `reads memory|cached|wide COUNT`.
//!
//! `memory` finds its rows in the memtable, `cached` in the row cache, `wide` there too but in one partition
//! of a thousand rows. Under `valgrind --tool=callgrind` the difference between two counts gives instructions
//! per read.

#[path = "../tests/table/mod.rs"]
mod table;

use std::rc::Rc;

use model::clustering::{Slice, append_component};
use model::partition_key::DecoratedKey;
use model::{RowView, Token};
use reactor::Deadline;
use storage::{Flow, PartitionRange, ReadCommand, RowConsumer, StorageConfig};
use table::{ID, changes, write};

const ROWS: usize = 1000;

#[derive(Default)]
struct Count(usize);

impl RowConsumer for Count {
    fn partition(&mut self, _: &[u8], _: Token, _: Option<RowView<'_>>) -> Flow {
        Flow::Continue
    }
    fn row(&mut self, _: &[u8], row: RowView<'_>) -> Flow {
        self.0 += row.cells().count();
        Flow::Continue
    }
    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().unwrap_or_else(|| "cached".into());
    let count: usize = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(10_000);
    let directory = tempfile::tempdir().expect("a directory");
    let config = StorageConfig::new(directory.path(), 64 << 20);
    let reactor = reactor::Config { pin: false, driver: reactor::DriverChoice::Poll, ..Default::default() };
    reactor::run_one(reactor, async move {
        let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
        for change in changes() {
            cluster::change_schema(&change).await.expect("a schema change");
        }
        let names: Vec<(String, String)> = (0..ROWS)
            .map(|n| {
                if kind == "wide" {
                    ("wide".into(), format!("{n:04}"))
                } else {
                    (format!("{n:04}"), "c".into())
                }
            })
            .collect();
        let value = "x".repeat(170);
        for (key, clustering) in &names {
            storage.apply(&write(key, clustering, &value, 1), Deadline::NEVER).await.expect("a write");
        }
        if kind != "memory" {
            storage.flush(ID).await.expect("a flush");
        }
        let table = storage.schema().table_by_id(ID).map(Rc::clone).expect("the table");
        let commands: Vec<ReadCommand> = names
            .iter()
            .map(|(key, clustering)| {
                let mut prefix = Vec::new();
                append_component(&mut prefix, Some(clustering.as_bytes()));
                ReadCommand {
                    table: Rc::clone(&table),
                    range: PartitionRange::Key(DecoratedKey::new(key.as_bytes().to_vec())),
                    slices: [Slice::prefix(&prefix)].into_iter().collect(),
                    reversed: false,
                    now: 1_700_000_000,
                    bypass_cache: false,
                }
            })
            .collect();
        let mut seen = Count::default();
        for n in 0..count {
            storage.read(&commands[n % ROWS], &mut seen).await.expect("a read");
        }
        println!("{kind}: {count} reads saw {} cells", seen.0);
        storage.drain().await.expect("a drain");
    });
}
