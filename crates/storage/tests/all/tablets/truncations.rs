//! A command truncates the table: nothing of before is read, whatever happens meanwhile, and nothing of after
//! is lost.

use reactor::sim::DiskFaults;
use storage::ApplyAs;

use super::*;

/// Steps of the world that a truncation takes at most.
const STEPS_MAX: u64 = 4_000;
/// The command that truncates.
const TRUNCATED: u64 = 9;

/// Tells the node that the table was truncated by the command since which it has its tablets now.
async fn truncate(storage: &Storage, own: &Own) -> Result<(), StorageError> {
    let tablets = [(ID, told(own))].into();
    let agreed = AgreedChanges { tablets, truncated: vec![ID], ..AgreedChanges::default() };
    storage.apply_agreed(2, &agreed).await
}

fn all_values(count: usize, value: &str) -> BTreeMap<String, String> {
    (0..count).map(|number| (key(number), value.to_owned())).collect()
}

/// Writes as a coordinator that plans with a tenancy.
async fn put_since(own: &Own, number: usize, since: u64) -> Result<(), String> {
    let (shard, _) = own[&tablet_of(&key(number)).0];
    let bytes = write(&key(number), "c", "late", 5);
    on(usize::from(shard), async move |storage| {
        let view = model::mutation::MutationView::parse(&bytes).expect("a mutation");
        let how = ApplyAs { since: Some(since), synced: true };
        storage.apply_as(&view, how, Deadline::after(Duration::from_secs(30))).await.map_err(words)
    })
    .await
}

#[test]
fn a_truncated_table_is_empty_and_refuses_what_was_planned_before() {
    let mut node = Node::new(21);
    let (own, after) = (all_on([0, 0, 1, 1], 0), all_on([0, 0, 1, 1], TRUNCATED));
    let (from, to) = (own.clone(), after.clone());
    node.live(&own, move |storage| async move {
        for number in 0..KEYS {
            put(&from, number, "old", 1).await.expect("a write");
            if number == KEYS / 2 {
                storage.flush(ID).await.expect("a flush");
            }
        }
        truncate(&storage, &to).await.expect("a truncation");
        check(&to, &BTreeMap::new()).await;
        assert_eq!(numbers().await, BTreeSet::new());
        for number in 0..KEYS {
            let refused = put_since(&to, number, 0).await.expect_err("it was planned before");
            assert!(refused.contains("OtherTenancy"), "{refused}");
        }
        put_since(&to, 0, TRUNCATED).await.expect("a write");
        for number in 1..KEYS {
            put(&to, number, "late", 1).await.expect("a write");
        }
        flush(0).await;
        check(&to, &all_values(KEYS, "late")).await;
    });
    for _ in 0..2 {
        let now = after.clone();
        node.live(&after, move |_| async move { check(&now, &all_values(KEYS, "late")).await });
    }
}

/// Power is lost `steps` after the truncation began; says whether it had ended by then.
fn lose_power_after(steps: u64) -> bool {
    let mut node = Node::new(22);
    let (own, after) = (all_on([0, 0, 1, 1], 0), all_on([0, 0, 1, 1], TRUNCATED));
    let phase = Rc::new(Cell::new(0));
    let (of_life, from, to) = (Rc::clone(&phase), own.clone(), after.clone());
    node.begin(&own, move |storage| async move {
        for number in 0..KEYS {
            put(&from, number, "old", 1).await.expect("a write");
            if number == KEYS / 2 {
                storage.flush(ID).await.expect("a flush");
            }
        }
        of_life.set(1);
        truncate(&storage, &to).await.expect("a truncation");
        for number in 0..KEYS / 4 {
            put(&to, number, "new", 2).await.expect("a write");
            of_life.set(2 + number);
        }
        of_life.set(1000);
        std::future::pending::<()>().await;
    });
    node.world.run_until(|_| phase.get() == 1).expect("writes");
    let ended = node.world.run_steps(steps, |_| phase.get() == 1000).is_ok();
    node.world.set_disk_faults(node.id, DiskFaults { lose_unsynced: true, ..DiskFaults::default() });
    let acknowledged = phase.get().saturating_sub(1).min(KEYS / 4);
    // The command was durable before any shard heard of it.
    for life in 0..2 {
        let now = after.clone();
        node.live(&after, move |_| async move {
            for number in 0..KEYS {
                let shard = usize::from(now[&tablet_of(&key(number)).0].0);
                match get(shard, number).await.expect("a read").as_deref() {
                    Some("new") if number <= acknowledged => {}
                    None if number >= acknowledged => {}
                    other => panic!("{steps} steps, life {life}, {acknowledged} new: {number} is {other:?}"),
                }
            }
        });
    }
    ended
}

#[test]
fn a_crash_during_a_truncation_brings_nothing_back_and_loses_nothing() {
    let mut steps = 0;
    while !lose_power_after(steps) {
        steps += 1 + steps / 16;
        assert!(steps < STEPS_MAX, "the truncation does not end");
    }
    assert!(steps > 50, "{steps} steps are too few for a truncation");
}

#[test]
fn a_tablet_that_moves_is_emptied_where_it_is() {
    let mut node = Node::new(23);
    let (own, after) = (all_on([0, 0, 1, 1], 0), all_on([0, 0, 1, 1], TRUNCATED));
    let (from, to) = (own.clone(), after.clone());
    node.live(&own, move |storage| async move {
        for number in 0..KEYS {
            put(&from, number, "old", 1).await.expect("a write");
        }
        // It is on its way when the truncation comes.
        let mut moved = from.clone();
        moved.insert(0, (1, 0));
        tell(&storage, &moved).await;
        let mut to = to.clone();
        to.insert(0, (1, TRUNCATED));
        truncate(&storage, &to).await.expect("a truncation");
        storage.tablets_settled().await;
        check(&to, &BTreeMap::new()).await;
        for number in 0..KEYS {
            put(&to, number, "new", 1).await.expect("a write");
        }
        check(&to, &all_values(KEYS, "new")).await;
    });
}

/// Contents of files, by path.
type Saved = Rc<RefCell<Vec<(std::path::PathBuf, Vec<u8>)>>>;

/// Reads every file of the table.
async fn save(storage: &Storage, saved: &Saved) {
    let data = storage.config().data_dir.clone();
    let keyspaces = reactor::file::read_dir(&data).await.expect("a list");
    let keyspace = data.join(&keyspaces.iter().find(|entry| entry.is_dir).expect("a keyspace").name);
    let tables = reactor::file::read_dir(&keyspace).await.expect("a list");
    let table = keyspace.join(&tables.iter().find(|entry| entry.is_dir).expect("a table").name);
    for entry in reactor::file::read_dir(&table).await.expect("a list").iter().filter(|entry| !entry.is_dir) {
        let path = table.join(&entry.name);
        let bytes = reactor::file::read_all(&path, 1 << 20).await.expect("a file");
        saved.borrow_mut().push((path, bytes));
    }
}

#[test]
fn a_file_that_nobody_listed_is_set_aside_and_not_removed() {
    let mut node = Node::new(24);
    let (own, after) = (all_on([0, 0, 1, 1], 0), all_on([0, 0, 1, 1], TRUNCATED));
    let (from, to) = (own.clone(), after.clone());
    let saved = Saved::default();
    let keep = Rc::clone(&saved);
    node.live(&own, move |storage| async move {
        for number in 0..KEYS {
            put(&from, number, "old", 1).await.expect("a write");
        }
        flush(0).await;
        save(&storage, &keep).await;
        truncate(&storage, &to).await.expect("a truncation");
        storage.drain().await.expect("a drain");
    });
    // An operator puts the files back.
    node.live(&after, move |_| async move {
        let saved = saved.take();
        for (path, bytes) in &saved {
            reactor::file::write_all_atomic(path, bytes).await.expect("a file");
        }
    });
    let now = after.clone();
    node.live(&after, move |_| async move { check(&now, &BTreeMap::new()).await });
    assert!(node.said("from before its tablet was truncated") > 0, "{}", node.world.log().join("\n"));
    assert_eq!(node.said("and is removed"), 0);
}

#[test]
fn a_table_made_with_a_later_tenancy_keeps_its_writes() {
    let mut node = Node::new(25);
    let own = all_on([0, 0, 1, 1], 5);
    let now = own.clone();
    node.changes.set(1);
    node.live(&own, move |storage| async move {
        let changes = changes_with(LOG2, |options| options.gc_grace_seconds = 0)[1..].to_vec();
        let agreed = AgreedChanges { changes, tablets: [(ID, told(&now))].into(), truncated: Vec::new() };
        storage.apply_agreed(2, &agreed).await.expect("a table");
        for number in 0..KEYS {
            put(&now, number, "new", 1).await.expect("a write");
        }
    });
    node.changes.set(2);
    let now = own.clone();
    node.live(&own, move |_| async move { check(&now, &all_values(KEYS, "new")).await });
}
