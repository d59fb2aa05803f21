//! What changed in the schema, as clients and the node's own caches are told.

use model::schema::SchemaChange;

/// What happened to the thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It is new.
    Created,
    /// It is not as it was.
    Updated,
    /// It is gone.
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

/// What kind of thing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A keyspace; when it is dropped, all in it too.
    Keyspace,
    /// A table.
    Table,
    /// A user-defined type; tables that use it change with it.
    Type,
}

impl Target {
    /// The word of the native protocol (native_protocol_v5.spec §4.2.6).
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Keyspace => "KEYSPACE",
            Self::Table => "TABLE",
            Self::Type => "TYPE",
        }
    }
}

/// One change of the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaEvent {
    /// What happened.
    pub change: Change,
    /// To what kind of thing.
    pub target: Target,
    /// The keyspace.
    pub keyspace: String,
    /// The table or type; empty for a keyspace.
    pub name: String,
}

impl SchemaEvent {
    /// Whether statements prepared for `keyspace.table` must be prepared anew.
    ///
    /// A type's change reaches every table of its keyspace, because which of them use it is known only to the schema
    /// before or after.
    pub fn touches(&self, keyspace: &str, table: &str) -> bool {
        self.keyspace == keyspace
            && match self.target {
                Target::Keyspace | Target::Type => true,
                Target::Table => self.name == table,
            }
    }

    /// What `change` is to clients.
    pub fn of(change: &SchemaChange) -> Self {
        let event = |change, target, keyspace: &str, name: &str| Self {
            change,
            target,
            keyspace: keyspace.to_owned(),
            name: name.to_owned(),
        };
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
            // Stands in a shortened log only; no statement makes it.
            SchemaChange::Version { .. } => event(Change::Updated, Target::Keyspace, "", ""),
        }
    }

    /// Appends the body of a RESULT of kind Schema_change, kind included (native_protocol_v5.spec §4.2.5.5).
    pub fn append_result(&self, out: &mut Vec<u8>) {
        const KIND_SCHEMA_CHANGE: i32 = 0x0005;
        out.extend_from_slice(&KIND_SCHEMA_CHANGE.to_be_bytes());
        self.append_body(out);
    }

    /// Appends change, target and names as strings: what follows the type in an EVENT of type SCHEMA_CHANGE
    /// (native_protocol_v5.spec §4.2.6).
    pub fn append_body(&self, out: &mut Vec<u8>) {
        append_string(out, self.change.as_str());
        append_string(out, self.target.as_str());
        append_string(out, &self.keyspace);
        if self.target != Target::Keyspace {
            append_string(out, &self.name);
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
        };
        event.append_result(&mut out);
        assert_eq!(out, b"\0\0\0\x05\0\x07CREATED\0\x05TABLE\0\x02ks\0\x01t");
        assert!(event.touches("ks", "t") && !event.touches("ks", "u") && !event.touches("other", "t"));
        let dropped = SchemaEvent::of(&SchemaChange::DropKeyspace { name: "ks".into() });
        out.clear();
        dropped.append_result(&mut out);
        assert_eq!(out, b"\0\0\0\x05\0\x07DROPPED\0\x08KEYSPACE\0\x02ks");
        assert!(dropped.touches("ks", "t"));
    }
}
