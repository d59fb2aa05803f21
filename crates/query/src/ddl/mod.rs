//! Statements that change the schema: CREATE, ALTER and DROP of keyspaces, tables and types.
//!
//! Planning (`plan` and the files it names) is pure; `agreement` executes the change.

mod aggregate;
mod compact;
mod drop;
mod function;
mod hash_order;
mod keyspace;
pub(crate) mod mistake;
mod names;
pub(crate) mod options;
pub(crate) mod plan;
pub(crate) mod properties;
mod replication;
pub(crate) mod roles;
pub(crate) mod row_expiry;
mod table_alter;
pub(crate) mod table_create;
mod table_like;
mod trigger;
pub(crate) mod types;
mod user_type;

use cql::ast::Statement;

use crate::agreement::{ChangeRequest, agree};
use crate::{ClientState, Engine, QueryError, Response, results};

pub use names::is_system;

/// Executes a statement that changes the schema and appends SCHEMA_CHANGE, or VOID if nothing had to change.
///
/// `keyspace` is the keyspace of unqualified names, as of the time when the statement was prepared.
///
/// # Errors
/// The statement's error, in Cassandra's words; [`QueryError::Internal`] if the change could not be made
/// durable.
pub async fn execute(
    client: &ClientState,
    statement: &Statement,
    keyspace: Option<&str>,
    out: &mut Response,
) -> Result<(), QueryError> {
    if let Some(engine) = Engine::here() {
        roles::refuse(statement, keyspace, &[&engine.config().data_center])?;
    }
    let keyspace = keyspace.map(str::to_owned);
    let agreed = agree(ChangeRequest { statement: statement.clone(), keyspace }).await;
    out.warnings.extend(agreed.warnings);
    match agreed.outcome? {
        Some(event) => event.append_result(&mut out.body, client.version),
        None => results::append_void(&mut out.body),
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
