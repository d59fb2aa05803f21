//! The `replication` map of a keyspace: strategies, factors, and their effect on this node.
//!
//! Stored form: `class` in full, factors as canonical numbers, `replication_factor` of
//! NetworkTopologyStrategy expanded to the existing data centers (Cassandra's `ReplicationParams` and the
//! strategies' `prepareOptions`).

use std::collections::BTreeMap;

use super::mistake::{config, invalid};
use super::plan::PlanContext;
use crate::StatementError;

const PACKAGE: &str = "org.apache.cassandra.locator.";
const FACTOR: &str = "replication_factor";

type Replication = BTreeMap<String, String>;

/// Reads a replication map, which has a class; `previous` is the kept form of the map it replaces.
pub(super) fn read(
    keyspace: &str,
    map: &Replication,
    previous: &Replication,
    context: &PlanContext<'_>,
    warnings: &mut Vec<String>,
) -> Result<Replication, StatementError> {
    let Some(class) = map.get("class") else { return Err(config("Missing replication strategy class")) };
    let class = if class.contains('.') { class.clone() } else { format!("{PACKAGE}{class}") };
    let mut options = map.clone();
    options.remove("class");
    let strategy = class.strip_prefix(PACKAGE).unwrap_or(&class);
    context.guardrails.replication_strategy(keyspace, strategy, warnings)?;
    match class.strip_prefix(PACKAGE) {
        Some("SimpleStrategy") => simple(keyspace, &mut options, previous, context, warnings)?,
        Some("NetworkTopologyStrategy") => topology(keyspace, &mut options, previous, context, warnings)?,
        Some("LocalStrategy") => {
            return Err(invalid(
                "Unable to use given strategy class: LocalStrategy is reserved for internal use.",
            ));
        }
        Some("OldNetworkTopologyStrategy") => {
            return Err(config(
                "The support for the OldNetworkTopologyStrategy has been removed in C* version 4.0. The keyspace \
                 strategy should be switch to NetworkTopologyStrategy",
            ));
        }
        _ => return Err(config(format!("Unable to find replication strategy class '{class}'"))),
    }
    options.insert("class".to_owned(), class);
    Ok(options)
}

fn simple(
    keyspace: &str,
    options: &mut Replication,
    previous: &Replication,
    context: &PlanContext<'_>,
    warnings: &mut Vec<String>,
) -> Result<(), StatementError> {
    if !options.contains_key(FACTOR) {
        options.insert(FACTOR.to_owned(), unnamed_factor(previous, context));
    }
    let factor = factor(&options[FACTOR])?;
    if let Some(name) = options.keys().find(|name| *name != FACTOR) {
        return Err(unrecognized(name, "SimpleStrategy", keyspace));
    }
    guard(keyspace, factor, context, warnings)?;
    let nodes: usize = context.data_centers.iter().map(|(_, nodes)| nodes).sum();
    if usize::try_from(factor).is_ok_and(|factor| factor > nodes) {
        warnings.push(format!(
            "Your replication factor {factor} for keyspace {keyspace} is higher than the number of nodes {nodes}"
        ));
    }
    Ok(())
}

fn topology(
    keyspace: &str,
    options: &mut Replication,
    previous: &Replication,
    context: &PlanContext<'_>,
    warnings: &mut Vec<String>,
) -> Result<(), StatementError> {
    if options.is_empty() {
        options.insert(FACTOR.to_owned(), unnamed_factor(previous, context));
    }
    if let Some(everywhere) = options.remove(FACTOR) {
        // A factor for all data centers does not change the factors given before, for safety.
        for (name, factor) in previous {
            if name != FACTOR && name != "class" {
                options.entry(name.clone()).or_insert_with(|| factor.clone());
            }
        }
        // An invalid number is reported below as the absence of any data center, as by Cassandra.
        if let Ok(everywhere) = factor(&everywhere) {
            for (name, _) in context.data_centers {
                options.entry(name.clone()).or_insert_with(|| everywhere.to_string());
            }
        }
    }
    options.retain(|_, factor| factor != "0");
    for text in options.values() {
        factor(text)?;
    }
    if options.is_empty() {
        return Err(config("Configuration for at least one datacenter must be present"));
    }
    for (name, text) in options.iter() {
        let Some((_, nodes)) = context.data_centers.iter().find(|(known, _)| known == name) else {
            return Err(unrecognized(name, "NetworkTopologyStrategy", keyspace));
        };
        let factor = factor(text)?;
        guard(keyspace, factor, context, warnings)?;
        if usize::try_from(factor).is_ok_and(|factor| factor > *nodes) && *nodes > 0 {
            warnings.push(format!(
                "Your replication factor {factor} for keyspace {keyspace} is higher than the number of nodes {nodes} \
                 for datacenter {name}"
            ));
        }
    }
    Ok(())
}

/// The factor of a keyspace that names none: the previous one, otherwise `default_keyspace_rf`.
fn unnamed_factor(previous: &Replication, context: &PlanContext<'_>) -> String {
    let default = || context.guardrails.default_keyspace_rf.to_string();
    previous.get(FACTOR).cloned().unwrap_or_else(default)
}

fn guard(
    keyspace: &str,
    factor: i32,
    context: &PlanContext<'_>,
    warnings: &mut Vec<String>,
) -> Result<(), StatementError> {
    context.guardrails.replication_factor(keyspace, u64::from(factor.unsigned_abs()), warnings)
}

/// The sum of the factors of a kept map.
pub(super) fn total_factor(replication: &Replication) -> i64 {
    let factors = replication.iter().filter(|(name, _)| *name != "class");
    factors.filter_map(|(_, factor)| factor.parse::<i64>().ok()).sum()
}

fn factor(text: &str) -> Result<i32, StatementError> {
    if let Some((_, transient)) = text.split_once('/') {
        return Err(config(if transient.contains('/') {
            "Replication factor format is <replicas> or <replicas>/<transient>"
        } else {
            "Transient replication is not enabled on this node"
        }));
    }
    let factor: i32 = text.parse().map_err(|_| config(format!("For input string: \"{text}\"")))?;
    if factor < 0 {
        return Err(config(format!("Replication factor must be non-negative, found {factor}")));
    }
    Ok(factor)
}

fn unrecognized(name: &str, strategy: &str, keyspace: &str) -> StatementError {
    config(format!("Unrecognized strategy option {{{name}}} passed to {strategy} for keyspace {keyspace}"))
}
