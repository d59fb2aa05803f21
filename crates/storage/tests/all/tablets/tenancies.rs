//! A tablet leaves the node and comes back: nothing of before is read.

use super::*;

/// A tablet comes back with this.
const BACK: u64 = 9;

/// A value of each key in a tablet of the node, but for tablet 1.
fn others(own: &Own, value: &str) -> BTreeMap<String, String> {
    let tablets = |key: &String| tablet_of(key).0 != 1 && own.contains_key(&tablet_of(key).0);
    (0..KEYS).map(key).filter(tablets).map(|key| (key, value.to_owned())).collect()
}

/// A key in a tablet.
fn key_of(tablet: u32) -> usize {
    (0..KEYS).find(|number| tablet_of(&key(*number)).0 == tablet).expect("a key")
}

#[test]
fn a_file_of_an_earlier_tenancy_is_not_adopted() {
    let mut node = Node::new(11);
    let own = all_on([0, 0, 1, 1], 3);
    let from = own.clone();
    node.live(&own, move |storage| async move {
        for number in 0..KEYS {
            put(&from, number, "old", 1).await.expect("a write");
        }
        for shard in 0..SHARDS {
            flush(shard).await;
        }
        storage.drain().await.expect("a drain");
    });
    // While the node was away tablet 1 left it and came back.
    let mut back = own.clone();
    back.insert(1, (0, BACK));
    for life in 0..2 {
        let now = back.clone();
        node.live(&back, move |_| async move {
            check(&now, &others(&now, "old")).await;
        });
        assert_eq!(node.said("of an earlier tenancy"), 1, "life {life}: it is removed once and told");
    }
}

#[test]
fn entries_of_an_earlier_tenancy_are_dropped_and_told() {
    let mut node = Node::new(12);
    let own = all_on([0, 0, 1, 1], 3);
    let from = own.clone();
    node.live(&own, move |_| async move {
        for number in 0..KEYS {
            put(&from, number, "old", 1).await.expect("a write");
        }
    });
    // Its entries are in the log only. It came back to another shard.
    let mut back = own.clone();
    back.insert(1, (1, BACK));
    let now = back.clone();
    node.live(&back, move |_| async move {
        check(&now, &others(&now, "old")).await;
        put(&now, key_of(1), "new", 1).await.expect("a write");
        assert_eq!(get(1, key_of(1)).await.expect("a read").as_deref(), Some("new"));
    });
    // The write of this tenancy is replayed, and the others are left out as long as the log has them.
    node.live(&back, move |_| async move {
        assert_eq!(get(1, key_of(1)).await.expect("a read").as_deref(), Some("new"));
    });
    let told = "their tablets have left this node since they were written";
    assert_eq!(node.said(told), 2, "{}", node.world.log().join("\n"));
}

#[test]
fn a_tablet_that_leaves_and_returns_while_the_node_runs_begins_empty() {
    let mut node = Node::new(13);
    let own = all_on([0, 0, 1, 1], 3);
    let from = own.clone();
    let mut gone = own.clone();
    gone.remove(&1);
    let mut back = own.clone();
    back.insert(1, (1, BACK));
    let (without, again) = (gone, back.clone());
    node.live(&own, move |storage| async move {
        for number in 0..KEYS {
            put(&from, number, "old", 1).await.expect("a write");
            if number == KEYS / 2 {
                storage.flush(ID).await.expect("a flush");
            }
        }
        let mut expected = others(&from, "old");
        tell(&storage, &without).await;
        storage.tablets_settled().await;
        check(&without, &expected).await;
        let number = key_of(1);
        let refused = get(0, number).await;
        assert!(refused.as_ref().is_err_and(|words| words.contains("owner: None")), "{refused:?}");
        tell(&storage, &again).await;
        assert_eq!(get(1, number).await.expect("a read that waits"), None, "it begins empty");
        put(&again, number, "new", 1).await.expect("a write");
        expected.insert(key(number), "new".to_owned());
        check(&again, &expected).await;
    });
    node.live(&back.clone(), move |_| async move {
        let mut expected = others(&back, "old");
        let number = key_of(1);
        expected.insert(key(number), "new".to_owned());
        check(&back, &expected).await;
    });
}
