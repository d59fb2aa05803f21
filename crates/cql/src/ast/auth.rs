//! Roles, users, permissions, identities and service levels.
//!
//! Used by `query`'s authorisation. Invariant: role names are folded like identifiers; those in single quotes
//! count as quoted.

use crate::ast::{Constant, Ident, Property, PropertyItem, QualifiedName, TypeName};

/// `CREATE ROLE [IF NOT EXISTS] name [WITH …]`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CreateRole {
    /// IF NOT EXISTS
    pub if_not_exists: bool,
    /// The role.
    pub name: Ident,
    /// WITH, possibly empty.
    pub options: Vec<RoleOption>,
}

/// `ALTER ROLE [IF EXISTS] name [WITH …]`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AlterRole {
    /// IF EXISTS
    pub if_exists: bool,
    /// The role.
    pub name: Ident,
    /// WITH, possibly empty.
    pub options: Vec<RoleOption>,
}

/// `DROP ROLE [IF EXISTS] name`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DropRole {
    /// IF EXISTS
    pub if_exists: bool,
    /// The role.
    pub name: Ident,
}

/// One item of the WITH clause of a role.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RoleOption {
    /// `PASSWORD = '…'`
    Password(String),
    /// `HASHED PASSWORD = '…'`
    HashedPassword(String),
    /// `OPTIONS = {…}`; keys are unique.
    Options(Vec<(Constant, PropertyItem)>),
    /// `SUPERUSER = true|false`
    Superuser(bool),
    /// `LOGIN = true|false`
    Login(bool),
    /// `ACCESS TO ALL DATACENTERS`
    AccessToAllDatacenters,
    /// `ACCESS TO DATACENTERS {'…', …}`, at least one.
    AccessToDatacenters(Vec<String>),
    /// `ACCESS FROM ALL CIDRS`
    AccessFromAllCidrs,
    /// `ACCESS FROM CIDRS {'…', …}`, at least one.
    AccessFromCidrs(Vec<String>),
}

impl RoleOption {
    /// The name of an option that may be given once; `None` for access, whose items add up.
    pub(crate) fn unique_name(&self) -> Option<&'static str> {
        match self {
            Self::Password(_) => Some("PASSWORD"),
            Self::HashedPassword(_) => Some("HASHED_PASSWORD"),
            Self::Options(_) => Some("OPTIONS"),
            Self::Superuser(_) => Some("SUPERUSER"),
            Self::Login(_) => Some("LOGIN"),
            Self::AccessToAllDatacenters
            | Self::AccessToDatacenters(_)
            | Self::AccessFromAllCidrs
            | Self::AccessFromCidrs(_) => None,
        }
    }
}

/// `CREATE USER [IF NOT EXISTS] name [WITH [HASHED] PASSWORD '…'] [SUPERUSER|NOSUPERUSER]`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CreateUser {
    /// IF NOT EXISTS
    pub if_not_exists: bool,
    /// The user; its case is kept even without quotes.
    pub name: Ident,
    /// The password.
    pub password: Option<UserPassword>,
    /// SUPERUSER (true) or NOSUPERUSER (false); `None` if neither is given.
    pub superuser: Option<bool>,
}

/// `ALTER USER [IF EXISTS] name [WITH [HASHED] PASSWORD '…'] [SUPERUSER|NOSUPERUSER]`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AlterUser {
    /// IF EXISTS
    pub if_exists: bool,
    /// The user; its case is kept even without quotes.
    pub name: Ident,
    /// The password.
    pub password: Option<UserPassword>,
    /// SUPERUSER (true) or NOSUPERUSER (false); `None` if neither is given.
    pub superuser: Option<bool>,
}

/// A user's password, plain or hashed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum UserPassword {
    /// `PASSWORD '…'`
    Plain(String),
    /// `HASHED PASSWORD '…'`
    Hashed(String),
}

/// `DROP USER [IF EXISTS] name`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DropUser {
    /// IF EXISTS
    pub if_exists: bool,
    /// The user; its case is kept even without quotes.
    pub name: Ident,
}

/// `GRANT role TO grantee`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GrantRole {
    /// The role that is given.
    pub role: Ident,
    /// The role that gets it.
    pub grantee: Ident,
}

/// `REVOKE role FROM revokee`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RevokeRole {
    /// The role that is taken.
    pub role: Ident,
    /// The role it is taken from.
    pub revokee: Ident,
}

/// `LIST ROLES [OF role] [NORECURSIVE]`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListRoles {
    /// OF
    pub of: Option<Ident>,
    /// Roles granted through other roles too; false for NORECURSIVE.
    pub recursive: bool,
}

/// `GRANT permissions ON resource TO grantee`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GrantPermissions {
    /// The granted permissions.
    pub permissions: Permissions,
    /// The resource.
    pub resource: Resource,
    /// The role that gets it.
    pub grantee: Ident,
}

/// `REVOKE permissions ON resource FROM revokee`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RevokePermissions {
    /// The revoked permissions.
    pub permissions: Permissions,
    /// The resource.
    pub resource: Resource,
    /// The role it is taken from.
    pub revokee: Ident,
}

/// `LIST permissions [ON resource] [OF role] [NORECURSIVE]`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListPermissions {
    /// Which permissions are looked for.
    pub permissions: Permissions,
    /// ON
    pub resource: Option<Resource>,
    /// OF
    pub of: Option<Ident>,
    /// Permissions granted through other roles too; false for NORECURSIVE.
    pub recursive: bool,
}

/// A set of permissions as written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Permissions {
    /// `ALL [PERMISSIONS]`: all that apply to the resource.
    All,
    /// `SELECT [PERMISSION], …`, at least one.
    List(Vec<Permission>),
}

/// The kinds of permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each variant is the CQL permission of that name")]
pub enum Permission {
    Create,
    Alter,
    Drop,
    Select,
    Modify,
    Authorize,
    Describe,
    Execute,
    Unmask,
    SelectMasked,
    /// ScyllaDB: let an indexing service read the table.
    VectorSearchIndexing,
    /// ScyllaDB: let an indexing service read the table.
    TextSearchIndexing,
}

impl Permission {
    /// Every permission.
    pub const ALL: [Permission; 12] = [
        Permission::Create,
        Permission::Alter,
        Permission::Drop,
        Permission::Select,
        Permission::Modify,
        Permission::Authorize,
        Permission::Describe,
        Permission::Execute,
        Permission::Unmask,
        Permission::SelectMasked,
        Permission::VectorSearchIndexing,
        Permission::TextSearchIndexing,
    ];

    /// The permission's CQL name, upper case, with underscores as Cassandra lists it.
    pub const fn name(self) -> &'static str {
        match self {
            Permission::Create => "CREATE",
            Permission::Alter => "ALTER",
            Permission::Drop => "DROP",
            Permission::Select => "SELECT",
            Permission::Modify => "MODIFY",
            Permission::Authorize => "AUTHORIZE",
            Permission::Describe => "DESCRIBE",
            Permission::Execute => "EXECUTE",
            Permission::Unmask => "UNMASK",
            Permission::SelectMasked => "SELECT_MASKED",
            Permission::VectorSearchIndexing => "VECTOR_SEARCH_INDEXING",
            Permission::TextSearchIndexing => "TEXT_SEARCH_INDEXING",
        }
    }
}

/// The resource of a permission.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    /// `ALL KEYSPACES`
    AllKeyspaces,
    /// `KEYSPACE name`
    Keyspace(Ident),
    /// `ALL TABLES IN KEYSPACE name`
    AllTables(Ident),
    /// `[TABLE] name`
    Table(QualifiedName),
    /// `ALL ROLES`
    AllRoles,
    /// `ROLE name`
    Role(Ident),
    /// `ALL FUNCTIONS`
    AllFunctions,
    /// `ALL FUNCTIONS IN KEYSPACE name`
    AllFunctionsIn(Ident),
    /// `FUNCTION name(types)`
    Function {
        /// The function or aggregate.
        name: QualifiedName,
        /// Its argument types.
        argument_types: Vec<TypeName>,
    },
    /// `ALL MBEANS`
    AllMbeans,
    /// `MBEAN 'name'`
    Mbean(String),
    /// `MBEANS 'pattern'`
    Mbeans(String),
}

/// `ADD IDENTITY [IF NOT EXISTS] 'identity' TO ROLE 'role'`: a client certificate's identity speaks for a
/// role.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AddIdentity {
    /// IF NOT EXISTS
    pub if_not_exists: bool,
    /// The identity, case kept.
    pub identity: Ident,
    /// The role, case kept.
    pub role: Ident,
}

/// `DROP IDENTITY [IF EXISTS] 'identity'`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DropIdentity {
    /// IF EXISTS
    pub if_exists: bool,
    /// The identity, case kept.
    pub identity: Ident,
}

/// `CREATE SERVICE LEVEL [IF NOT EXISTS] name [WITH …]` (ScyllaDB)
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CreateServiceLevel {
    /// IF NOT EXISTS
    pub if_not_exists: bool,
    /// The service level.
    pub name: Ident,
    /// WITH, possibly empty; names are unique.
    pub properties: Vec<Property>,
}

/// `ALTER SERVICE LEVEL name WITH …` (ScyllaDB)
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AlterServiceLevel {
    /// The service level.
    pub name: Ident,
    /// WITH, at least one; names are unique.
    pub properties: Vec<Property>,
}

/// `DROP SERVICE LEVEL [IF EXISTS] name` (ScyllaDB)
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DropServiceLevel {
    /// IF EXISTS
    pub if_exists: bool,
    /// The service level.
    pub name: Ident,
}

/// `ATTACH SERVICE LEVEL name TO role` (ScyllaDB)
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AttachServiceLevel {
    /// The service level.
    pub name: Ident,
    /// The role that runs in it from now on.
    pub role: Ident,
}

/// `DETACH SERVICE LEVEL FROM role` (ScyllaDB)
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DetachServiceLevel {
    /// The role.
    pub role: Ident,
}

/// `LIST … SERVICE LEVEL …` (ScyllaDB)
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ListServiceLevel {
    /// `LIST SERVICE LEVEL name`
    One(Ident),
    /// `LIST ALL SERVICE LEVELS`
    All,
    /// `LIST ATTACHED SERVICE LEVEL OF role`
    AttachedTo(Ident),
    /// `LIST ALL ATTACHED SERVICE LEVELS`
    AllAttached,
    /// `LIST EFFECTIVE SERVICE LEVEL OF role`
    EffectiveFor(Ident),
}
