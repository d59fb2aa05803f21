//! Routings as requests find them, while maps come, change and go.

use std::collections::BTreeMap;

use model::schema::{TableDefinition, TableOptions};

use super::*;
use crate::maps::Placed;

fn table(tablets_log2: u8) -> Table {
    Table::new(TableDefinition {
        id: TableId([1; 16]),
        keyspace: "k".to_owned(),
        name: "t".to_owned(),
        columns: Vec::new(),
        dropped: BTreeMap::new(),
        options: TableOptions::default(),
        next_column_id: 0,
        tablets_log2,
        revision: 0,
    })
}

fn map(version: u64, shard: u16) -> News {
    let tablets = vec![vec![Placed { node: FIRST_NODE, shard, since: 1, ..Placed::default() }]; 2];
    News {
        maps: vec![(TableId([1; 16]), MapParts { version, log2: 1, tablets, ..MapParts::default() })],
        ..News::default()
    }
}

#[test]
fn a_routing_is_the_latest_for_new_requests_and_the_same_for_older_ones() {
    reactor::sim::run_one(1, || async {
        let (view, coarse, fine) = (View::here(), table(1), table(4));
        let version = |table: &Table| view.with_routing(table, |routing| routing.version());
        assert_eq!(version(&coarse), 0, "a table without a map is this node's alone");
        view.learn(&map(5, 0));
        let held = view.with_routing(&coarse, Rc::clone);
        view.learn(&map(8, 0));
        assert_eq!((held.version(), version(&coarse)), (5, 8));
        view.learn(&News { gone: vec![coarse.id()], ..News::default() });
        // Made again with its id and another cut.
        assert_eq!((version(&fine), version(&coarse)), (0, 0));
        assert_eq!(view.with_routing(&fine, |routing| routing.tablets()), fine.tablets());
    });
}

#[test]
fn a_later_routing_is_waited_for_until_the_deadline() {
    reactor::sim::run_one(1, || async {
        let (view, table) = (View::here(), table(1));
        view.learn(&map(5, 0));
        let soon = || Deadline::after(std::time::Duration::from_secs(1));
        assert!(view.wait_for_later(&table, 4, soon()).await);
        assert!(!view.wait_for_later(&table, 5, soon()).await);
        let learning = reactor::spawn(reactor::Group::CONTROL, async {
            reactor::sleep(std::time::Duration::from_millis(10)).await;
            View::here().learn(&map(6, 0));
        });
        assert!(view.wait_for_later(&table, 5, soon()).await);
        learning.await.expect("a task");
    });
}
