//! CQL of a table for a snapshot's `schema.cql`: the output of DESCRIBE, preceded by the types the table
//! needs.

use cql::ast::Statement;
use model::{CqlType, Schema, Table};
use query::{ClientState, Engine, Response};
use wire::{Consistency, QueryParameters};

/// The statements that create the table again, with its id and dropped columns; `None` if this shard has no
/// engine yet, or if a DESCRIBE fails.
pub(crate) fn table(schema: &Schema, table: &Table) -> Option<String> {
    let engine = Engine::here()?;
    let mut types = Vec::new();
    table.columns().for_each(|column| types_of(&column.ty, &mut types));
    let keyspace = quoted(table.keyspace());
    let known = schema.keyspace(table.keyspace())?;
    let mut text = String::new();
    for name in types.iter().filter(|name| known.types.contains_key(*name)) {
        text.push_str(&describe(&engine, &format!("DESCRIBE TYPE {keyspace}.{}", quoted(name)))?);
        text.push_str("\n\n");
    }
    let name = quoted(table.name());
    text.push_str(&describe(&engine, &format!("DESCRIBE TABLE {keyspace}.{name} WITH INTERNALS"))?);
    text.push('\n');
    Some(text)
}

/// Names of user-defined types in a type, each after the types it is made of.
fn types_of(ty: &CqlType, names: &mut Vec<String>) {
    match ty {
        CqlType::List { element, .. } | CqlType::Set { element, .. } | CqlType::Vector { element, .. } => {
            types_of(element, names);
        }
        CqlType::Map { key, value, .. } => {
            types_of(key, names);
            types_of(value, names);
        }
        CqlType::Tuple(components) => components.iter().for_each(|ty| types_of(ty, names)),
        CqlType::Udt(udt) => {
            udt.fields.iter().for_each(|(_, ty)| types_of(ty, names));
            if !names.contains(&udt.name) {
                names.push(udt.name.clone());
            }
        }
        _ => {}
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The column `create_statement` of a DESCRIBE's result.
fn describe(engine: &Engine, text: &str) -> Option<String> {
    let Ok(Statement::Describe(statement)) = cql::parse_statement(text).map(|parsed| parsed.statement) else {
        return None;
    };
    let parameters = QueryParameters::at(Consistency::One, wire::ProtocolVersion::LATEST);
    let mut response = Response::default();
    query::describe::execute(engine, &ClientState::internal(), &statement, &parameters, &mut response)
        .ok()?;
    last_values(&response.body).map(|statements| statements.join("\n\n"))
}

/// The last column of a RESULT of kind Rows whose columns are all text (native_protocol_v5.spec §4.2.5.2).
fn last_values(body: &[u8]) -> Option<Vec<String>> {
    const VARCHAR: &[u8] = &[0, 0x0D];
    let mut rest = body;
    let mut take = |bytes: usize| {
        let (taken, left) = rest.split_at_checked(bytes)?;
        rest = left;
        Some(taken)
    };
    let int = |bytes: &[u8]| Some(i32::from_be_bytes(bytes.try_into().ok()?));
    let short = |bytes: &[u8]| Some(usize::from(u16::from_be_bytes(bytes.try_into().ok()?)));
    // The kind is Rows. The flags are those of one keyspace and table for all columns, without more pages.
    if int(take(4)?)? != 2 || int(take(4)?)? != 1 {
        return None;
    }
    let columns = int(take(4)?)?;
    for _ in 0..2 {
        let length = short(take(2)?)?;
        take(length)?;
    }
    for _ in 0..columns {
        let length = short(take(2)?)?;
        take(length)?;
        if take(2)? != VARCHAR {
            return None;
        }
    }
    let rows = int(take(4)?)?;
    let mut values = Vec::new();
    for _ in 0..rows {
        for column in 1..=columns {
            let length = usize::try_from(int(take(4)?)?).ok()?;
            let value = take(length)?;
            if column == columns {
                values.push(String::from_utf8(value.to_vec()).ok()?);
            }
        }
    }
    Some(values)
}
