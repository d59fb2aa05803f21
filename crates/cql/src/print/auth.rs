//! Prints roles, users, permissions, identities and service levels.

use std::fmt::{Display, Formatter, Result};

use super::{Quoted, clause, enclosed, optional, pairs, separated, when};
use crate::ast::{
    AddIdentity, AlterRole, AlterServiceLevel, AlterUser, AttachServiceLevel, CreateRole, CreateServiceLevel,
    CreateUser, DetachServiceLevel, DropIdentity, DropRole, DropServiceLevel, DropUser, GrantPermissions,
    GrantRole, Ident, ListPermissions, ListRoles, ListServiceLevel, Permission, Permissions, Resource,
    RevokePermissions, RevokeRole, RoleOption, UserPassword,
};

/// A role's name: the empty name, which only a string can express, as a string.
struct Role<'a>(&'a Ident);

impl Display for Role<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        if self.0.name.is_empty() { formatter.write_str("''") } else { write!(formatter, "{}", self.0) }
    }
}

impl Display for CreateRole {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("CREATE ROLE ")?;
        when(formatter, self.if_not_exists, "IF NOT EXISTS ")?;
        write!(formatter, "{}", Role(&self.name))?;
        clause(formatter, " WITH ", &self.options)
    }
}

impl Display for AlterRole {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("ALTER ROLE ")?;
        when(formatter, self.if_exists, "IF EXISTS ")?;
        write!(formatter, "{}", Role(&self.name))?;
        clause(formatter, " WITH ", &self.options)
    }
}

impl Display for DropRole {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("DROP ROLE ")?;
        when(formatter, self.if_exists, "IF EXISTS ")?;
        write!(formatter, "{}", Role(&self.name))
    }
}

fn strings(formatter: &mut Formatter<'_>, open: &str, texts: &[String]) -> Result {
    enclosed(formatter, open, texts.iter().map(|text| Quoted(text)), "}")
}

impl Display for RoleOption {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            RoleOption::Password(password) => write!(formatter, "PASSWORD = {}", Quoted(password)),
            RoleOption::HashedPassword(hash) => write!(formatter, "HASHED PASSWORD = {}", Quoted(hash)),
            RoleOption::Options(entries) => enclosed(formatter, "OPTIONS = {", pairs(entries, ": "), "}"),
            RoleOption::Superuser(value) => write!(formatter, "SUPERUSER = {value}"),
            RoleOption::Login(value) => write!(formatter, "LOGIN = {value}"),
            RoleOption::AccessToAllDatacenters => formatter.write_str("ACCESS TO ALL DATACENTERS"),
            RoleOption::AccessToDatacenters(names) => strings(formatter, "ACCESS TO DATACENTERS {", names),
            RoleOption::AccessFromAllCidrs => formatter.write_str("ACCESS FROM ALL CIDRS"),
            RoleOption::AccessFromCidrs(names) => strings(formatter, "ACCESS FROM CIDRS {", names),
        }
    }
}

/// Prints the part behind a user's name in CREATE and ALTER.
fn user(formatter: &mut Formatter<'_>, password: Option<&UserPassword>, superuser: Option<bool>) -> Result {
    optional(formatter, " WITH ", password)?;
    match superuser {
        Some(true) => formatter.write_str(" SUPERUSER"),
        Some(false) => formatter.write_str(" NOSUPERUSER"),
        None => Ok(()),
    }
}

impl Display for CreateUser {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("CREATE USER ")?;
        when(formatter, self.if_not_exists, "IF NOT EXISTS ")?;
        write!(formatter, "{}", Quoted(&self.name.name))?;
        user(formatter, self.password.as_ref(), self.superuser)
    }
}

impl Display for AlterUser {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("ALTER USER ")?;
        when(formatter, self.if_exists, "IF EXISTS ")?;
        write!(formatter, "{}", Quoted(&self.name.name))?;
        user(formatter, self.password.as_ref(), self.superuser)
    }
}

impl Display for UserPassword {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            UserPassword::Plain(password) => write!(formatter, "PASSWORD {}", Quoted(password)),
            UserPassword::Hashed(hash) => write!(formatter, "HASHED PASSWORD {}", Quoted(hash)),
        }
    }
}

impl Display for DropUser {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("DROP USER ")?;
        when(formatter, self.if_exists, "IF EXISTS ")?;
        write!(formatter, "{}", Quoted(&self.name.name))
    }
}

impl Display for GrantRole {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "GRANT {} TO {}", Role(&self.role), Role(&self.grantee))
    }
}

impl Display for RevokeRole {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "REVOKE {} FROM {}", Role(&self.role), Role(&self.revokee))
    }
}

impl Display for ListRoles {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("LIST ROLES")?;
        optional(formatter, " OF ", self.of.as_ref().map(Role))?;
        when(formatter, !self.recursive, " NORECURSIVE")
    }
}

impl Display for Permission {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str(self.name())
    }
}

impl Display for Permissions {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            Permissions::All => formatter.write_str("ALL"),
            Permissions::List(permissions) => separated(formatter, permissions, ", "),
        }
    }
}

impl Display for GrantPermissions {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "GRANT {} ON {} TO {}", self.permissions, self.resource, Role(&self.grantee))
    }
}

impl Display for RevokePermissions {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "REVOKE {} ON {} FROM {}", self.permissions, self.resource, Role(&self.revokee))
    }
}

impl Display for ListPermissions {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "LIST {}", self.permissions)?;
        optional(formatter, " ON ", self.resource.as_ref())?;
        optional(formatter, " OF ", self.of.as_ref().map(Role))?;
        when(formatter, !self.recursive, " NORECURSIVE")
    }
}

impl Display for Resource {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            Resource::AllKeyspaces => formatter.write_str("ALL KEYSPACES"),
            Resource::Keyspace(name) => write!(formatter, "KEYSPACE {name}"),
            Resource::AllTables(name) => write!(formatter, "ALL TABLES IN KEYSPACE {name}"),
            Resource::Table(name) => write!(formatter, "TABLE {name}"),
            Resource::AllRoles => formatter.write_str("ALL ROLES"),
            Resource::Role(name) => write!(formatter, "ROLE {}", Role(name)),
            Resource::AllFunctions => formatter.write_str("ALL FUNCTIONS"),
            Resource::AllFunctionsIn(name) => write!(formatter, "ALL FUNCTIONS IN KEYSPACE {name}"),
            Resource::Function { name, argument_types } => {
                write!(formatter, "FUNCTION {name}")?;
                enclosed(formatter, "(", argument_types, ")")
            }
            Resource::AllMbeans => formatter.write_str("ALL MBEANS"),
            Resource::Mbean(name) => write!(formatter, "MBEAN {}", Quoted(name)),
            Resource::Mbeans(pattern) => write!(formatter, "MBEANS {}", Quoted(pattern)),
        }
    }
}

impl Display for AddIdentity {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("ADD IDENTITY ")?;
        when(formatter, self.if_not_exists, "IF NOT EXISTS ")?;
        write!(formatter, "{} TO ROLE {}", Quoted(&self.identity.name), Quoted(&self.role.name))
    }
}

impl Display for DropIdentity {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("DROP IDENTITY ")?;
        when(formatter, self.if_exists, "IF EXISTS ")?;
        write!(formatter, "{}", Quoted(&self.identity.name))
    }
}

impl Display for CreateServiceLevel {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("CREATE SERVICE LEVEL ")?;
        when(formatter, self.if_not_exists, "IF NOT EXISTS ")?;
        write!(formatter, "{}", self.name)?;
        clause(formatter, " WITH ", &self.properties)
    }
}

impl Display for AlterServiceLevel {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "ALTER SERVICE LEVEL {}", self.name)?;
        clause(formatter, " WITH ", &self.properties)
    }
}

impl Display for DropServiceLevel {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("DROP SERVICE LEVEL ")?;
        when(formatter, self.if_exists, "IF EXISTS ")?;
        write!(formatter, "{}", self.name)
    }
}

impl Display for AttachServiceLevel {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "ATTACH SERVICE LEVEL {} TO {}", self.name, Role(&self.role))
    }
}

impl Display for DetachServiceLevel {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "DETACH SERVICE LEVEL FROM {}", Role(&self.role))
    }
}

impl Display for ListServiceLevel {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            ListServiceLevel::One(name) => write!(formatter, "LIST SERVICE LEVEL {name}"),
            ListServiceLevel::All => formatter.write_str("LIST ALL SERVICE LEVELS"),
            ListServiceLevel::AttachedTo(role) => {
                write!(formatter, "LIST ATTACHED SERVICE LEVEL OF {}", Role(role))
            }
            ListServiceLevel::AllAttached => formatter.write_str("LIST ALL ATTACHED SERVICE LEVELS"),
            ListServiceLevel::EffectiveFor(role) => {
                write!(formatter, "LIST EFFECTIVE SERVICE LEVEL OF {}", Role(role))
            }
        }
    }
}
