//! DESCRIBE, answered by the server as Cassandra 5 does it; `cqlsh` shows these rows as they are.
//!
//! Lists have the columns keyspace_name, type and name; descriptions have create_statement too. Pages are
//! identified by the number of rows already returned, and end with an error if the schema changed in between.

mod elements;
mod page;
mod text;

use cluster::Nodes;
use cql::ast::{Describe, DescribeTarget};
use model::collection::CollectionBuilder;
use model::schema::Keyspace;
use statement::ddl::is_system;
use statement::system::Catalog;

use wire::request::QueryParameters;

use crate::engine::Engine;
use crate::system::{NodeFacts, catalog_here, on_ring, ring_of};
use crate::{ClientState, QueryError, Response};
use elements::View;

pub(crate) use page::append_rows;

/// Answers a DESCRIBE and appends its ROWS.
///
/// # Errors
/// The described element does not exist; a paging state that is invalid or of another schema.
pub fn execute(
    engine: &Engine,
    client: &ClientState,
    statement: &Describe,
    parameters: &QueryParameters<'_>,
    out: &mut Response,
) -> Result<(), QueryError> {
    let catalog = catalog_here()?;
    let schema = engine.storage().schema();
    let around = Around { own: &NodeFacts::of(engine.config(), 0), nodes: &cluster::View::here().nodes() };
    let keyspace = parameters.keyspace.or(client.keyspace.as_deref());
    let description = describe(statement, &schema, &catalog, around, keyspace)?;
    append_rows(&description, schema.version(), parameters.page_size, parameters.paging_state, &mut out.body)
}

/// This node and all of its cluster.
#[derive(Clone, Copy)]
pub(crate) struct Around<'a> {
    pub(crate) own: &'a NodeFacts,
    pub(crate) nodes: &'a Nodes,
}

/// Rows of a DESCRIBE before they are cut into pages.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Description {
    /// Names of the columns; all hold text but `range_ownership`.
    pub(crate) columns: Vec<&'static str>,
    /// Values of each row.
    pub(crate) rows: Vec<Vec<Vec<u8>>>,
}

/// A column that holds `map<text, list<text>>`.
const RANGE_OWNERSHIP: &str = "range_ownership";

/// The rows of a DESCRIBE of a schema.
///
/// # Errors
/// The described element does not exist.
pub(crate) fn describe(
    statement: &Describe,
    schema: &model::Schema,
    catalog: &Catalog,
    around: Around<'_>,
    keyspace: Option<&str>,
) -> Result<Description, QueryError> {
    if statement.target == DescribeTarget::Cluster {
        let shown = keyspace.filter(|name| !is_system(name)).and_then(|name| schema.keyspace(name));
        return Ok(cluster(around, shown));
    }
    let view = View { schema, catalog, current: keyspace };
    let elements = view.elements(statement)?;
    let is_list = matches!(
        statement.target,
        DescribeTarget::Keyspaces
            | DescribeTarget::Tables
            | DescribeTarget::Types
            | DescribeTarget::Functions
            | DescribeTarget::Aggregates
    );
    let mut columns = vec!["keyspace_name", "type", "name"];
    if !is_list {
        columns.push("create_statement");
    }
    let row = |element: &elements::Element<'_>| {
        let mut row = vec![element.keyspace(), element.kind().to_owned(), element.name()];
        if !is_list {
            row.push(element.text(statement.internals));
        }
        row.into_iter().map(String::into_bytes).collect()
    };
    Ok(Description { columns, rows: elements.iter().map(row).collect() })
}

/// The cluster; with who has which range where a keyspace of a user is in use.
fn cluster(around: Around<'_>, keyspace: Option<&Keyspace>) -> Description {
    let mut columns = vec!["cluster", "partitioner", "snitch"];
    // The name that every Cassandra with default settings gives here; placement does not depend on it.
    let mut row = vec![
        around.own.cluster_name.clone().into_bytes(),
        b"Murmur3Partitioner".to_vec(),
        b"DynamicEndpointSnitch".to_vec(),
    ];
    if let Some(keyspace) = keyspace {
        columns.push(RANGE_OWNERSHIP);
        let nodes = on_ring(around.nodes, around.own);
        let mut ownership = Vec::new();
        let mut map = CollectionBuilder::begin(&mut ownership);
        for range in ring_of(keyspace, &nodes, around.own) {
            let mut endpoints = Vec::new();
            let mut list = CollectionBuilder::begin(&mut endpoints);
            for number in range.replicas {
                let replica = nodes.iter().find(|node| node.number == number);
                let replica = replica.expect("replicas of the ring are nodes of it");
                list.push(format!("/{}", replica.listen).as_bytes());
            }
            list.finish();
            map.push(range.end.0.to_string().as_bytes());
            map.push(&endpoints);
        }
        map.finish_map();
        row.push(ownership);
    }
    Description { columns, rows: vec![row] }
}

#[cfg(test)]
pub(crate) mod tests;
