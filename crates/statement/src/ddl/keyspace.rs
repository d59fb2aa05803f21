//! CREATE and ALTER KEYSPACE.

use std::collections::BTreeMap;

use cql::ast::{AlterKeyspace, CreateKeyspace};
use model::schema::{KeyspaceOptions, KeyspaceTablets, SchemaChange};

use super::mistake::{config, invalid, unauthorized, unsupported};
use super::names::{check_keyspace_name, is_local_system};
use super::plan::{PlanContext, Planned, keyspace_event};
use super::properties::Properties;
use super::replication;
use crate::StatementError;
use crate::schema_events::Change;

const NAMES: [&str; 5] = ["consistency", "durable_writes", "replication", "storage", "tablets"];

/// Plans CREATE KEYSPACE.
pub(super) fn create(
    statement: &CreateKeyspace,
    context: &PlanContext<'_>,
    warnings: &mut Vec<String>,
) -> Result<Planned, StatementError> {
    let name = statement.name.as_str();
    let properties = Properties::new(&statement.properties)?;
    if is_local_system(name) {
        return Err(invalid(format!("System keyspace '{name}' is not user-modifiable")));
    }
    check_keyspace_name(name)?;
    check(&properties)?;
    let Some(replication) = properties.map("replication")? else {
        return Err(invalid("Missing mandatory option 'replication'"));
    };
    if properties.map("replication")?.is_some_and(is_simple) {
        context.guardrails.simple_strategy()?;
    }
    let event = keyspace_event(Change::Created, name);
    if context.schema.keyspace(name).is_some() {
        return if statement.if_not_exists {
            Ok(Planned::nothing(event))
        } else {
            Err(StatementError::AlreadyExists {
                keyspace: name.to_owned(),
                table: String::new(),
                message: format!("Cannot add existing keyspace \"{name}\""),
            })
        };
    }
    let durable_writes = properties.boolean("durable_writes")?.unwrap_or(true);
    context.guardrails.keyspace(name, context.user_keyspaces().count() + 1, warnings)?;
    let replication = replication::read(name, replication, &BTreeMap::new(), context, warnings)?;
    let mut options = KeyspaceOptions { replication, durable_writes, tablets: None };
    warnings.extend(tablets(&properties, &mut options.tablets)?);
    let change = SchemaChange::CreateKeyspace { name: name.to_owned(), options };
    Ok(Planned::change(change, event))
}

/// Plans ALTER KEYSPACE.
pub(super) fn alter(
    statement: &AlterKeyspace,
    context: &PlanContext<'_>,
    warnings: &mut Vec<String>,
) -> Result<Planned, StatementError> {
    let name = statement.name.as_str();
    let properties = Properties::new(&statement.properties)?;
    if is_local_system(name) {
        return Err(unauthorized(format!("{name} keyspace is not user-modifiable.")));
    }
    check_keyspace_name(name)?;
    check(&properties)?;
    let event = keyspace_event(Change::Updated, name);
    let Some(keyspace) = context.schema.keyspace(name) else {
        return if statement.if_exists {
            Ok(Planned::nothing(event))
        } else {
            Err(invalid(format!("Keyspace '{name}' doesn't exist")))
        };
    };
    if properties.map("replication")?.is_some_and(is_simple) {
        context.guardrails.simple_strategy()?;
    }
    let mut options = keyspace.options.clone();
    if let Some(durable_writes) = properties.boolean("durable_writes")? {
        options.durable_writes = durable_writes;
    }
    if let Some(map) = properties.map("replication")?.filter(|map| !map.is_empty()) {
        let before = &keyspace.options.replication;
        options.replication = replication::read(name, map, before, context, warnings)?;
        let grows = replication::total_factor(before) < replication::total_factor(&options.replication);
        // Several nodes give the new replicas their rows by themselves.
        let nodes: usize = context.data_centers.iter().map(|(_, nodes)| nodes).sum();
        if grows && nodes < 2 {
            warnings.push(
                "When increasing replication factor you need to run a full (-full) repair to distribute the data."
                    .to_owned(),
            );
        }
    }
    warnings.extend(tablets(&properties, &mut options.tablets)?);
    if options == keyspace.options {
        return Ok(Planned::nothing(event));
    }
    let change = SchemaChange::AlterKeyspace { name: name.to_owned(), options };
    Ok(Planned::change(change, event))
}

/// Reads ScyllaDB's `tablets = {'enabled': …, 'initial': …}` into `tablets`, if the statement has it; an
/// empty map removes the option. Returns a warning about the parts without effect here: tables are made of
/// tablets in any case.
fn tablets(
    properties: &Properties,
    tablets: &mut Option<KeyspaceTablets>,
) -> Result<Option<String>, StatementError> {
    let Some(map) = properties.map("tablets")? else { return Ok(None) };
    let mut read = KeyspaceTablets::default();
    for (name, value) in map {
        match (name.as_str(), value.to_lowercase().as_str()) {
            ("enabled", "true") => read.enabled = Some(true),
            ("enabled", "false") => read.enabled = Some(false),
            ("enabled", _) => {
                return Err(config(format!("enabled of tablets must be true or false (got {value})")));
            }
            ("initial", count) => {
                let count = count.parse::<i32>().ok().and_then(|count| u32::try_from(count).ok());
                read.initial = Some(count.ok_or_else(|| {
                    config(format!(
                        "initial of tablets must be a whole number from 0 to {} (got {value})",
                        i32::MAX
                    ))
                })?);
            }
            _ => {
                return Err(config(format!(
                    "Unknown entry '{name}' of tablets: there are only enabled, initial"
                )));
            }
        }
    }
    let without = read.enabled == Some(false);
    *tablets = (!map.is_empty()).then_some(read);
    Ok(without
        .then(|| "Tables of this keyspace have tablets all the same: there is no other way here".to_owned()))
}

/// Whether a map of replication names SimpleStrategy, by its short name as Cassandra looks for it.
fn is_simple(replication: &BTreeMap<String, String>) -> bool {
    replication.get("class").is_some_and(|class| class == "SimpleStrategy")
}

fn check(properties: &Properties) -> Result<(), StatementError> {
    properties.check_names(&NAMES)?;
    match properties.map("replication")? {
        Some(map) if !map.is_empty() && !map.contains_key("class") => {
            Err(config("Missing replication strategy class"))
        }
        _ => elsewhere(properties),
    }
}

/// Refuses options of ScyllaDB's keyspaces that are not supported here: replicas that agree on every write
/// (`consistency`), and table files that are not on the node's disks (`storage`).
fn elsewhere(properties: &Properties) -> Result<(), StatementError> {
    if let Some(map) = properties.map("storage")?
        && !map.is_empty()
    {
        if map.get("type").is_none_or(|kind| !kind.eq_ignore_ascii_case("local")) {
            return Err(unsupported("Table files in an object store are"));
        }
        let superfluous: Vec<&str> = map.keys().map(String::as_str).filter(|name| *name != "type").collect();
        if !superfluous.is_empty() {
            let superfluous = superfluous.join(", ");
            return Err(config(format!("Storage of type LOCAL has no option {superfluous}: leave it out")));
        }
    }
    if properties.text("consistency")?.is_some_and(|kind| !kind.eq_ignore_ascii_case("eventual")) {
        return Err(unsupported("Keyspaces with a consistency other than 'eventual' are"));
    }
    Ok(())
}
