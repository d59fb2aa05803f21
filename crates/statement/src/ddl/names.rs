//! Names of keyspaces and tables: whether they are well-formed, and whether they belong to the node itself.

use super::mistake::{config, invalid, unauthorized};
use crate::{StatementError, system};

/// Longest name of a keyspace, in characters.
pub(crate) const KEYSPACE_NAME_MAX: usize = 48;
/// Longest name of a table, in characters: it names a directory together with the table's id.
pub(crate) const TABLE_NAME_MAX: usize = 222;

/// Whether the keyspace is one that every node has for itself; nothing in it can be changed by a statement.
pub(crate) fn is_local_system(keyspace: &str) -> bool {
    system::LOCAL.iter().any(|(name, _)| *name == keyspace)
}

/// Whether the keyspace is one that every cluster has; only its options can be changed.
fn is_replicated_system(keyspace: &str) -> bool {
    system::STORED.iter().any(|(name, ..)| *name == keyspace)
}

/// Whether the keyspace is one every node or cluster has.
pub fn is_system(keyspace: &str) -> bool {
    is_local_system(keyspace) || is_replicated_system(keyspace)
}

/// A statement's action on a keyspace or on something in it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Action {
    Create,
    Alter,
    Drop,
}

impl Action {
    fn permission(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Alter => "ALTER",
            Self::Drop => "DROP",
        }
    }
}

/// Refuses changes inside a system keyspace; `resource` is the refused thing's name.
pub(crate) fn check_content(keyspace: &str, action: Action, resource: &str) -> Result<(), StatementError> {
    if is_local_system(keyspace) {
        return Err(unauthorized(format!("{keyspace} keyspace is not user-modifiable.")));
    }
    if is_replicated_system(keyspace) {
        return Err(unauthorized(format!("Cannot {} {resource}", action.permission())));
    }
    Ok(())
}

/// Refuses changes of functions in a system keyspace: asked without permissions, Cassandra has other words
/// for these.
pub(crate) fn check_functions_of(keyspace: &str, action: Action) -> Result<(), StatementError> {
    if is_local_system(keyspace) {
        return Err(invalid(format!("System keyspace '{keyspace}' is not user-modifiable")));
    }
    check_content(keyspace, action, &format!("<all functions in {keyspace}>"))
}

/// Refuses names that are no keyspace names.
pub(crate) fn check_keyspace_name(name: &str) -> Result<(), StatementError> {
    if !is_word(name) {
        return Err(invalid(format!(
            "Keyspace name must not be empty and must contain alphanumeric or underscore characters only (got \
             \"{name}\")"
        )));
    }
    let length = name.chars().count();
    if length > KEYSPACE_NAME_MAX {
        return Err(invalid(format!(
            "Keyspace name must not be more than {KEYSPACE_NAME_MAX} characters long (got {length} characters for \
             \"{name}\")"
        )));
    }
    Ok(())
}

/// Refuses names that are no table names.
pub(crate) fn check_table_name(keyspace: &str, name: &str) -> Result<(), StatementError> {
    if !is_word(name) {
        return Err(config(format!(
            "{keyspace}.{name}: Table name must not be empty or not contain non-alphanumeric-underscore characters \
             (got \"{name}\")"
        )));
    }
    let length = name.chars().count();
    if length > TABLE_NAME_MAX {
        return Err(config(format!(
            "{keyspace}.{name}: Table name must not be more than {TABLE_NAME_MAX} characters long (got {length} \
             characters for \"{name}\")"
        )));
    }
    Ok(())
}

fn is_word(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
