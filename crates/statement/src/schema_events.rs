//! Events of schema changes, for clients and the node's own caches.

use model::CqlType;
use model::schema::SchemaChange;
use wire::version::ProtocolVersion;

/// The kind of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It was created.
    Created,
    /// It was altered.
    Updated,
    /// It was dropped.
    Dropped,
}

impl Change {
    /// The word of the native protocol (native_protocol_v5.spec §4.2.6).
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "CREATED",
            Self::Updated => "UPDATED",
            Self::Dropped => "DROPPED",
        }
    }
}

/// The kind of thing that changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A keyspace; when it is dropped, everything in it too.
    Keyspace,
    /// A table.
    Table,
    /// A user-defined type; tables that use it change with it.
    Type,
    /// A user-defined function.
    Function,
    /// A user-defined aggregate.
    Aggregate,
}

impl Target {
    /// The word of the native protocol (native_protocol_v5.spec §4.2.6).
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Keyspace => "KEYSPACE",
            Self::Table => "TABLE",
            Self::Type => "TYPE",
            Self::Function => "FUNCTION",
            Self::Aggregate => "AGGREGATE",
        }
    }
}

/// One change of the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaEvent {
    /// The kind of change.
    pub change: Change,
    /// The kind of thing.
    pub target: Target,
    /// The keyspace.
    pub keyspace: String,
    /// The table, type, function or aggregate; empty for a keyspace.
    pub name: String,
    /// Types of a function's or aggregate's arguments, as CQL.
    pub arguments: Vec<String>,
}

impl SchemaEvent {
    /// Whether statements prepared for `keyspace.table` must be prepared again.
    ///
    /// A change of a type or a function concerns every table of its keyspace, because only the schema before
    /// or after shows which of them use it. The options of a keyspace are looked up when a statement runs.
    pub fn touches(&self, keyspace: &str, table: &str) -> bool {
        self.keyspace == keyspace
            && match self.target {
                Target::Keyspace => self.change != Change::Updated,
                Target::Type | Target::Function | Target::Aggregate => true,
                Target::Table => self.name == table,
            }
    }

    /// Whether statements of any table that call functions of the keyspace must be prepared again.
    pub fn touches_callers(&self) -> bool {
        match self.target {
            Target::Keyspace => self.change != Change::Updated,
            Target::Function | Target::Aggregate => true,
            Target::Type | Target::Table => false,
        }
    }

    /// The event of `change`, for clients.
    pub fn of(change: &SchemaChange) -> Self {
        let event = |change, target, keyspace: &str, name: &str| Self {
            change,
            target,
            keyspace: keyspace.to_owned(),
            name: name.to_owned(),
            arguments: Vec::new(),
        };
        let texts = |types: &mut dyn Iterator<Item = &CqlType>| types.map(ToString::to_string).collect();
        match change {
            SchemaChange::CreateKeyspace { name, .. } => event(Change::Created, Target::Keyspace, name, ""),
            SchemaChange::AlterKeyspace { name, .. } => event(Change::Updated, Target::Keyspace, name, ""),
            SchemaChange::DropKeyspace { name } => event(Change::Dropped, Target::Keyspace, name, ""),
            SchemaChange::CreateTable(table) => {
                event(Change::Created, Target::Table, &table.keyspace, &table.name)
            }
            SchemaChange::AlterTable(table) => {
                event(Change::Updated, Target::Table, &table.keyspace, &table.name)
            }
            SchemaChange::DropTable { keyspace, name, .. } => {
                event(Change::Dropped, Target::Table, keyspace, name)
            }
            SchemaChange::CreateType { keyspace, definition } => {
                event(Change::Created, Target::Type, keyspace, &definition.name)
            }
            SchemaChange::AlterType { keyspace, name, .. } => {
                event(Change::Updated, Target::Type, keyspace, name)
            }
            SchemaChange::DropType { keyspace, name } => event(Change::Dropped, Target::Type, keyspace, name),
            // They occur in a shortened log only; no statement makes them.
            SchemaChange::Version { .. } | SchemaChange::Dropped { .. } => {
                event(Change::Updated, Target::Keyspace, "", "")
            }
            SchemaChange::CreateFunction(function) => Self {
                arguments: texts(&mut function.argument_types()),
                ..event(Change::Created, Target::Function, &function.keyspace, &function.name)
            },
            SchemaChange::DropFunction { keyspace, name, arguments } => Self {
                arguments: texts(&mut arguments.iter()),
                ..event(Change::Dropped, Target::Function, keyspace, name)
            },
            SchemaChange::CreateAggregate(aggregate) => Self {
                arguments: texts(&mut aggregate.arguments.iter()),
                ..event(Change::Created, Target::Aggregate, &aggregate.keyspace, &aggregate.name)
            },
            SchemaChange::DropAggregate { keyspace, name, arguments } => Self {
                arguments: texts(&mut arguments.iter()),
                ..event(Change::Dropped, Target::Aggregate, keyspace, name)
            },
        }
    }

    /// Appends the body of a RESULT of kind Schema_change, kind included (native_protocol_v5.spec §4.2.5.5).
    ///
    /// Version 3 has no functions: there their keyspace counts as updated.
    pub fn append_result(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        const KIND_SCHEMA_CHANGE: i32 = 0x0005;
        out.extend_from_slice(&KIND_SCHEMA_CHANGE.to_be_bytes());
        let of_function = matches!(self.target, Target::Function | Target::Aggregate);
        let (change, target) = if of_function && version < ProtocolVersion::V4 {
            (Change::Updated, Target::Keyspace)
        } else {
            (self.change, self.target)
        };
        append_string(out, change.as_str());
        append_string(out, target.as_str());
        append_string(out, &self.keyspace);
        if target == Target::Keyspace {
            return;
        }
        append_string(out, &self.name);
        if of_function {
            let count = u16::try_from(self.arguments.len()).expect("arguments are few");
            out.extend_from_slice(&count.to_be_bytes());
            self.arguments.iter().for_each(|argument| append_string(out, argument));
        }
    }
}

fn append_string(out: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).expect("names are far shorter than 64 KiB");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_names_what_changed() {
        let mut out = Vec::new();
        let event = SchemaEvent {
            change: Change::Created,
            target: Target::Table,
            keyspace: "ks".into(),
            name: "t".into(),
            arguments: Vec::new(),
        };
        event.append_result(&mut out, ProtocolVersion::V4);
        assert_eq!(out, b"\0\0\0\x05\0\x07CREATED\0\x05TABLE\0\x02ks\0\x01t");
        assert!(event.touches("ks", "t") && !event.touches("ks", "u") && !event.touches("other", "t"));
        let dropped = SchemaEvent::of(&SchemaChange::DropKeyspace { name: "ks".into() });
        out.clear();
        dropped.append_result(&mut out, ProtocolVersion::V4);
        assert_eq!(out, b"\0\0\0\x05\0\x07DROPPED\0\x08KEYSPACE\0\x02ks");
        assert!(dropped.touches("ks", "t") && dropped.touches_callers());
        let altered = SchemaEvent { change: Change::Updated, ..dropped };
        assert!(!altered.touches("ks", "t") && !altered.touches_callers());
        let function = SchemaEvent::of(&SchemaChange::DropFunction {
            keyspace: "ks".into(),
            name: "f".into(),
            arguments: vec![CqlType::Int],
        });
        out.clear();
        function.append_result(&mut out, ProtocolVersion::V4);
        assert_eq!(out, b"\0\0\0\x05\0\x07DROPPED\0\x08FUNCTION\0\x02ks\0\x01f\0\x01\0\x03int");
        out.clear();
        function.append_result(&mut out, ProtocolVersion::V3);
        assert_eq!(out, b"\0\0\0\x05\0\x07UPDATED\0\x08KEYSPACE\0\x02ks");
    }
}
