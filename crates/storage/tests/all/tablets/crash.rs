//! Power is lost while tablets move.

use reactor::sim::DiskFaults;

use super::*;

/// Steps of the world that a move takes at most, disk requests and messages between shards among them.
const STEPS_MAX: u64 = 4_000;

/// Power is lost `steps` after the move began; says whether the move had ended by then.
fn lose_power_after(steps: u64) -> bool {
    let mut node = Node::new(7);
    let (own, there) = (all_on([0, 0, 1, 1], 0), all_on([1, 0, 0, 1], 0));
    let phase = counter();
    let (of_life, from, to) = (Rc::clone(&phase), own.clone(), there.clone());
    node.begin(&own, move |storage| async move {
        for number in 0..KEYS {
            put(&from, number, "old", 1).await.expect("a write");
            if number == KEYS / 2 {
                storage.flush(ID).await.expect("a flush");
            }
        }
        of_life.set(1);
        tell(&storage, &to).await;
        for number in 0..KEYS / 4 {
            put(&to, number, "new", 2).await.expect("a write");
            of_life.set(2 + number);
        }
        storage.tablets_settled().await;
        of_life.set(1000);
        std::future::pending::<()>().await;
    });
    node.world.run_until(|_| phase.get() == 1).expect("writes");
    let ended = node.world.run_steps(steps, |_| phase.get() == 1000).is_ok();
    node.world.set_disk_faults(node.id, DiskFaults { lose_unsynced: true, ..DiskFaults::default() });
    // What was agreed upon is durable before any shard hears of it, or was not agreed upon at all.
    let was_told = phase.get() > 1 || steps.is_multiple_of(2);
    let own = if was_told { there } else { own };
    let acknowledged = phase.get().saturating_sub(1).min(KEYS / 4);
    for life in 0..2 {
        let now = own.clone();
        node.live(&own, move |_| async move {
            for number in 0..KEYS {
                let shard = usize::from(now[&tablet_of(&key(number)).0].0);
                let found = get(shard, number).await.expect("a read");
                match found.as_deref() {
                    Some("new") if number <= acknowledged => {}
                    Some("old") if number >= acknowledged => {}
                    other => panic!("{steps} steps, life {life}, {acknowledged} new: {number} is {other:?}"),
                }
            }
            assert!(numbers().await.len() <= 16);
        });
    }
    ended
}

#[test]
fn a_crash_during_a_move_loses_nothing() {
    let mut steps = 0;
    // Every step at the beginning, where the tablet is closed, then wider apart.
    while !lose_power_after(steps) {
        steps += 1 + steps / 16;
        assert!(steps < STEPS_MAX, "the move does not end");
    }
    assert!(steps > 100, "{steps} steps are too few for a move");
}
