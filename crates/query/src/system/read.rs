//! Reading a made-up table: the same ranges, slices and order as a stored one.
//!
//! Tables about the schema are made up one table of the schema at a time, and the one of clients some clients at a time, with a
//! chance for others in between, so that a schema of many thousand tables, or as many clients, do not hold the shard.

use std::cmp::Ordering;
use std::rc::Rc;

use model::schema::Keyspace;
use model::{Schema, Table, Token, partition_key, token};
use storage::{CompactionRecord, Flow, PartitionBound, PartitionRange, ReadCommand, RowConsumer};

use super::node::{self, NodeFacts};
use super::rows::{Partition, Rows};
use super::views::{self, ClientRow, Views};
use super::{Catalog, is_virtual, large, schema_tables};
use model::RowView;

/// What made-up rows tell about.
pub(crate) struct World {
    /// The stored schema.
    pub(crate) schema: Rc<Schema>,
    /// The node.
    pub(crate) node: NodeFacts,
    /// Compactions that have ended, where they are asked for.
    pub(crate) compactions: Vec<CompactionRecord>,
    /// What a table of `system_views` is made of.
    pub(crate) views: Views,
}

impl Catalog {
    /// Reads a made-up table as storage reads a stored one.
    pub(crate) async fn read_world(
        &self,
        world: &World,
        command: &ReadCommand,
        consumer: &mut dyn RowConsumer,
    ) {
        let table = &*command.table;
        let mut giver = Giver { command, consumer, open: None, flow: Flow::Continue };
        if let Views::Clients(clients) = &world.views {
            return give_clients(table, clients, giver).await;
        }
        if !matches!(table.keyspace(), "system_schema" | "system_virtual_schema") {
            let mut rows = Rows::new(table);
            fill(&mut rows, table, world);
            for partition in rows.finish() {
                giver.give(&partition);
            }
            giver.close();
            return;
        }
        for (token, name) in self.shown_keyspaces(world, table.keyspace()) {
            if !is_in(&command.range, token, name.as_bytes()) {
                continue;
            }
            let Some(keyspace) = self.keyspace(name).or_else(|| world.schema.keyspace(name)) else {
                continue;
            };
            let mut pieces = schema_tables::pieces(table.name(), keyspace);
            if command.reversed {
                pieces.reverse();
            }
            for piece in pieces {
                let mut rows = Rows::new(table);
                if table.keyspace() == "system_schema" {
                    schema_tables::fill(&mut rows, table.name(), piece);
                } else {
                    schema_tables::fill_virtual(&mut rows, table.name(), piece);
                }
                for partition in rows.finish() {
                    giver.give(&partition);
                }
                match giver.flow {
                    Flow::Continue => reactor::maybe_yield().await,
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

    /// Names of the keyspaces that a table of `shown_in` speaks of, by token.
    fn shown_keyspaces<'a>(&'a self, world: &'a World, shown_in: &str) -> Vec<(Token, &'a str)> {
        let wanted =
            |keyspace: &&Keyspace| is_virtual(&keyspace.name) == (shown_in == "system_virtual_schema");
        let mut keyspaces: Vec<(Token, &str)> = self
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
}

/// Hands over `system_views.clients` in pieces.
async fn give_clients(table: &Table, clients: &[ClientRow], mut giver: Giver<'_>) {
    let mut pieces: Vec<&[ClientRow]> = clients.chunks(views::CLIENTS_PER_PIECE).collect();
    if giver.command.reversed {
        pieces.reverse();
    }
    for piece in pieces {
        let mut rows = Rows::new(table);
        piece.iter().for_each(|client| views::client(&mut rows, client));
        for partition in rows.finish() {
            giver.give(&partition);
        }
        if giver.flow == Flow::Stop {
            return;
        }
        reactor::maybe_yield().await;
    }
    giver.close();
}

fn fill(rows: &mut Rows<'_>, table: &Table, world: &World) {
    match (table.keyspace(), table.name()) {
        ("system", "local") => node::local(rows, &world.node, world.schema.version()),
        ("system", "versions") => node::versions(rows),
        ("system", "compaction_history") => {
            world.compactions.iter().for_each(|record| node::compaction(rows, record));
        }
        ("system", name) => {
            if let Views::LargeData(files) = &world.views {
                large::fill(rows, name, files, &world.schema);
            }
        }
        ("system_views", name) => views::fill(rows, name, &world.views, &world.node),
        // What the others would tell of has not happened on this node: no peers, no repairs, no hints.
        _ => {}
    }
}

/// Hands rows to the consumer as the command asks for them; a partition may come in pieces.
struct Giver<'a> {
    command: &'a ReadCommand,
    consumer: &'a mut dyn RowConsumer,
    /// Key of the partition that was announced and has not ended.
    open: Option<Vec<u8>>,
    /// What the consumer said last.
    flow: Flow,
}

impl Giver<'_> {
    /// Hands over what is wanted of a partition, or of a piece of one.
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

    /// Ends the partition that was announced, unless the consumer stopped.
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
