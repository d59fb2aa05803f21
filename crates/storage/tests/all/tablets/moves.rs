//! Tablets move between the shards of a node that serves.

use reactor::sim::DiskFaults;
use storage::ScrubMode;

use super::*;

#[test]
fn a_tablet_that_moved_keeps_every_row() {
    let mut node = Node::new(1);
    let mut own = all_on([0, 0, 1, 1], 0);
    let expected: Rc<RefCell<BTreeMap<String, String>>> = Rc::default();
    let places = [[1, 0, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0], [0, 1, 0, 1], [0, 0, 1, 1]];
    let first = own.clone();
    let (last, of_life) = (all_on(places[4], 0), Rc::clone(&expected));
    node.live(&first, move |storage| async move {
        for (round, shards) in places.into_iter().enumerate() {
            for number in 0..KEYS {
                let value = format!("{round}-{number}");
                put(&own, number, &value, round as i64).await.expect("a write");
                of_life.borrow_mut().insert(key(number), value);
                if number == KEYS / 2 {
                    // Half of it is in files and half in memory when the tablet goes.
                    flush(round % SHARDS).await;
                }
            }
            own = all_on(shards, 0);
            tell(&storage, &own).await;
            storage.tablets_settled().await;
            let expected = of_life.borrow().clone();
            check(&own, &expected).await;
            assert!(!numbers().await.is_empty());
        }
        // The old shards have let go of them.
        let refused = get(1, (0..KEYS).find(|number| tablet_of(&key(*number)).0 == 0).expect("a key")).await;
        let refused = refused.expect_err("a tablet that has left");
        assert!(refused.contains("tablet: 0, shard: 1, owner: Some(0)"), "{refused}");
    });
    for _ in 0..2 {
        let (last, expected) = (last.clone(), expected.borrow().clone());
        node.live(&last.clone(), move |_| async move { check(&last, &expected).await });
    }
}

#[test]
fn requests_for_an_arriving_tablet_wait_for_it() {
    let mut node = Node::new(2);
    let own = all_on([0, 0, 0, 0], 0);
    let phase = counter();
    let (first, of_life) = (own.clone(), Rc::clone(&phase));
    node.begin(&own, move |storage| async move {
        let own = first;
        for number in 0..KEYS {
            put(&own, number, "before", 1).await.expect("a write");
        }
        of_life.set(1);
        // The disk refuses writes from here on, so that no tablet can leave.
        reactor::sleep(Duration::from_secs(1)).await;
        let now = all_on([1, 1, 1, 1], 0);
        tell(&storage, &now).await;
        let late = on(1, async |storage| {
            let bytes = write(&key(0), "c", "late", 2);
            storage.apply(&bytes, Deadline::after(Duration::from_secs(2))).await.map_err(words)
        });
        let late = late.await.expect_err("a tablet that does not come");
        assert!(late.contains("TabletBusy"), "{late}");
        let waiting: Vec<_> = (0..KEYS)
            .map(|number| {
                let now = now.clone();
                reactor::spawn(Group::STATEMENT, async move {
                    if number % 2 == 0 {
                        put(&now, number, "during", 3).await.expect("a write that waits");
                    }
                    get(1, number).await.expect("a read that waits")
                })
            })
            .collect();
        let scan = reactor::spawn(Group::STATEMENT, on_shard(1));
        reactor::sleep(Duration::from_secs(2)).await;
        of_life.set(2);
        for (number, asked) in waiting.into_iter().enumerate() {
            let expected = if number % 2 == 0 { "during" } else { "before" };
            assert_eq!(asked.await.expect("an answer").as_deref(), Some(expected), "{number}");
        }
        assert_eq!(scan.await.expect("a scan").len(), KEYS, "a scan waits too");
        storage.tablets_settled().await;
        for tablet in 0..4 {
            let tokens = TabletMap::new(LOG2).range(TabletId(tablet));
            let has = async move |storage: Storage| storage.has_tablets(ID, tokens).map_err(words);
            let refused = on(0, has).await.expect_err("a tablet that has left");
            assert!(refused.contains("owner: Some(1)"), "{refused}");
            on(1, has).await.expect("its tablet");
        }
    });
    node.world.run_until(|_| phase.get() == 1).expect("writes");
    node.world.set_disk_faults(node.id, DiskFaults { write_error: 1.0, ..DiskFaults::default() });
    node.world.run_until(|_| phase.get() == 2).expect("requests that wait");
    node.world.set_disk_faults(node.id, DiskFaults::default());
    node.world.run_until(|world| world.is_ended(node.id)).expect("an end");
    assert_eq!(node.world.outcome(node.id), Some(Ok(())), "{}", node.world.log().join("\n"));
}

#[test]
fn a_tablet_that_is_sent_elsewhere_on_its_way_arrives_there() {
    let mut node = Node::new(3);
    let own = all_on([0, 0, 0, 0], 0);
    let first = own.clone();
    node.live(&own, move |storage| async move {
        let mut expected = BTreeMap::new();
        for number in 0..KEYS {
            put(&first, number, "value", 1).await.expect("a write");
            expected.insert(key(number), "value".to_owned());
        }
        let (there, back) = (all_on([1, 1, 1, 1], 0), all_on([0, 1, 0, 1], 0));
        for _ in 0..5 {
            tell(&storage, &there).await;
            tell(&storage, &first).await;
            tell(&storage, &back).await;
        }
        storage.tablets_settled().await;
        check(&back, &expected).await;
    });
}

#[test]
fn a_deleted_row_of_a_tablet_that_moved_does_not_come_back() {
    let mut node = Node::new(4);
    let (own, there) = (all_on([0, 0, 0, 0], 0), all_on([1, 1, 1, 1], 0));
    let first = own.clone();
    let of_life = there.clone();
    node.live(&own, move |storage| async move {
        for number in 0..KEYS {
            put(&first, number, "value", 1).await.expect("a write");
        }
        tell(&storage, &of_life).await;
        storage.tablets_settled().await;
        on(1, async |storage| {
            for number in 0..KEYS {
                let bytes = crate::table::delete(&key(number), 2, 1);
                storage.apply(&bytes, Deadline::NEVER).await.expect("a deletion");
            }
            storage.compact(ID).await.expect("a compaction");
            assert_eq!(storage.table_files(ID).expect("the table").len(), 0, "the tombstones are forgotten");
        })
        .await;
    });
    // The log of shard 0 still has the writes.
    node.live(&there.clone(), move |_| async move { check(&there, &BTreeMap::new()).await });
}

#[test]
fn operations_on_a_table_meet_each_of_its_tablets_once_while_they_move() {
    let mut node = Node::new(5);
    let own = all_on([0, 0, 1, 1], 0);
    let first = own.clone();
    node.live(&own, move |storage| async move {
        let mut own = first;
        for round in 0..6u16 {
            let mut expected = BTreeMap::new();
            for number in 0..KEYS {
                put(&own, number, "value", i64::from(round)).await.expect("a write");
                expected.insert(key(number), "value".to_owned());
            }
            own = all_on([round % 2, (round + 1) % 2, round % 2, 1], 0);
            tell(&storage, &own).await;
            let tag = format!("s{round}");
            let request =
                storage::SnapshotRequest { tag: tag.clone(), tables: vec![ID], skip_flush: false, ttl: None };
            storage.take_snapshot(&request).await.expect("a snapshot");
            own = all_on([(round + 1) % 2, round % 2, 0, round % 2], 0);
            tell(&storage, &own).await;
            storage.truncate(ID).await.expect("a truncation");
            storage.tablets_settled().await;
            check(&own, &BTreeMap::new()).await;
            let folder = format!("/n/data/k/t-{}/snapshots/{tag}", model::hex::text(&ID.0));
            let from = storage::ImportSource { directory: Some(folder.into()), keep: true };
            storage.import(ID, &from).await.expect("an import");
            check(&own, &expected).await;
            storage.truncate(ID).await.expect("a truncation");
        }
    });
}

/// The compaction failed, and said that the storage was draining (seed 0 of the simulation).
#[test]
fn a_compaction_of_a_tablet_that_leaves_counts_as_stopped() {
    let mut node = Node::new(6);
    let own = all_on([0, 0, 0, 0], 0);
    let stopped = counter();
    let (first, of_life) = (own.clone(), Rc::clone(&stopped));
    node.live(&own, move |storage| async move {
        let mut own = first;
        for round in 0..24usize {
            let at = round % SHARDS;
            for part in 0..2 {
                for number in 0..KEYS {
                    put(&own, number, &format!("{round}-{part}"), (2 * round + part) as i64)
                        .await
                        .expect("a write");
                }
                flush(at).await;
            }
            let compacting = reactor::spawn(
                Group::STATEMENT,
                on(at, async |storage| {
                    storage.compact_with(ID, &storage::CompactOptions::default()).await.map_err(words)
                }),
            );
            reactor::sleep(Duration::from_micros(300) * round as u32).await;
            own = all_on([((round + 1) % SHARDS) as u16; 4], 0);
            tell(&storage, &own).await;
            let outcome = compacting.await.expect("an end").expect("a compaction that gives way");
            of_life.set(of_life.get() + outcome.stopped);
            storage.tablets_settled().await;
            let expected = (0..KEYS).map(|number| (key(number), format!("{round}-1"))).collect();
            check(&own, &expected).await;
        }
    });
    assert!(stopped.get() > 0, "no compaction met a tablet that left");
}

/// Its mark is unreadable, so it may be any tablet's.
#[test]
fn reads_that_a_file_refuses_are_refused_after_a_move_too() {
    let mut node = Node::new(8);
    let own = all_on([0, 0, 0, 0], 0);
    let first = own.clone();
    node.live(&own, move |storage| async move {
        for number in 0..KEYS {
            put(&first, number, "value", 1).await.expect("a write");
        }
        flush(0).await;
        storage.drain().await.expect("a drain");
        let folder = std::path::PathBuf::from(format!("/n/data/k/t-{}", model::hex::text(&ID.0)));
        let names = reactor::file::read_dir(&folder).await.expect("the folder");
        let mark = names.iter().find(|entry| entry.name.ends_with("-Ceto.db")).expect("a file");
        reactor::file::write_all_atomic(&folder.join(&mark.name), b"no mark").await.expect("a write");
    });
    node.policy.set(FailurePolicy::Ignore);
    let first = own.clone();
    node.live(&own, move |storage| async move {
        for number in 0..KEYS {
            get(0, number).await.expect_err("the file may have it");
        }
        let there = all_on([1, 0, 1, 0], 0);
        tell(&storage, &there).await;
        storage.tablets_settled().await;
        for number in 0..KEYS {
            let shard = usize::from(there[&tablet_of(&key(number)).0].0);
            get(shard, number).await.expect_err("the file may still have it");
        }
        // Shard 0 puts it aside, and the others notice.
        for shard in 0..SHARDS {
            on(shard, async |storage| storage.scrub(ID, ScrubMode::Skip).await.map(|_| ()).map_err(words))
                .await
                .expect("a scrub");
        }
        let readable = (0..KEYS).filter(|number| first.contains_key(&tablet_of(&key(*number)).0));
        let mut found = 0;
        for number in readable {
            let shard = usize::from(there[&tablet_of(&key(number)).0].0);
            found += usize::from(get(shard, number).await.expect("a read").is_some());
        }
        assert!(0 < found && found < KEYS, "{found}: only the tablet of the file lacks its rows");
    });
    node.live(&all_on([1, 1, 0, 0], 0), move |_| async move {
        assert!(numbers().await.len() > 1, "the others are there");
    });
}
