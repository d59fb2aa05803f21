//! The first and the last thing of a run: tables are made, and once all nodes are well again each of them
//! looks at everything.
//!
//! The order is that of [`steps`]. First whatever nodes still do by themselves has its time, and serial reads
//! finish conditional writes. Reads by a majority show from every node what was acknowledged. Reads of all
//! copies repair them; after these each node shows the same by its nearest copy, and the copies are equal in
//! all that they have, deletions included.

use std::collections::BTreeMap;
use std::time::Duration;

use model::clustering::Position;
use model::partition_key::DecoratedKey;
use reactor::{Deadline, Group, mesh};
use replication::Replicator;
use wire::consistency::Consistency;
use wire::node::frame::Verb;
use wire::node::read::{Partitions, Read, SliceList};

use super::cells::Place;
use super::client::Client;
use super::requests::Shape;
use super::workloads::Workload;
use super::{COPIES, KEYS, SETS, Shared};
use crate::answer::Sending;

/// How long it may take until a node is served again after all faults have ended.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(60);
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// How long a hint may take until it is in a file.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(11);
/// The time at which digests are taken; nothing in the tables that are compared expires.
const NOW: u32 = 1_800_000_000;
/// How long those who keep logged batches may take to write out what coordinators have left: until a batch is
/// due, and once more behind an attempt that came just too early for the last node to be well.
const BATCHES_TIME_MAX: Duration = Duration::from_secs(40);

/// What a node looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// Nothing, until what nodes do by themselves is done; then registers at SERIAL.
    Rest,
    /// Its hints, until there are none: they bring writes of unknown outcome.
    Hints,
    /// All rows at a level.
    Rows(Consistency),
    /// Its own copies, as digests.
    Digests,
}

/// Digests of partitions by table and key, each with the node that has the copy.
pub(super) type Digests = BTreeMap<(&'static str, u32), (usize, Vec<u8>)>;

/// One step of the last check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    /// The node that looks.
    pub(super) node: usize,
    /// At what.
    pub(super) look: Look,
}

/// All rows of the tables whose contents stay as they are in the end.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Everything {
    elements: Vec<(u32, u32)>,
    cells: BTreeMap<Place, u64>,
    batches: Vec<(u32, u32)>,
    counters: Vec<i64>,
    passing: Vec<(u32, u32)>,
}

/// The steps of the last check of so many nodes.
pub(super) fn steps(nodes: usize) -> Vec<Step> {
    let each = |look| (0..nodes).map(move |node| Step { node, look });
    let first = |look| [Step { node: 0, look }];
    let (hints, quorum) = (each(Look::Hints), each(Look::Rows(Consistency::Quorum)));
    first(Look::Rest)
        .into_iter()
        .chain(hints)
        .chain(quorum)
        .chain(first(Look::Rows(Consistency::All)))
        .chain(each(Look::Rows(Consistency::One)))
        .chain(each(Look::Digests))
        .collect()
}

/// Makes the tables that are there from the beginning.
///
/// # Errors
/// The statement that fails.
pub(super) async fn prepare(client: &Client) -> Result<(), String> {
    let replication = format!("{{'class': 'NetworkTopologyStrategy', 'datacenter1': {COPIES}}}");
    let keyspace = format!(
        "CREATE KEYSPACE IF NOT EXISTS sim WITH replication = {replication} AND tablets = {{'initial': 4}}"
    );
    let tables = client.shared.workloads.iter().filter_map(|kind| kind.table());
    let tables = tables.map(|(name, columns)| format!("CREATE TABLE IF NOT EXISTS sim.{name} ({columns})"));
    for text in std::iter::once(keyspace).chain(tables) {
        let sent = async || match client.send(&text, Sending::at(Consistency::Quorum)).await {
            Ok(_) => Ok(Some(())),
            Err(error) if client.fate(&error).is_some() => Ok(None),
            Err(error) => Err(format!("{text}: {error:?}")),
        };
        client.settle(sent).await?;
    }
    Ok(())
}

/// Takes a step.
///
/// # Errors
/// The contradiction.
pub(super) async fn everything(client: &Client, step: Step) -> Result<(), String> {
    let level = match step.look {
        Look::Rest => return rest(client).await,
        Look::Rows(level) => level,
        Look::Digests => return digests(client).await,
        Look::Hints => return no_hints(client).await,
    };
    let shown = rows(client, level).await?;
    let (there, gone) = {
        let tables = client.shared.tables.borrow();
        (tables.there(), tables.gone())
    };
    for table in there {
        client.check_table(table, level).await?;
    }
    for table in gone {
        client.check_gone(table).await?;
    }
    let mut settled = client.shared.settled.borrow_mut();
    match &*settled {
        Some(settled) if *settled != shown => {
            Err(format!("at {level} there is {shown:?}, and all copies had {settled:?}"))
        }
        None if level == Consistency::All => {
            *settled = Some(shown);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Waits until nodes have done what they do by themselves, and settles what only agreement can.
async fn rest(client: &Client) -> Result<(), String> {
    let shared = &client.shared;
    client.wait_for_replicas().await?;
    if shared.does(Workload::Batches) {
        reactor::sleep(BATCHES_TIME_MAX).await;
    }
    if shared.does(Workload::Expiry) {
        client.wait_for_expiry().await;
    }
    if shared.does(Workload::Registers) {
        client.settle_registers().await?;
    }
    Ok(())
}

/// All rows at a level, which must be right.
async fn rows(client: &Client, level: Consistency) -> Result<Everything, String> {
    let (shared, mut shown) = (&client.shared, Everything::default());
    for kind in &shared.workloads {
        match kind {
            Workload::Elements => shown.elements = client.show_all(shared.elements_set(), level).await?,
            Workload::Cells => {
                for key in 0..KEYS {
                    let shape = Shape::default();
                    let rows = client.settle(async || client.show_cells(key, level, shape).await).await?;
                    shown.cells.extend(rows);
                }
            }
            Workload::Registers => client.check_registers(level).await?,
            Workload::Batches => shown.batches = client.show_batches(level).await?,
            Workload::Counters => shown.counters = client.show_counters(level).await?,
            Workload::Truncation => shown.passing = client.show_all_passing(level).await?,
            Workload::Expiry => client.check_faded(level).await?,
            Workload::Schema | Workload::Replication => {}
        }
    }
    Ok(shown)
}

/// The tables whose copies are compared, and how many partitions they have. Copies of rows that expired may
/// differ: some make tombstones of them before others.
fn compared(shared: &Shared) -> Vec<(&'static str, u32)> {
    let keys = |kind: &Workload| match kind {
        Workload::Elements | Workload::Batches | Workload::Truncation => Some(SETS),
        Workload::Cells => Some(KEYS),
        Workload::Registers => Some(shared.registers.borrow().keys().end),
        Workload::Counters => Some(shared.counters.borrow().len() as u32),
        Workload::Schema | Workload::Expiry | Workload::Replication => None,
    };
    let tables = shared.workloads.iter().filter_map(|kind| Some((kind.table()?.0, keys(kind)?)));
    tables.collect()
}

/// Waits until the node has no hints left. The first node waits for those that are in no file yet, on any.
async fn no_hints(client: &Client) -> Result<(), String> {
    if client.life.0 == 0 {
        reactor::sleep(FLUSH_TIME_MAX).await;
    }
    let there = async || {
        let text = "SELECT files FROM system_views.pending_hints";
        let rows = client.read(text, Consistency::One, None).await?;
        Ok(rows.filter(Vec::is_empty))
    };
    client.settle(there).await.map(|_none| ())
}

/// Compares the copies of this node with those that others have shown.
async fn digests(client: &Client) -> Result<(), String> {
    let tables = compared(&client.shared);
    for shard in 0..reactor::shard_count() {
        let tables = tables.clone();
        let taken = mesh::call(shard, Group::STATEMENT, move || async move {
            let replicator = reactor::local::<Replicator>().ok_or("the shard has no replicas")?;
            digests_here(&replicator, tables).await
        });
        for (table, key, digest) in taken.await.map_err(|error| error.to_string())?? {
            let mut digests = client.shared.digests.borrow_mut();
            let (by, first) = digests.entry((table, key)).or_insert_with(|| (client.life.0, digest.clone()));
            if *first != digest {
                return Err(format!(
                    "the copies of partition {key} of {table} on nodes {by} and {} differ",
                    client.life.0
                ));
            }
            client.shared.count("copy compared");
        }
    }
    Ok(())
}

/// Digests of the partitions of which this shard has a copy.
async fn digests_here(
    replicator: &Replicator,
    tables: Vec<(&'static str, u32)>,
) -> Result<Vec<(&'static str, u32, Vec<u8>)>, String> {
    let mut taken = Vec::new();
    for (name, keys) in tables {
        let schema = replicator.storage().schema();
        let table = schema.table("sim", name).ok_or_else(|| format!("table {name} is gone"))?.clone();
        let routing = replicator.routing(&table);
        for number in 0..keys {
            let key = DecoratedKey::new(number.to_be_bytes().to_vec());
            let tablet = routing.tablets().tablet_of(key.token);
            let own = replicator.own();
            let Some(place) = routing.replicas(tablet).iter().position(|replica| *replica == own) else {
                continue;
            };
            let mut slices = Vec::new();
            let read = Read {
                table: table.id(),
                version: routing.version(),
                since: routing.since(tablet)[place],
                now: NOW,
                gc_before: 0,
                digest: model::reconcile::DIGEST_VERSION as u8,
                reversed: false,
                bypass_cache: false,
                counted: false,
                rows: None,
                rows_per_partition: None,
                partitions: Partitions::Key(&key.key),
                slices: SliceList::new([(Position::START, Position::END)], &mut slices),
            };
            let mut body = Vec::new();
            read.encode(&mut body);
            let deadline = Deadline::after(SETTLE_TIME_MAX);
            let digest = replicator.serve(Verb::Digest, &body, deadline).await;
            taken.push((name, number, digest.map_err(|fault| format!("a digest: {fault:?}"))?));
        }
    }
    Ok(taken)
}

impl Client {
    /// Asks until there is an answer.
    ///
    /// # Errors
    /// A wrong answer, or none within [`SETTLE_TIME_MAX`].
    pub(super) async fn settle<T>(
        &self,
        ask: impl AsyncFn() -> Result<Option<T>, String>,
    ) -> Result<T, String> {
        let began = reactor::now();
        loop {
            if let Some(answer) = ask().await? {
                return Ok(answer);
            }
            if began.elapsed() > SETTLE_TIME_MAX {
                return Err(format!("no answer within {SETTLE_TIME_MAX:?} of peace"));
            }
            reactor::sleep(TRY_AGAIN).await;
        }
    }
}
