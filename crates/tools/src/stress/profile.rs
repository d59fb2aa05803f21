//! Profiles: a user's tables, columns and statements, from a YAML file.
//!
//! The file's keys are those of cassandra-stress: `keyspace`, `table`, their definitions, `columnspec`,
//! `insert`, `queries`, `token_range_queries`, `extra_definitions`. The columns come from the server, so that
//! an existing table needs no definition.

mod insert;
mod query;
mod scan;
mod validate;

use std::collections::BTreeMap;
use std::time::Duration;

use model::{CqlType, Token};
use serde::Deserialize;

use super::StressError;
use super::action::execute_once;
use super::console::tell;
use super::distribution::{Factory, RatioFactory};
use super::generate::{Generator, Kind, Spread};
use super::operation::{Dialect, Operation};
use super::partition::{PartitionGenerator, Place};
use super::settings::{Order, Settings};
use crate::client::{Client, Prepared};

/// Prefix of a column's name in the text that distinguishes its values from those of other columns.
const SEED_PREFIX: &str = "seed for stress";
/// Rows of a page, if a query does not give a number.
pub(super) const PAGE_ROWS: i32 = 5000;
/// Most rows of a partition that are not worth a warning.
const ROWS_WITHOUT_WARNING: f64 = 100_000_000.0;
/// Most statements of a batch: the protocol counts them in 16 bits.
pub(super) const BATCH_STATEMENTS_MAX: usize = 65_535;

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Taken and not used, as by the original.
    #[serde(default, rename = "seed")]
    _seed: Option<String>,
    /// The name of the profile, for readers of the file.
    #[serde(default, rename = "specname")]
    _name: Option<String>,
    keyspace: Option<String>,
    #[serde(default)]
    keyspace_definition: Option<String>,
    table: Option<String>,
    #[serde(default)]
    table_definition: Option<String>,
    #[serde(default)]
    columnspec: Option<Vec<BTreeMap<String, String>>>,
    #[serde(default)]
    queries: Option<BTreeMap<String, Query>>,
    #[serde(default)]
    token_range_queries: Option<BTreeMap<String, TokenRangeQuery>>,
    #[serde(default)]
    insert: Option<BTreeMap<String, String>>,
    #[serde(default)]
    extra_definitions: Option<Vec<String>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    cql: String,
    #[serde(default)]
    fields: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenRangeQuery {
    #[serde(default)]
    columns: Option<String>,
    #[serde(default)]
    page_size: Option<i32>,
}

/// The table, as described by the server.
#[derive(Debug)]
struct Table {
    keys: Vec<(String, CqlType)>,
    clustering: Vec<(String, CqlType)>,
    values: Vec<(String, CqlType)>,
}

/// A profile.
pub(super) struct Profile {
    path: String,
    keyspace: String,
    keyspace_definition: Option<String>,
    table: String,
    table_definition: Option<String>,
    extra_definitions: Vec<String>,
    spreads: BTreeMap<String, (Spread, String)>,
    queries: BTreeMap<String, Query>,
    token_range_queries: BTreeMap<String, TokenRangeQuery>,
    insert: BTreeMap<String, String>,
    loaded: Option<Table>,
    /// Whether the size of batches was printed.
    is_told: std::cell::Cell<bool>,
}

/// A name in the form of a statement.
fn quoted(name: &str) -> String {
    let is_plain =
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if is_plain { name.to_owned() } else { format!("\"{name}\"") }
}

/// A name as the server keeps it.
fn unquoted(name: &str) -> String {
    match name.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(inside) => inside.replace("\"\"", "\""),
        None => name.to_lowercase(),
    }
}

impl Profile {
    /// Reads a profile from the text of `path`.
    ///
    /// # Errors
    /// [`StressError::Profile`] for an invalid profile.
    pub(super) fn parse(path: &str, text: &str) -> Result<Self, StressError> {
        let wrong = |reason: String| StressError::Profile { path: path.to_owned(), reason };
        let file: File = serde_saphyr::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let required = |value: Option<String>, what: &str| {
            value.ok_or_else(|| wrong(format!("{what} is required in yaml file")))
        };
        let mut spreads = BTreeMap::new();
        for spec in file.columnspec.unwrap_or_default() {
            let (mut name, mut spread, mut shown) = (None, Spread::default(), Vec::new());
            for (key, value) in spec {
                let factory = || Factory::parse(value.trim()).map_err(|error| wrong(error.to_string()));
                match &*key.to_lowercase() {
                    "name" => name = Some(unquoted(&value)),
                    "population" => spread.population = Some(factory()?),
                    "size" => spread.size = Some(factory()?),
                    "cluster" => spread.cluster = Some(factory()?),
                    _ => {
                        return Err(wrong(format!(
                            "Unrecognised option(s) in column spec: {{{key}={value}}}"
                        )));
                    }
                }
            }
            for (label, factory) in
                [("Size", &spread.size), ("Clustering", &spread.cluster), ("Population", &spread.population)]
            {
                if let Some(factory) = factory {
                    shown.push(format!("{label} Distribution: {};", factory.describe()));
                }
            }
            let name = name.ok_or_else(|| wrong("Missing name argument in column spec".to_owned()))?;
            spreads.insert(name, (spread, shown.join(" ")));
        }
        let lower = |map: BTreeMap<String, String>| -> BTreeMap<String, String> {
            map.into_iter().map(|(key, value)| (key.to_lowercase(), value)).collect()
        };
        let queries: BTreeMap<String, Query> =
            file.queries.unwrap_or_default().into_iter().map(|(k, v)| (k.to_lowercase(), v)).collect();
        let token_range_queries: BTreeMap<String, TokenRangeQuery> = file
            .token_range_queries
            .unwrap_or_default()
            .into_iter()
            .map(|(k, v)| (k.to_lowercase(), v))
            .collect();
        if let Some(name) = queries.keys().find(|name| token_range_queries.contains_key(*name)) {
            return Err(wrong(format!(
                "Found {name} in both queries and token_range_queries, please use different names"
            )));
        }
        let given = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
        Ok(Self {
            keyspace: unquoted(&required(file.keyspace, "keyspace name")?),
            keyspace_definition: given(file.keyspace_definition),
            table: unquoted(&required(file.table, "table name")?),
            table_definition: given(file.table_definition),
            extra_definitions: file.extra_definitions.unwrap_or_default(),
            spreads,
            queries,
            token_range_queries,
            insert: lower(file.insert.unwrap_or_default()),
            loaded: None,
            is_told: std::cell::Cell::new(false),
            path: path.to_owned(),
        })
    }

    fn wrong(&self, reason: String) -> StressError {
        StressError::Profile { path: self.path.clone(), reason }
    }

    pub(super) fn keyspace(&self) -> &str {
        &self.keyspace
    }

    /// Keyspace and table, in the form of the output.
    pub(super) fn table_name(&self) -> String {
        format!("{}.{}", self.keyspace, self.table)
    }

    /// The lines that describe the profile.
    pub(super) fn describe(&self) -> Vec<String> {
        let text = |definition: &Option<String>| definition.clone().unwrap_or_else(|| "null".to_owned());
        let mut lines = vec![
            String::new(),
            "******************** Profile ********************".to_owned(),
            format!("  Keyspace Name: {}", self.keyspace),
            format!("  Keyspace CQL: \n***\n{}***\n", text(&self.keyspace_definition)),
            format!("  Table Name: {}", self.table),
            format!("  Table CQL: \n***\n{}***\n", text(&self.table_definition)),
            format!("  Extra Schema Definitions: [{}]", self.extra_definitions.join(", ")),
            "  Generator Configs:".to_owned(),
        ];
        lines.extend(self.spreads.iter().map(|(name, (_, shown))| format!("    {name}: {shown}")));
        lines.push("  Query Definitions:".to_owned());
        lines.extend(self.queries.iter().map(|(name, query)| {
            let fields = query.fields.as_deref().unwrap_or("null");
            format!("    {name}: CQL:{};Fields:{fields};", query.cql)
        }));
        if !self.token_range_queries.is_empty() {
            lines.push("  Token Range Queries:".to_owned());
            lines.extend(self.token_range_queries.iter().map(|(name, query)| {
                let columns = query.columns.as_deref().unwrap_or("*");
                format!("    {name}: Columns: {columns};Page Size: {};", query.page_size.unwrap_or(PAGE_ROWS))
            }));
        }
        if !self.insert.is_empty() {
            lines.push("  Insert Settings:".to_owned());
            lines.extend(self.insert.iter().map(|(key, value)| format!("    {key}: {value}")));
        }
        lines
    }

    /// Creates keyspace and table, if they are missing, and waits until the servers have them.
    pub(super) async fn create_schema(&self, control: &mut Client, seconds: u64) -> Result<(), StressError> {
        if let Some(definition) = &self.keyspace_definition {
            execute_once(control, definition).await?;
        }
        control.execute(&format!("USE {}", quoted(&self.keyspace))).await?;
        if let Some(definition) = &self.table_definition {
            execute_once(control, definition).await?;
            tell(&format!("Created schema. Sleeping {seconds}s for propagation."));
            reactor::sleep(Duration::from_secs(seconds)).await;
        }
        if !self.extra_definitions.is_empty() {
            for definition in &self.extra_definitions {
                execute_once(control, definition).await?;
            }
            tell(&format!("Created extra schema. Sleeping {seconds}s for propagation."));
            reactor::sleep(Duration::from_secs(seconds)).await;
        }
        Ok(())
    }

    /// Reads the columns of the table.
    pub(super) async fn load_table(&mut self, control: &mut Client) -> Result<(), StressError> {
        let all = control.prepare(&format!("SELECT * FROM {}", quoted(&self.table))).await?;
        let kinds = control
            .rows(&format!(
                "SELECT column_name, kind, position FROM system_schema.columns WHERE keyspace_name = '{}' AND \
                 table_name = '{}'",
                self.keyspace.replace('\'', "''"),
                self.table.replace('\'', "''")
            ))
            .await?;
        let text = |bytes: &Option<Vec<u8>>| {
            bytes.as_deref().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
        };
        let mut table = Table { keys: Vec::new(), clustering: Vec::new(), values: Vec::new() };
        let mut positions: [Vec<(i32, String)>; 2] = [Vec::new(), Vec::new()];
        for row in &kinds {
            let [name, kind, position] = &row[..] else { continue };
            let position =
                position.as_deref().and_then(|bytes| bytes.try_into().ok()).map_or(0, i32::from_be_bytes);
            match &*text(kind) {
                "partition_key" => positions[0].push((position, text(name))),
                "clustering" => positions[1].push((position, text(name))),
                _ => {}
            }
        }
        let ty = |name: &str| all.columns.iter().find(|(column, _)| column == name).map(|(_, ty)| ty.clone());
        let [mut keys, mut clustering] = positions;
        for (list, target) in [(&mut keys, &mut table.keys), (&mut clustering, &mut table.clustering)] {
            list.sort();
            for (_, name) in list.iter() {
                if let Some(ty) = ty(name) {
                    target.push((name.clone(), ty));
                }
            }
        }
        let is_key =
            |name: &str| table.keys.iter().chain(&table.clustering).any(|(column, _)| column == name);
        table.values = all.columns.iter().filter(|(name, _)| !is_key(name)).cloned().collect();
        if table.keys.is_empty() {
            return Err(self.wrong(format!("Unable to find table {}", self.table_name())));
        }
        self.loaded = Some(table);
        Ok(())
    }

    /// Empties the table.
    pub(super) async fn truncate(&self, control: &mut Client) -> Result<(), StressError> {
        let truncate = format!("TRUNCATE {}.{}", quoted(&self.keyspace), quoted(&self.table));
        Ok(control.execute(&truncate).await?)
    }

    fn table(&self) -> Result<&Table, StressError> {
        self.loaded.as_ref().ok_or_else(|| self.wrong(format!("Unable to find table {}", self.table_name())))
    }

    /// A generator of the table's partitions.
    fn generator(&self, order: Order) -> Result<PartitionGenerator, StressError> {
        let table = self.table()?;
        let generator = |(name, ty): &(String, CqlType)| -> Result<Generator, StressError> {
            let (kind, element) = Kind::of(ty).ok_or_else(|| {
                self.wrong(format!(
                    "no values are generated for the type of column {name}; leave it out of the table"
                ))
            })?;
            let plain = Spread::default();
            let spread = self.spreads.get(name).map_or(&plain, |(spread, _)| spread);
            Ok(Generator::new(kind, element, &format!("{SEED_PREFIX}{name}"), spread))
        };
        let named = |columns: &[(String, CqlType)]| -> Result<Vec<(String, Generator)>, StressError> {
            columns.iter().map(|column| Ok((column.0.clone(), generator(column)?))).collect()
        };
        let clustering: Result<Vec<_>, StressError> = table
            .clustering
            .iter()
            .map(|column| Ok((column.0.clone(), column.1.clone(), generator(column)?)))
            .collect();
        Ok(PartitionGenerator::new(named(&table.keys)?, clustering?, named(&table.values)?, order))
    }

    /// Prepares a statement on all servers, and finds the columns of its markers.
    async fn prepare(
        &self,
        text: &str,
        clients: &mut [Client],
        generator: &PartitionGenerator,
    ) -> Result<(Prepared, Vec<Place>), StressError> {
        let mut prepared = Prepared::default();
        for client in clients {
            prepared = client.prepare(text).await?;
        }
        let places: Result<Vec<Place>, StressError> = prepared
            .markers
            .iter()
            .map(|(name, _)| {
                generator
                    .place(name)
                    .ok_or_else(|| self.wrong(format!("no column for the marker {name} of: {text}")))
            })
            .collect();
        Ok((prepared, places?))
    }

    /// The operations with the name `name`.
    pub(super) async fn operations(
        &mut self,
        name: &str,
        settings: &Settings,
        clients: &mut [Client],
        dialect: &Dialect,
        ring: &[Token],
        seed: i64,
    ) -> Result<Vec<Box<dyn Operation>>, StressError> {
        let generator = self.generator(settings.population.order)?;
        if name == "insert" {
            let insert = insert::Insert::prepare(self, generator, settings, clients, *dialect, seed).await?;
            return Ok(vec![Box::new(insert)]);
        }
        if name == "validate" {
            return validate::prepare(self, &generator, clients, *dialect, seed).await;
        }
        if let Some(query) = self.token_range_queries.get(name) {
            let columns = query.columns.clone().unwrap_or_else(|| "*".to_owned());
            let page = query.page_size.unwrap_or(PAGE_ROWS).max(1);
            let scan =
                scan::Scan::new(name, self.table()?, &self.table, &columns, page, settings, *dialect, ring);
            return Ok(vec![Box::new(scan)]);
        }
        let Some(query) = self.queries.get(name) else {
            return Err(self.wrong(format!("No query defined with name {name}")));
        };
        let is_same_row = match query.fields.as_deref().map(str::to_lowercase).as_deref() {
            None | Some("multirow") => false,
            Some("samerow") => true,
            Some(other) => {
                return Err(self.wrong(format!("fields of {name} are samerow or multirow, not {other}")));
            }
        };
        let (prepared, places) = self.prepare(&query.cql, clients, &generator).await?;
        let query =
            query::Query::new(name, generator, prepared, places, is_same_row, settings, *dialect, seed);
        Ok(vec![Box::new(query)])
    }

    /// A setting of inserts: from the command line, the profile, or the default.
    fn insert_distribution(
        &self,
        given: &Option<Factory>,
        key: &str,
        default: &str,
    ) -> Result<Factory, StressError> {
        if let Some(given) = given {
            return Ok(given.clone());
        }
        let text = self.insert.get(key).map(|text| text.trim()).filter(|text| !text.is_empty());
        Factory::parse(text.unwrap_or(default)).map_err(|error| self.wrong(error.to_string()))
    }

    fn insert_ratio(&self, given: &Option<RatioFactory>, key: &str) -> Result<RatioFactory, StressError> {
        if let Some(given) = given {
            return Ok(given.clone());
        }
        let text = self.insert.get(key).map(|text| text.trim()).filter(|text| !text.is_empty());
        RatioFactory::parse(text.unwrap_or("fixed(1)/1")).map_err(|error| self.wrong(error.to_string()))
    }
}

/// The serialised partition key: the one value, or all with their lengths, as tokens are made of it.
fn routing_key(values: &[Vec<u8>]) -> Vec<u8> {
    match values {
        [one] => one.clone(),
        several => {
            let mut key = Vec::new();
            for value in several {
                key.extend_from_slice(&(value.len().min(usize::from(u16::MAX)) as u16).to_be_bytes());
                key.extend_from_slice(value);
                key.push(0);
            }
            key
        }
    }
}

#[cfg(test)]
mod tests;
