//! What a replica missed while it was away reaches it without any read, and what is too old does not.

use std::time::Duration;

use model::clustering::Slice;
use model::mutation::MutationView;
use model::partition_key::DecoratedKey;
use reactor::Deadline;
use reactor::file::{self, AlignedBuf, File, OpenOptions};
use replication::{Consistency, HintsConfig, ReplicationError};
use storage::{PartitionRange, ReadCommand};
use wire::node::fault::FaultKind;
use wire::node::frame::Verb;
use wire::node::mutate::{self, Entry, Mutate};

use super::heard::Heard;
use super::nodes::{Mood, Nodes, RF3, THREE, host_of, id_of, renamed, run, run_lives};
use super::writes::{BASE, Kind, Write};

/// Seconds that deletions are kept in most of these tests.
const GRACE: u32 = 864_000;
const FOLDER: &str = "/ceto/hints";

pub(super) fn config() -> HintsConfig {
    HintsConfig { bytes_per_second: 0, batch_bytes_per_second: 0, ..HintsConfig::new(FOLDER) }
}

/// The row of a number: one of the three partitions that tests have, at a time of its own.
fn mutation(nodes: &Nodes, number: u32) -> Vec<u8> {
    let (key, first, second) = ((number % 3) as u8, number.cast_signed() % 100, number.cast_signed() / 100);
    let kind = Kind::Insert(first, second, 1, false);
    Write { key, timestamp: i64::from(number) + 1, local: 0, base: BASE, kind }.mutation(&nodes.table)
}

async fn write_within(
    nodes: &Nodes,
    number: u32,
    level: Consistency,
    time: Duration,
) -> Result<(), ReplicationError> {
    let bytes = mutation(nodes, number);
    nodes.replicator.write(&nodes.table, &bytes, level, Deadline::after(time)).await
}

async fn write(nodes: &Nodes, number: u32, level: Consistency) -> Result<(), ReplicationError> {
    write_within(nodes, number, level, Duration::from_secs(2)).await
}

/// All that a node has, read from its own storage alone.
pub(super) async fn stored(nodes: &Nodes, node: u16) -> Vec<String> {
    let table = nodes.storage().schema().table_by_id(id_of(node)).cloned().expect("a node's table");
    let mut parts = Vec::new();
    for key in 0..3u8 {
        let command = ReadCommand {
            table: table.clone(),
            range: PartitionRange::Key(DecoratedKey::new(vec![key])),
            slices: [Slice::all()].into_iter().collect(),
            reversed: false,
            now: BASE,
            bypass_cache: false,
        };
        let mut heard = Heard::new(BASE, false, None);
        nodes.storage().read_raw(&command, &mut heard).await.expect("a raw read");
        parts.extend(heard.parts.iter().map(ToString::to_string));
    }
    parts
}

/// Rows that a node has, counted by their markers.
async fn rows(nodes: &Nodes, node: u16) -> usize {
    stored(nodes, node).await.iter().map(|part| part.matches("row [").count()).sum()
}

/// Waits until no hint is left.
async fn delivered(nodes: &Nodes) {
    for _ in 0..600 {
        if nodes.replicator.pending_hints().is_empty() {
            return;
        }
        reactor::sleep(Duration::from_millis(500)).await;
    }
    panic!("hints are left: {:?}", nodes.replicator.pending_hints());
}

/// Whether there are hints for a node, on the disk or on their way there.
async fn has_hints(nodes: &Nodes, node: u16) -> bool {
    // Longer than hints take to their file.
    reactor::sleep(Duration::from_millis(100)).await;
    nodes.replicator.pending_hints().iter().any(|pending| pending.host_id == host_of(node))
}

#[test]
fn a_replica_that_was_away_has_everything_without_any_read() {
    let ran = run(1, || async {
        let nodes = Nodes::open_late(&[1, 2, 3], GRACE, config()).await;
        nodes.others.set(2, Mood::Down);
        for number in 0..300 {
            // Node 3 does not answer some, breaks others, and has no room for others.
            let mood = match number % 50 {
                10 => Mood::Silent,
                20 => Mood::Breaks,
                30 => Mood::Overloaded,
                _ => Mood::Serves,
            };
            nodes.others.set(3, mood);
            let level = if mood == Mood::Serves { Consistency::Quorum } else { Consistency::One };
            write_within(&nodes, number, level, Duration::from_millis(300)).await.expect("a write");
        }
        nodes.others.set(3, Mood::Serves);
        // Silent requests end.
        reactor::sleep(Duration::from_secs(1)).await;
        assert_eq!((rows(&nodes, 1).await, rows(&nodes, 2).await), (300, 0));
        assert_eq!(rows(&nodes, 3).await, 300 - 18, "it missed some of its own");
        nodes.others.calls.take();
        nodes.others.set(2, Mood::Serves);
        delivered(&nodes).await;
        let calls = nodes.others.calls.take();
        assert!(
            calls.iter().all(|(_, verb)| *verb == Verb::Hint),
            "no read, no write of a client: {calls:?}"
        );
        let first = stored(&nodes, 1).await;
        assert_eq!((stored(&nodes, 2).await, stored(&nodes, 3).await), (first.clone(), first));
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn a_write_that_failed_leaves_hints_too() {
    let ran = run(1, || async {
        let nodes = Nodes::open_late(&[1, 2, 3], GRACE, config()).await;
        nodes.others.set(2, Mood::Silent);
        nodes.others.set(3, Mood::Breaks);
        let written = write_within(&nodes, 1, Consistency::All, Duration::from_millis(300)).await;
        assert!(written.is_err(), "{written:?}");
        nodes.others.set(2, Mood::Serves);
        nodes.others.set(3, Mood::Serves);
        assert!(has_hints(&nodes, 2).await && has_hints(&nodes, 3).await);
        delivered(&nodes).await;
        assert_eq!((rows(&nodes, 2).await, rows(&nodes, 3).await), (1, 1));
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn no_hint_is_left_where_settings_or_the_table_want_none() {
    let ran = run(1, || async {
        let nodes = Nodes::open_late(&[1, 2, 3], 0, config()).await;
        nodes.others.set(2, Mood::Down);
        write(&nodes, 1, Consistency::Quorum).await.expect("a write");
        assert!(!has_hints(&nodes, 2).await, "deletions are not kept for a time");
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
    for (config, why) in [
        (HintsConfig { is_on: false, ..config() }, "hints are off"),
        (HintsConfig { data_centers_without: vec!["dc".to_owned()], ..config() }, "not in this data center"),
        (HintsConfig { host_bytes_max: 100, ..config() }, "no room"),
    ] {
        let ran = run(1, move || async move {
            let nodes = Nodes::open_late(&[1, 2, 3], GRACE, config).await;
            nodes.others.set(2, Mood::Down);
            write(&nodes, 1, Consistency::Quorum).await.expect("a write");
            assert!(!has_hints(&nodes, 2).await, "{why}");
            nodes.close();
        });
        assert_eq!(ran, Ok(()));
    }
}

#[test]
fn no_hint_is_left_beyond_the_window() {
    let ran = run(1, || async {
        let window = Duration::from_secs(105);
        let nodes = Nodes::open_late(&[1, 2, 3], GRACE, HintsConfig { window, ..config() }).await;
        nodes.others.set(2, Mood::Down);
        for number in 0..20 {
            write(&nodes, number, Consistency::Quorum).await.expect("a write");
            reactor::sleep(Duration::from_secs(10)).await;
        }
        nodes.others.set(2, Mood::Serves);
        delivered(&nodes).await;
        assert_eq!(rows(&nodes, 2).await, 11, "those of the first 105 seconds");
        write(&nodes, 50, Consistency::All).await.expect("a write");
        nodes.others.set(2, Mood::Down);
        write(&nodes, 51, Consistency::Quorum).await.expect("a write");
        assert!(has_hints(&nodes, 2).await, "a new window begins");
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn at_any_a_hint_is_an_answer() {
    let ran = run(1, || async {
        let nodes = Nodes::open_late(&[2, 3], GRACE, config()).await;
        nodes.others.set(2, Mood::Down);
        nodes.others.set(3, Mood::Down);
        let unavailable = write(&nodes, 1, Consistency::One).await;
        let is_expected = matches!(unavailable, Err(ReplicationError::Unavailable { required: 1, alive: 0 }));
        assert!(is_expected, "{unavailable:?}");
        write(&nodes, 1, Consistency::Any).await.expect("two hints");
        // All replicas fail.
        nodes.others.set(3, Mood::Breaks);
        write(&nodes, 2, Consistency::Any).await.expect("two hints");
        nodes.others.set(3, Mood::Silent);
        write(&nodes, 3, Consistency::Any).await.expect("two hints");
        nodes.others.set(2, Mood::Serves);
        nodes.others.set(3, Mood::Serves);
        delivered(&nodes).await;
        assert_eq!((rows(&nodes, 2).await, rows(&nodes, 3).await), (3, 3));
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
    let ran = run(1, || async {
        let nodes = Nodes::open_late(&[2, 3], 0, config()).await;
        nodes.others.set(2, Mood::Down);
        nodes.others.set(3, Mood::Down);
        let written = write(&nodes, 1, Consistency::Any).await;
        assert!(
            matches!(written, Err(ReplicationError::Unavailable { required: 1, alive: 0 })),
            "{written:?}"
        );
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn hints_that_were_synced_outlive_a_crash() {
    let ran = run_lives(1, 3, |life| async move {
        let nodes = Nodes::open(&RF3, &THREE, &[2, 3], GRACE).await;
        if life == 1 {
            nodes.others.set(2, Mood::Down);
            nodes.others.set(3, Mood::Down);
        }
        nodes.replicator.start_late(config()).await.expect("hints");
        match life {
            0 => {
                nodes.others.set(2, Mood::Down);
                for number in 0..20 {
                    write(&nodes, number, Consistency::One).await.expect("a write");
                }
                reactor::sleep(Duration::from_secs(11)).await;
                // At ANY the answer says that a hint is on the disk: one for either of the two.
                nodes.others.set(3, Mood::Down);
                for number in 20..30 {
                    write(&nodes, number, Consistency::One).await.expect_err("no replica");
                    write(&nodes, number, Consistency::Any).await.expect("a hint");
                }
            }
            1 => {
                let pending = nodes.replicator.pending_hints();
                assert_eq!(pending.iter().map(|p| p.host_id).collect::<Vec<_>>(), [host_of(2), host_of(3)]);
                // Hints of both lives go into files of their own.
                write(&nodes, 30, Consistency::Any).await.expect("a hint");
            }
            _ => {
                delivered(&nodes).await;
                let (second, third) = (stored(&nodes, 2).await.concat(), stored(&nodes, 3).await.concat());
                let has = |stored: &str, number: u32| stored.contains(&format!("row [{number}, 0]"));
                assert!((0..20).all(|number| has(&second, number)), "synced after 10 s: {second}");
                let either = (20..31).all(|number| has(&second, number) || has(&third, number));
                assert!(either, "answered at ANY: {second} {third}");
            }
        }
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

/// The files of hints for node 2.
async fn files() -> Vec<String> {
    let folder = format!("{FOLDER}/{}", model::hex::text(&host_of(2)));
    let mut names: Vec<String> =
        file::read_dir(&folder).await.expect("a folder").into_iter().map(|entry| entry.name).collect();
    names.sort();
    names.into_iter().map(|name| format!("{folder}/{name}")).collect()
}

/// Makes 10 hints for node 2, then lets `change` change the bytes of their file before the next life delivers
/// them. Returns how many rows node 2 then has, and the files that are left.
fn after_damage(change: fn(&mut Vec<u8>)) -> (usize, Vec<String>) {
    let told = std::rc::Rc::new(std::cell::RefCell::new(None));
    let of_lives = std::rc::Rc::clone(&told);
    let ran = run_lives(1, 2, move |life| {
        let told = std::rc::Rc::clone(&of_lives);
        async move {
            if life == 0 {
                let nodes = Nodes::open_late(&[2], GRACE, config()).await;
                nodes.others.set(2, Mood::Down);
                for number in 0..10 {
                    write(&nodes, number, Consistency::Any).await.expect("a hint");
                }
                return nodes.close();
            }
            let path = files().await.remove(0);
            let mut bytes = file::read_all(&path, 1 << 20).await.expect("a file of hints");
            change(&mut bytes);
            let file =
                File::open(&path, OpenOptions::new().write(true).truncate(true)).await.expect("a file");
            let mut buf = AlignedBuf::with_len(bytes.len());
            buf.copy_from_slice(&bytes);
            file.write_at(0, buf).await.0.expect("a write");
            let nodes = Nodes::open_late(&[2], GRACE, config()).await;
            delivered(&nodes).await;
            told.replace(Some((rows(&nodes, 2).await, files().await)));
            nodes.close();
        }
    });
    assert_eq!(ran, Ok(()));
    told.take().expect("the last life has looked")
}

#[test]
fn a_torn_end_is_cut_and_damage_is_kept_aside() {
    let (rows, left) = after_damage(|bytes| bytes.truncate(bytes.len() - 3));
    assert_eq!((rows, left.len()), (9, 0), "the last one is lost: {left:?}");
    let (rows, left) = after_damage(|bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    });
    assert_eq!((rows, left.len()), (9, 1), "{left:?}");
    assert!(left[0].ends_with(".damaged"), "{left:?}");
    let (rows, left) = after_damage(|bytes| bytes[10] ^= 1);
    assert_eq!((rows, left.len()), (0, 1), "without its header nothing is read: {left:?}");
    assert!(left[0].ends_with(".damaged"), "{left:?}");
    let (rows, left) = after_damage(|bytes| bytes.truncate(7));
    assert_eq!((rows, left.len()), (0, 0), "a file that was being made: {left:?}");
}

#[test]
fn a_late_hint_does_not_revive_what_was_deleted() {
    let ran = run(1, || async {
        let nodes = Nodes::open_late(&[1, 2, 3], 1000, config()).await;
        nodes.others.set(2, Mood::Down);
        write(&nodes, 1, Consistency::Quorum).await.expect("a write");
        reactor::sleep(Duration::from_secs(600)).await;
        write(&nodes, 2, Consistency::Quorum).await.expect("a write");
        reactor::sleep(Duration::from_secs(600)).await;
        nodes.others.set(2, Mood::Serves);
        delivered(&nodes).await;
        let second = stored(&nodes, 2).await;
        assert_eq!(second.iter().map(|part| part.matches("row [").count()).sum::<usize>(), 1, "{second:?}");
        assert!(second.iter().any(|part| part.contains("row [2, 0]")), "the younger one: {second:?}");
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn a_replica_drops_what_comes_behind_the_purge_horizon() {
    let ran = run(1, || async {
        let nodes = Nodes::open_late(&[1, 2, 3], 1000, config()).await;
        let routing = nodes.replicator.routing(&nodes.table);
        let (version, since) = (routing.version(), routing.since(model::tablet::TabletId(0))[0]);
        let bytes = renamed(&mutation(&nodes, 3), nodes.table.id());
        let serve = async |verb, age_s: i64| {
            let entry = Entry { version, since, mutation: MutationView::parse(&bytes).expect("a mutation") };
            let born_us = reactor::wall_clock_us() - age_s * 1_000_000;
            let mut body = Vec::new();
            mutate::encode(&Mutate { born_us, entries: vec![entry], forward: Vec::new() }, &mut body);
            let deadline = Deadline::after(Duration::from_secs(2));
            nodes.replicator.serve(verb, &body, deadline).await.map_err(|fault| fault.kind)
        };
        let has_row = async || {
            let command = ReadCommand {
                table: nodes.table.clone(),
                range: PartitionRange::Key(DecoratedKey::new(vec![0])),
                slices: [Slice::all()].into_iter().collect(),
                reversed: false,
                now: BASE,
                bypass_cache: false,
            };
            let mut heard = Heard::new(BASE, false, None);
            nodes.storage().read_raw(&command, &mut heard).await.expect("a raw read");
            heard.parts.first().is_some_and(|part| part.to_string().contains("row ["))
        };
        assert_eq!(serve(Verb::Hint, 1002).await, Ok(Vec::new()), "its sender is done with it");
        assert_eq!(serve(Verb::Mutate, 1012).await, Err(FaultKind::Failed), "no answer that counts");
        assert!(!has_row().await);
        assert_eq!(serve(Verb::Hint, 990).await, Ok(Vec::new()));
        assert!(has_row().await);
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn a_hint_whose_host_has_not_the_tablet_any_more_goes_to_todays_replicas() {
    let ran = run(1, || async {
        let nodes = Nodes::open_late(&[1, 2, 3], GRACE, config()).await;
        nodes.others.set(2, Mood::Down);
        nodes.others.set(3, Mood::Down);
        write(&nodes, 1, Consistency::One).await.expect("a write");
        assert!(has_hints(&nodes, 2).await && has_hints(&nodes, 3).await);
        nodes.move_to(&[3]);
        nodes.others.set(3, Mood::Serves);
        delivered_for(&nodes, 3).await;
        assert_eq!(rows(&nodes, 3).await, 1);
        nodes.others.set(2, Mood::Serves);
        delivered(&nodes).await;
        assert_eq!((rows(&nodes, 2).await, rows(&nodes, 3).await), (0, 1), "node 2 is no replica");
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn a_hint_from_before_the_tablet_came_back_goes_to_all_of_todays_replicas() {
    let ran = run(1, || async {
        let nodes = Nodes::open_late(&[1, 2, 3], GRACE, config()).await;
        nodes.move_to(&[1, 3]);
        nodes.others.set(3, Mood::Down);
        write(&nodes, 1, Consistency::One).await.expect("a write");
        assert!(has_hints(&nodes, 3).await);
        // Node 2 got the tablet from somebody who may have lacked the write; node 3 has it anew.
        nodes.move_to(&[2, 3]);
        nodes.others.set(3, Mood::Serves);
        delivered(&nodes).await;
        assert_eq!((rows(&nodes, 2).await, rows(&nodes, 3).await), (1, 1));
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

async fn delivered_for(nodes: &Nodes, node: u16) {
    for _ in 0..600 {
        if nodes.replicator.pending_hints().iter().all(|pending| pending.host_id != host_of(node)) {
            return;
        }
        reactor::sleep(Duration::from_millis(500)).await;
    }
    panic!("hints for node {node} are left");
}

#[test]
fn a_hint_that_its_host_refuses_is_given_up_in_the_end() {
    let ran = run(1, || async {
        let nodes = Nodes::open_late(&[1, 2, 3], GRACE, config()).await;
        nodes.others.set(2, Mood::Down);
        write(&nodes, 1, Consistency::Quorum).await.expect("a write");
        nodes.others.refuse_writes.set(true);
        nodes.others.set(2, Mood::Serves);
        reactor::sleep(Duration::from_secs(35)).await;
        assert!(has_hints(&nodes, 2).await, "it is tried some times");
        delivered(&nodes).await;
        assert_eq!(rows(&nodes, 2).await, 0);
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn deliveries_go_on_where_a_node_went_down() {
    let ran = run(1, || async {
        let nodes = Nodes::open_late(&[1, 2, 3], GRACE, config()).await;
        nodes.others.set(2, Mood::Down);
        for number in 0..1000 {
            write(&nodes, number, Consistency::Quorum).await.expect("a write");
        }
        nodes.others.slow.set(Some(Duration::from_millis(100)));
        nodes.others.set(2, Mood::Serves);
        reactor::sleep(Duration::from_millis(350)).await;
        nodes.others.set(2, Mood::Silent);
        reactor::sleep(Duration::from_secs(15)).await;
        let some = rows(&nodes, 2).await;
        assert!((1..1000).contains(&some), "{some} rows of 1000");
        nodes.others.set(2, Mood::Serves);
        delivered(&nodes).await;
        assert_eq!(rows(&nodes, 2).await, 1000);
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}
