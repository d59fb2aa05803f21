//! Reads of virtual tables, with the same ranges, slices and order as stored ones.
//!
//! Tables about the schema are filled one table of the schema at a time, and the one of clients some clients
//! at a time. Other tasks may run in between, so that many thousand tables or clients do not occupy the
//! shard.

use std::cmp::Ordering;
use std::rc::Rc;

use cluster::Nodes;
use model::schema::Keyspace;
use model::{Schema, Table, Token, partition_key, token};
use storage::{
    CompactionRecord, Flow, PartitionBound, PartitionRange, ReadCommand, RowConsumer, SizeEstimate,
};

use super::node::{self, NodeFacts};
use super::rows::{Partition, Rows};
use super::views::{self, ClientRow, Views};
use super::{Catalog, estimates, is_virtual, large, runtime_info, schema_tables, scylla};
use model::RowView;

/// The data from which virtual tables are filled.
pub(crate) struct World {
    /// The stored schema.
    pub(crate) schema: Rc<Schema>,
    /// The node.
    pub(crate) node: NodeFacts,
    /// The nodes of the cluster.
    pub(crate) nodes: Rc<Nodes>,
    /// Completed compactions, if the read needs them.
    pub(crate) compactions: Vec<CompactionRecord>,
    /// The data of a table of `system_views`, or of some tables of `system`.
    pub(crate) views: Views,
}

/// Reads a virtual table as storage reads a stored one.
pub(crate) async fn read_world(
    catalog: &Catalog,
    world: &World,
    command: &ReadCommand,
    consumer: &mut dyn RowConsumer,
) {
    let table = &*command.table;
    let mut giver = Giver { command, consumer, open: None, flow: Flow::Continue };
    match &world.views {
        Views::Clients(clients) => {
            let fill = |rows: &mut Rows<'_>, one: &ClientRow| views::client(rows, one);
            return give_clients(table, clients, fill, giver).await;
        }
        Views::ClientsOfShards(clients) => {
            let fill = |rows: &mut Rows<'_>, (shard, one): &(usize, ClientRow)| {
                scylla::client(rows, *shard, one);
            };
            return give_clients(table, clients, fill, giver).await;
        }
        Views::Tablets(replicator) => {
            for of in scylla::tables_by_token(&world.schema) {
                let fill = |rows: &mut Rows<'_>| scylla::tablets(rows, of, replicator, &world.node);
                if give_piece(table, fill, &mut giver).await == Flow::Stop {
                    return;
                }
            }
            return giver.close();
        }
        _ => {}
    }
    if (table.keyspace(), table.name()) == ("system", "token_ring") {
        return give_token_ring(table, world, giver).await;
    }
    if let Views::Estimates(tables) = &world.views {
        return give_estimates(table, tables, giver).await;
    }
    if !matches!(table.keyspace(), "system_schema" | "system_virtual_schema") {
        give_piece(table, |rows| fill(rows, table, world), &mut giver).await;
        return giver.close();
    }
    for (token, name) in shown_keyspaces(catalog, world, table.keyspace()) {
        if !is_in(&command.range, token, name.as_bytes()) {
            continue;
        }
        let Some(keyspace) = catalog.keyspace(name).or_else(|| world.schema.keyspace(name)) else {
            continue;
        };
        let mut pieces = schema_tables::pieces(table.name(), keyspace);
        if command.reversed {
            pieces.reverse();
        }
        for piece in pieces {
            let fill = |rows: &mut Rows<'_>| {
                if table.keyspace() == "system_schema" {
                    schema_tables::fill(rows, table.name(), piece);
                } else {
                    schema_tables::fill_virtual(rows, table.name(), piece);
                }
            };
            match give_piece(table, fill, &mut giver).await {
                Flow::Continue => {}
                Flow::SkipPartition => break,
                Flow::Stop => return,
            }
        }
        giver.close();
        if giver.flow == Flow::Stop {
            return;
        }
    }
}

/// Names of the keyspaces that the tables of the keyspace `shown_in` describe, in the order of their
/// tokens.
fn shown_keyspaces<'a>(catalog: &'a Catalog, world: &'a World, shown_in: &str) -> Vec<(Token, &'a str)> {
    let wanted = |keyspace: &&Keyspace| is_virtual(&keyspace.name) == (shown_in == "system_virtual_schema");
    let mut keyspaces: Vec<(Token, &str)> = catalog
        .keyspaces()
        .chain(world.schema.keyspaces())
        .filter(wanted)
        .map(|keyspace| (token::murmur3_token(keyspace.name.as_bytes()), keyspace.name.as_str()))
        .collect();
    keyspaces.sort_by(|(a, a_name), (b, b_name)| {
        partition_key::compare_decorated((*a, a_name.as_bytes()), (*b, b_name.as_bytes()))
    });
    keyspaces
}

/// Gives the consumer the rows of `fill`, in whole partitions, and lets other tasks run.
async fn give_piece(table: &Table, fill: impl FnOnce(&mut Rows<'_>), giver: &mut Giver<'_>) -> Flow {
    let mut rows = Rows::new(table);
    fill(&mut rows);
    for partition in rows.finish() {
        giver.give(&partition);
    }
    reactor::maybe_yield().await;
    giver.flow
}

/// Gives the consumer `system.token_ring`, keyspace by keyspace.
async fn give_token_ring(table: &Table, world: &World, mut giver: Giver<'_>) {
    let nodes = node::on_ring(&world.nodes, &world.node);
    let mut keyspaces: Vec<(Token, &Keyspace)> = world
        .schema
        .keyspaces()
        .map(|keyspace| (token::murmur3_token(keyspace.name.as_bytes()), keyspace))
        .collect();
    keyspaces.sort_by_key(|(token, keyspace)| (*token, keyspace.name.as_str()));
    for (_, keyspace) in keyspaces {
        let fill = |rows: &mut Rows<'_>| scylla::token_ring(rows, keyspace, &nodes, &world.node);
        if give_piece(table, fill, &mut giver).await == Flow::Stop {
            return;
        }
    }
    giver.close();
}

/// Gives the consumer the clients in pieces.
async fn give_clients<C>(
    table: &Table,
    clients: &[C],
    fill: impl Fn(&mut Rows<'_>, &C),
    mut giver: Giver<'_>,
) {
    let mut pieces: Vec<&[C]> = clients.chunks(views::CLIENTS_PER_PIECE).collect();
    if giver.command.reversed {
        pieces.reverse();
    }
    for piece in pieces {
        let fill = |rows: &mut Rows<'_>| piece.iter().for_each(|client| fill(rows, client));
        if give_piece(table, fill, &mut giver).await == Flow::Stop {
            return;
        }
    }
    giver.close();
}

/// Gives the consumer `system.size_estimates` or `system.table_estimates`, one table at a time.
async fn give_estimates(table: &Table, tables: &[SizeEstimate], mut giver: Giver<'_>) {
    let ranges = estimates::ranges();
    // Partitions always come in the order of their tokens, their rows in the requested order.
    for keyspace in tables.chunk_by(|a, b| a.keyspace == b.keyspace) {
        let mut pieces: Vec<&SizeEstimate> = keyspace.iter().collect();
        if giver.command.reversed {
            pieces.reverse();
        }
        for piece in pieces {
            match give_piece(table, |rows| estimates::fill(rows, piece, &ranges), &mut giver).await {
                Flow::Continue => {}
                Flow::SkipPartition => break,
                Flow::Stop => return,
            }
        }
        giver.close();
        if giver.flow == Flow::Stop {
            return;
        }
    }
}

fn fill(rows: &mut Rows<'_>, table: &Table, world: &World) {
    match (table.keyspace(), table.name()) {
        ("system", "local") => node::local(rows, &world.nodes, &world.node, world.schema.version()),
        ("system", "peers") => node::peers(rows, &world.nodes, &world.node, world.schema.version()),
        ("system", "peers_v2") => node::peers_v2(rows, &world.nodes, &world.node, world.schema.version()),
        ("system", "versions") => node::versions(rows),
        ("system", "compaction_history") => {
            world.compactions.iter().for_each(|record| node::compaction(rows, record));
        }
        ("system", "protocol_servers") => scylla::protocol_servers(rows, &world.node),
        ("system", name) => match &world.views {
            Views::LargeData(files) => large::fill(rows, name, files, &world.schema),
            Views::Settings(settings) => scylla::config(rows, &world.node, settings),
            Views::Snapshots(snapshots) => scylla::snapshots(rows, snapshots),
            Views::Runtime(runtime) => runtime_info::fill(rows, &world.node, runtime),
            _ => {}
        },
        ("system_views", _) => views::fill(rows, &world.views, &world.node),
        // The other tables are empty, because the node has nothing to show there: no repairs.
        _ => {}
    }
}

/// Gives rows to the consumer as the command asks for them; a partition may come in pieces.
struct Giver<'a> {
    command: &'a ReadCommand,
    consumer: &'a mut dyn RowConsumer,
    /// Key of the partition that was begun and has not ended.
    open: Option<Vec<u8>>,
    /// The consumer's last answer.
    flow: Flow,
}

impl Giver<'_> {
    /// Gives the consumer the requested rows of a partition, or of a piece of one.
    fn give(&mut self, partition: &Partition) {
        let continues = self.open.as_ref() == Some(&partition.key);
        if !continues {
            self.close();
        }
        let skipped = continues && self.flow == Flow::SkipPartition;
        if self.flow == Flow::Stop || skipped || !is_in(&self.command.range, partition.token, &partition.key)
        {
            return;
        }
        let orders = self.command.table.clustering_orders();
        let wanted = |(clustering, _): &&(Vec<u8>, Vec<u8>)| {
            self.command.slices.iter().any(|slice| slice.contains(clustering, orders))
        };
        let mut rows: Vec<_> = partition.rows.iter().filter(wanted).collect();
        if self.command.reversed {
            rows.reverse();
        }
        if rows.is_empty() {
            return;
        }
        if !continues {
            self.open = Some(partition.key.clone());
            self.flow = self.consumer.partition(&partition.key, partition.token, None);
        }
        for (clustering, row) in rows {
            if self.flow != Flow::Continue {
                return;
            }
            self.flow = self.consumer.row(clustering, RowView::trusted(row));
        }
    }

    /// Ends the open partition, unless the consumer stopped.
    fn close(&mut self) {
        if self.flow != Flow::Stop && self.open.is_some() {
            self.flow = match self.consumer.partition_end() {
                Flow::Stop => Flow::Stop,
                Flow::Continue | Flow::SkipPartition => Flow::Continue,
            };
        }
        self.open = None;
    }
}

fn is_in(range: &PartitionRange, token: Token, key: &[u8]) -> bool {
    match range {
        PartitionRange::Key(wanted) => wanted.key == key,
        PartitionRange::Between { from, to } => {
            let order = |bound: &PartitionBound| {
                token.cmp(&bound.token).then_with(|| match &bound.key {
                    Some(bound) => key.cmp(bound.as_slice()),
                    None => Ordering::Equal,
                })
            };
            let (begin, end) = (order(from), order(to));
            (begin.is_gt() || from.inclusive && begin.is_eq()) && (end.is_lt() || to.inclusive && end.is_eq())
        }
    }
}
