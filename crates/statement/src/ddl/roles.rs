//! Statements about roles, users and permissions, on a node where every client is anonymous.
//!
//! There is no authentication yet, and only clients that are logged in may manage roles. Each statement ends
//! with the answer of Cassandra with its `AllowAllAuthenticator` and `AllowAllAuthorizer`, mistakes first. As
//! there, an executed statement is first checked for permission (`authorize`), then for mistakes
//! (`validate`); a prepared one only for the latter. Invariant: no such statement succeeds.

use cql::ast::{Resource, RoleOption, Statement, UserPassword};

use super::mistake::{invalid, unauthorized};
use crate::StatementError;

/// The role that Cassandra makes by itself, a superuser.
const DEFAULT_ROLE: &str = "cassandra";
const MANAGER: &str = "org.apache.cassandra.auth.CassandraRoleManager";

/// The error of a statement about roles; `Ok` for all other statements. `data_centers` are the existing ones.
///
/// # Errors
/// [`StatementError::Unauthorized`] if there is no other mistake.
pub fn refuse(
    statement: &Statement,
    session: Option<&str>,
    data_centers: &[&str],
) -> Result<(), StatementError> {
    authorize(statement, session)?;
    validate(statement, data_centers)
}

/// The check for permission, before anything else.
fn authorize(statement: &Statement, session: Option<&str>) -> Result<(), StatementError> {
    match statement {
        Statement::CreateRole(create) if create.options.contains(&RoleOption::Superuser(true)) => {
            Err(unauthorized(CREATE_SUPERUSER))
        }
        Statement::CreateUser(create) if create.superuser == Some(true) => {
            Err(unauthorized(CREATE_SUPERUSER))
        }
        Statement::AlterRole(alter) => {
            let has = |is: fn(&RoleOption) -> bool| alter.options.iter().any(is);
            if has(|option| matches!(option, RoleOption::Superuser(_))) {
                Err(unauthorized(ALTER_SUPERUSER))
            } else if has(|option| {
                matches!(option, RoleOption::AccessToAllDatacenters | RoleOption::AccessToDatacenters(_))
            }) {
                Err(unauthorized("Only superusers are allowed to alter access to datacenters."))
            } else if has(|option| {
                matches!(option, RoleOption::AccessFromAllCidrs | RoleOption::AccessFromCidrs(_))
            }) {
                Err(unauthorized("Only superusers are allowed to alter access from CIDR groups."))
            } else {
                Ok(())
            }
        }
        Statement::AlterUser(alter) if alter.superuser.is_some() => Err(unauthorized(ALTER_SUPERUSER)),
        Statement::DropRole(role) if role.name.as_str() == DEFAULT_ROLE => Err(unauthorized(DROP_SUPERUSER)),
        Statement::DropUser(user) if user.name.as_str() == DEFAULT_ROLE => Err(unauthorized(DROP_SUPERUSER)),
        Statement::GrantPermissions(grant) => known(&grant.resource, session),
        Statement::RevokePermissions(revoke) => known(&revoke.resource, session),
        _ => Ok(()),
    }
}

const CREATE_SUPERUSER: &str = "Only superusers can create a role with superuser status";
const ALTER_SUPERUSER: &str = "Only superusers are allowed to alter superuser status";
const DROP_SUPERUSER: &str = "Only superusers can drop a role with superuser status";

/// Checks that a resource is complete: tables need a keyspace, functions their own.
fn known(resource: &Resource, session: Option<&str>) -> Result<(), StatementError> {
    match resource {
        Resource::Table(name) if name.keyspace.is_none() && session.is_none() => Err(invalid(
            "No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename",
        )),
        Resource::Function { name, .. } if name.keyspace.is_none() => {
            Err(invalid("In this context function name must be explictly qualified by a keyspace"))
        }
        _ => Ok(()),
    }
}

/// The mistakes of a statement about roles by any client, and the lack of a login; `Ok` for all other
/// statements.
///
/// # Errors
/// As [`refuse`].
pub fn validate(statement: &Statement, data_centers: &[&str]) -> Result<(), StatementError> {
    match statement {
        Statement::CreateRole(create) => {
            supported(&create.options)?;
            if create.name.as_str().is_empty() {
                return Err(invalid("Role name can't be an empty string"));
            }
            access(&create.options, data_centers)?;
        }
        Statement::CreateUser(create) => {
            password(create.password.as_ref())?;
            if create.name.as_str().is_empty() {
                return Err(invalid("Role name can't be an empty string"));
            }
        }
        Statement::AlterRole(alter) => {
            supported(&alter.options)?;
            if alter.options.is_empty() {
                return Err(invalid(NOTHING_TO_ALTER));
            }
            access(&alter.options, data_centers)?;
        }
        Statement::AlterUser(alter) => {
            password(alter.password.as_ref())?;
            if alter.password.is_none() && alter.superuser.is_none() {
                return Err(invalid(NOTHING_TO_ALTER));
            }
        }
        Statement::DropRole(_)
        | Statement::DropUser(_)
        | Statement::ListUsers
        | Statement::GrantRole(_)
        | Statement::RevokeRole(_)
        | Statement::ListRoles(_)
        | Statement::GrantPermissions(_)
        | Statement::RevokePermissions(_)
        | Statement::ListPermissions(_)
        | Statement::AddIdentity(_)
        | Statement::DropIdentity(_) => {}
        _ => return Ok(()),
    }
    Err(unauthorized("You have to be logged in and not anonymous to perform this request"))
}

const NOTHING_TO_ALTER: &str = "ALTER [ROLE|USER] can't be empty";

fn unsupported(option: &str) -> StatementError {
    invalid(format!("{MANAGER} doesn't support {option}"))
}

fn password(password: Option<&UserPassword>) -> Result<(), StatementError> {
    match password {
        None => Ok(()),
        Some(UserPassword::Plain(_)) => Err(unsupported("PASSWORD")),
        Some(UserPassword::Hashed(_)) => Err(unsupported("HASHED_PASSWORD")),
    }
}

/// Without an authenticator that checks passwords, roles have none.
fn supported(options: &[RoleOption]) -> Result<(), StatementError> {
    options.iter().try_for_each(|option| match option {
        RoleOption::Password(_) => Err(unsupported("PASSWORD")),
        RoleOption::HashedPassword(_) => Err(unsupported("HASHED_PASSWORD")),
        RoleOption::Options(_) => Err(unsupported("OPTIONS")),
        _ => Ok(()),
    })
}

fn access(options: &[RoleOption], data_centers: &[&str]) -> Result<(), StatementError> {
    for option in options {
        match option {
            RoleOption::AccessToDatacenters(names) => {
                let unknown: Vec<&str> =
                    names.iter().map(String::as_str).filter(|name| !data_centers.contains(name)).collect();
                if !unknown.is_empty() {
                    return Err(invalid(format!(
                        "Invalid value(s) for DATACENTERS '[{}]',All values must be valid datacenters",
                        unknown.join(", ")
                    )));
                }
            }
            RoleOption::AccessFromCidrs(names) => {
                return Err(invalid(format!(
                    "Invalid CIDR group(s): [{}]. Available CIDR Groups are: []",
                    names.join(", ")
                )));
            }
            _ => {}
        }
    }
    Ok(())
}
