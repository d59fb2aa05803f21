//! System tables: the node and its schema as rows, with the columns of Cassandra 5.0.6.
//!
//! Definitions are CQL texts (`statement::system`) that go through the same planner as a user's tables, so
//! name resolution, metadata and SELECT see ordinary tables. The tables of `system`, `system_schema`,
//! `system_views` and `system_virtual_schema` are virtual: their rows are made when they are read. Those of
//! `system_auth`, `system_distributed` and `system_traces` are stored tables that a node creates at its first
//! start (`first_changes`).
//! Invariant: a read sees one snapshot of the schema. Statements use the tables through `VirtualTables`,
//! `describe` uses the definitions.

mod estimates;
mod large;
mod node;
mod read;
mod rows;
mod runtime_info;
mod schema_tables;
mod scylla;
mod views;

use std::pin::Pin;
use std::rc::Rc;

use model::Table;
use storage::{ReadCommand, RowConsumer};

use crate::{Engine, QueryError, VirtualTables};

pub use node::NodeFacts;
pub(crate) use node::{on_ring, ring_of};
pub(crate) use read::World;
pub use statement::system::{Catalog, first_changes, is_virtual};
pub use views::ClientRow;
use views::Views;

/// The definitions of virtual tables; other tasks run after each table, because a node starts while it has
/// clients.
async fn catalog_in_steps() -> Result<Catalog, QueryError> {
    let mut catalog = Catalog::empty()?;
    for statement in Catalog::statements() {
        catalog.add(statement)?;
        reactor::maybe_yield().await;
    }
    Ok(catalog)
}

/// The catalog of the current shard.
///
/// # Errors
/// [`QueryError::NotReady`] before the shard's engine has its tables.
pub(crate) fn catalog_here() -> Result<Rc<Catalog>, QueryError> {
    reactor::local::<Catalog>().ok_or_else(|| QueryError::NotReady("the node has not started yet".to_owned()))
}

/// The engine's access to the virtual tables of a shard.
#[derive(Debug)]
pub struct SystemTables {
    catalog: Rc<Catalog>,
    generation: u32,
}

impl SystemTables {
    /// The virtual tables of this shard, which DESCRIBE also finds through the shard from now on. The current
    /// time is shown as the start of the node.
    ///
    /// # Errors
    /// As [`Catalog::new`].
    pub async fn new() -> Result<Self, QueryError> {
        let catalog = Rc::new(catalog_in_steps().await?);
        reactor::set_local(Rc::clone(&catalog));
        let seconds = reactor::wall_clock_us() / 1_000_000;
        Ok(Self { catalog, generation: u32::try_from(seconds).unwrap_or(0) })
    }
}

impl VirtualTables for SystemTables {
    fn has_keyspace(&self, keyspace: &str) -> bool {
        self.catalog.keyspace(keyspace).is_some()
    }

    fn table(&self, keyspace: &str, name: &str) -> Option<Rc<Table>> {
        self.catalog.table(keyspace, name)
    }

    fn read<'a>(
        &'a self,
        engine: &'a Engine,
        command: &'a ReadCommand,
        consumer: &'a mut dyn RowConsumer,
    ) -> Pin<Box<dyn Future<Output = Result<(), QueryError>> + 'a>> {
        Box::pin(async move {
            let of_compactions =
                command.table.keyspace() == "system" && command.table.name() == "compaction_history";
            let world = World {
                schema: engine.storage().schema(),
                node: NodeFacts::of(engine.config(), self.generation),
                nodes: cluster::View::here().nodes(),
                compactions: if of_compactions {
                    engine.storage().compaction_history_of_node().await?
                } else {
                    Vec::new()
                },
                views: match (command.table.keyspace(), command.table.name()) {
                    ("system_views", name) => Views::load(engine, name).await?,
                    ("system", name) if large::is_large_data(name) => Views::large_data(engine).await?,
                    ("system", name @ ("config" | "snapshots" | "clients" | "tablets" | "runtime_info")) => {
                        Views::of_system(engine, name).await?
                    }
                    ("system", name) if estimates::is_estimates(name) => Views::estimates(engine).await?,
                    _ => Views::default(),
                },
            };
            read::read_world(&self.catalog, &world, command, consumer).await;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests;
