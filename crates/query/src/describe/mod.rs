//! DESCRIBE, answered by the server as Cassandra 5 does it; `cqlsh` shows these rows as they are.
//!
//! Lists have the columns keyspace_name, type and name; descriptions have create_statement too. Pages are
//! identified by the number of rows already returned, and end with an error if the schema changed in between.

mod elements;
mod page;
mod text;

use cql::ast::{Describe, DescribeTarget};
use model::collection::CollectionBuilder;
use statement::ddl::is_system;
use statement::system::Catalog;

use wire::request::QueryParameters;

use crate::engine::Engine;
use crate::system::{NodeFacts, catalog_here, ring_tokens};
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
    let node = NodeFacts::of(engine.config(), 0);
    let keyspace = parameters.keyspace.or(client.keyspace.as_deref());
    let description = describe(statement, &schema, &catalog, &node, keyspace)?;
    append_rows(&description, schema.version(), parameters.page_size, parameters.paging_state, &mut out.body)
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
    node: &NodeFacts,
    keyspace: Option<&str>,
) -> Result<Description, QueryError> {
    if statement.target == DescribeTarget::Cluster {
        return Ok(cluster(node, keyspace));
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

fn cluster(node: &NodeFacts, keyspace: Option<&str>) -> Description {
    let mut columns = vec!["cluster", "partitioner", "snitch"];
    // The name that every Cassandra with default settings gives here; placement does not depend on it.
    let mut row = vec![
        node.cluster_name.clone().into_bytes(),
        b"Murmur3Partitioner".to_vec(),
        b"DynamicEndpointSnitch".to_vec(),
    ];
    if keyspace.is_some_and(|keyspace| !is_system(keyspace)) {
        columns.push(RANGE_OWNERSHIP);
        let mut endpoints = Vec::new();
        let mut list = CollectionBuilder::begin(&mut endpoints);
        let port = node.listen_port;
        list.push(format!("/{}:{port}", node.listen_address).as_bytes());
        list.finish();
        let mut ownership = Vec::new();
        let mut map = CollectionBuilder::begin(&mut ownership);
        for token in ring_tokens() {
            map.push(token.to_string().as_bytes());
            map.push(&endpoints);
        }
        map.finish_map();
        row.push(ownership);
    }
    Description { columns, rows: vec![row] }
}

#[cfg(test)]
pub(crate) mod tests;
