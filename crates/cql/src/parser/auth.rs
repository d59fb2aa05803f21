//! Roles, users, permissions and identities.
//!
//! Used by `statement`. Invariant: a GRANT or REVOKE that comes out of here names at least one
//! permission that its resource has.

use super::{Parse, Parser};
use crate::ast::{
    AddIdentity, AlterRole, AlterUser, CreateRole, CreateUser, DropIdentity, DropRole, DropUser,
    GrantPermissions, GrantRole, Ident, ListPermissions, ListRoles, Permission, Permissions, Resource,
    RevokePermissions, RevokeRole, RoleOption, Statement, UserPassword,
};
use crate::keyword::Keyword;
use crate::lexer::TokenKind;

const QUOTED_USER: &str =
    "Quoted strings are are not supported for user names and USER is deprecated, please use ROLE";
const QUOTED_IDENTITY: &str = "Quoted strings are are not supported for identity";

impl Parser<'_> {
    /// GRANT of permissions or of a role.
    pub(super) fn grant(&mut self) -> Parse<Statement> {
        if self.gives_role(Keyword::To)? {
            self.advance();
            let role = self.role_name()?;
            self.expect(Keyword::To)?;
            return Ok(Statement::GrantRole(GrantRole { role, grantee: self.role_name()? }));
        }
        self.advance();
        let permissions = self.permissions()?;
        self.expect(Keyword::On)?;
        let resource = self.resource()?;
        self.expect(Keyword::To)?;
        let grantee = self.role_name()?;
        self.check_applicable(&permissions, &resource)?;
        Ok(Statement::GrantPermissions(GrantPermissions { permissions, resource, grantee }))
    }

    /// REVOKE of permissions or of a role.
    pub(super) fn revoke(&mut self) -> Parse<Statement> {
        if self.gives_role(Keyword::From)? {
            self.advance();
            let role = self.role_name()?;
            self.expect(Keyword::From)?;
            return Ok(Statement::RevokeRole(RevokeRole { role, revokee: self.role_name()? }));
        }
        self.advance();
        let permissions = self.permissions()?;
        self.expect(Keyword::On)?;
        let resource = self.resource()?;
        self.expect(Keyword::From)?;
        let revokee = self.role_name()?;
        self.check_applicable(&permissions, &resource)?;
        Ok(Statement::RevokePermissions(RevokePermissions { permissions, resource, revokee }))
    }

    /// Whether a role rather than permissions follows GRANT or REVOKE; `preposition` stands behind a role.
    fn gives_role(&mut self, preposition: Keyword) -> Parse<bool> {
        self.look(1);
        let role = self.is_name(1)
            || matches!(self.kind(1), TokenKind::String | TokenKind::DollarString | TokenKind::QuestionMark);
        let permission = self.permission_at(1).is_some() || self.kind(1) == TokenKind::Keyword(Keyword::All);
        match (role, permission) {
            (false, false) => Err(self.fail_ahead(1)),
            (true, true) => {
                self.look(2);
                match self.kind(2) {
                    TokenKind::Keyword(keyword) if keyword == preposition => Ok(true),
                    TokenKind::Keyword(Keyword::On | Keyword::Permission | Keyword::Permissions)
                    | TokenKind::Sign(",") => Ok(false),
                    _ => Err(self.fail_ahead(2)),
                }
            }
            (role, _) => Ok(role),
        }
    }

    /// LIST of anything.
    pub(super) fn list(&mut self) -> Parse<Statement> {
        self.look(1);
        match self.kind(1) {
            TokenKind::Keyword(Keyword::Users) => {
                self.advance();
                self.advance();
                Ok(Statement::ListUsers)
            }
            TokenKind::Keyword(Keyword::Roles) => {
                self.advance();
                self.advance();
                let of = if self.eat(Keyword::Of) { Some(self.role_name()?) } else { None };
                let recursive = !self.eat(Keyword::Norecursive);
                Ok(Statement::ListRoles(ListRoles { of, recursive }))
            }
            _ if self.lists_service_levels() => {
                self.advance();
                self.list_service_level().map(Statement::ListServiceLevel)
            }
            _ => {
                if self.permission_at(1).is_none() && self.kind(1) != TokenKind::Keyword(Keyword::All) {
                    return Err(self.fail_ahead(1));
                }
                self.advance();
                let permissions = self.permissions()?;
                let resource = if self.eat(Keyword::On) { Some(self.resource()?) } else { None };
                let of = if self.eat(Keyword::Of) { Some(self.role_name()?) } else { None };
                let recursive = !self.eat(Keyword::Norecursive);
                Ok(Statement::ListPermissions(ListPermissions { permissions, resource, of, recursive }))
            }
        }
    }

    fn permission_at(&self, ahead: usize) -> Option<Permission> {
        Some(match self.kind(ahead) {
            TokenKind::Keyword(Keyword::Create) => Permission::Create,
            TokenKind::Keyword(Keyword::Alter) => Permission::Alter,
            TokenKind::Keyword(Keyword::Drop) => Permission::Drop,
            TokenKind::Keyword(Keyword::Select) => Permission::Select,
            TokenKind::Keyword(Keyword::Modify) => Permission::Modify,
            TokenKind::Keyword(Keyword::Authorize) => Permission::Authorize,
            TokenKind::Keyword(Keyword::Describe) => Permission::Describe,
            TokenKind::Keyword(Keyword::Execute) => Permission::Execute,
            TokenKind::Keyword(Keyword::Unmask) => Permission::Unmask,
            TokenKind::Keyword(Keyword::SelectMasked) => Permission::SelectMasked,
            _ if self.at_word(ahead, "vector_search_indexing") => Permission::VectorSearchIndexing,
            _ if self.at_word(ahead, "text_search_indexing") => Permission::TextSearchIndexing,
            _ => return None,
        })
    }

    fn permissions(&mut self) -> Parse<Permissions> {
        if self.eat(Keyword::All) {
            self.eat(Keyword::Permissions);
            return Ok(Permissions::All);
        }
        if self.permission_at(0).is_none() {
            return Err(self.fail());
        }
        let list = self.separated(|parser| {
            let permission = parser.permission_at(0).ok_or_else(|| parser.expected_set())?;
            parser.advance();
            parser.eat(Keyword::Permission);
            Ok(permission)
        })?;
        Ok(Permissions::List(list))
    }

    fn resource(&mut self) -> Parse<Resource> {
        match self.kind(0) {
            TokenKind::Keyword(Keyword::All) => {
                if let Some(resource) = self.all_resources()? {
                    return Ok(resource);
                }
            }
            TokenKind::Keyword(Keyword::Keyspace) => {
                self.advance();
                return self.keyspace_name().map(Resource::Keyspace);
            }
            TokenKind::Keyword(Keyword::ColumnFamily) => {
                self.advance();
                return self.table_name().map(Resource::Table);
            }
            // The rest may also be tables of that name.
            TokenKind::Keyword(Keyword::Role) if self.names_follow(1) => {
                self.advance();
                return self.role_name().map(Resource::Role);
            }
            TokenKind::Keyword(Keyword::Function) if self.names_follow(1) => {
                self.advance();
                let name = self.function_name()?;
                self.expect_sign("(")?;
                return Ok(Resource::Function { name, argument_types: self.argument_types()? });
            }
            TokenKind::Keyword(Keyword::Mbean) if self.names_follow(1) => {
                self.advance();
                return self.mbean().map(Resource::Mbean);
            }
            TokenKind::Keyword(Keyword::Mbeans) if self.names_follow(1) => {
                self.advance();
                return self.mbean().map(Resource::Mbeans);
            }
            _ => {}
        }
        let ambiguous = [Keyword::All, Keyword::Role, Keyword::Function, Keyword::Mbean, Keyword::Mbeans];
        if ambiguous.iter().any(|keyword| self.at(*keyword)) && !self.resource_ends(1) {
            return Err(self.fail_ahead(1));
        }
        self.table_name().map(Resource::Table)
    }

    /// Whether the token `ahead` is one that follows a resource, or goes on a table's name.
    fn resource_ends(&self, ahead: usize) -> bool {
        match self.kind(ahead) {
            TokenKind::End | TokenKind::Sign("." | ";") => true,
            TokenKind::Keyword(keyword) => {
                matches!(keyword, Keyword::To | Keyword::From | Keyword::Of | Keyword::Norecursive)
            }
            _ => false,
        }
    }

    /// Whether the token `ahead` is a name of any kind, in quotes or not, but not one that goes on a
    /// statement.
    fn names_follow(&self, ahead: usize) -> bool {
        self.is_name(ahead)
            || self.is_function_name(ahead)
            || matches!(
                self.kind(ahead),
                TokenKind::String | TokenKind::DollarString | TokenKind::QuestionMark
            )
    }

    /// `ALL …`; nothing when ALL turns out to be a table's name.
    fn all_resources(&mut self) -> Parse<Option<Resource>> {
        self.look(1);
        let TokenKind::Keyword(keyword) = self.kind(1) else {
            return Ok(None);
        };
        match keyword {
            Keyword::Functions
                if self.kind(2) != TokenKind::Keyword(Keyword::In) && !self.resource_ends(2) =>
            {
                self.look(2);
                return Err(self.fail_ahead(2));
            }
            Keyword::Keyspaces | Keyword::Roles | Keyword::Mbeans | Keyword::Functions | Keyword::Tables => {
                self.advance();
                self.advance();
            }
            _ => return Ok(None),
        }
        Ok(Some(match keyword {
            Keyword::Keyspaces => Resource::AllKeyspaces,
            Keyword::Roles => Resource::AllRoles,
            Keyword::Mbeans => Resource::AllMbeans,
            Keyword::Functions if !self.at(Keyword::In) => Resource::AllFunctions,
            _ => {
                self.expect(Keyword::In)?;
                self.expect(Keyword::Keyspace)?;
                let keyspace = self.keyspace_name()?;
                match keyword {
                    Keyword::Functions => Resource::AllFunctionsIn(keyspace),
                    _ => Resource::AllTables(keyspace),
                }
            }
        }))
    }

    fn mbean(&mut self) -> Parse<String> {
        let name = self.expect_string()?;
        match name.as_str() {
            "" => Err(self.message("Empty JMX object name supplied")),
            "*:*" => Err(self.message("Please use ALL MBEANS instead of wildcard pattern")),
            _ => Ok(name),
        }
    }

    fn check_applicable(&self, permissions: &Permissions, resource: &Resource) -> Parse<()> {
        let Permissions::List(list) = permissions else {
            return Ok(());
        };
        let (class, applicable) = resource_permissions(resource);
        if list.iter().any(|permission| applicable.contains(permission)) {
            return Ok(());
        }
        let refusal = "does not support any of the requested permissions";
        Err(self.message(format!("Resource type {class} {refusal}")))
    }

    /// CREATE ROLE
    pub(super) fn create_role(&mut self) -> Parse<CreateRole> {
        self.advance();
        self.advance();
        let if_not_exists = self.if_not_exists()?;
        let name = self.role_name()?;
        Ok(CreateRole { if_not_exists, name, options: self.role_options()? })
    }

    /// ALTER ROLE
    pub(super) fn alter_role(&mut self) -> Parse<AlterRole> {
        self.advance();
        self.advance();
        let if_exists = self.if_exists()?;
        let name = self.role_name()?;
        Ok(AlterRole { if_exists, name, options: self.role_options()? })
    }

    /// DROP ROLE
    pub(super) fn drop_role(&mut self) -> Parse<DropRole> {
        self.advance();
        self.advance();
        let if_exists = self.if_exists()?;
        Ok(DropRole { if_exists, name: self.role_name()? })
    }

    fn role_options(&mut self) -> Parse<Vec<RoleOption>> {
        if !self.eat(Keyword::With) {
            return Ok(Vec::new());
        }
        let mut seen = Vec::new();
        let options = self.joined(|parser| {
            let option = parser.role_option()?;
            if let Some(name) = option.unique_name() {
                if seen.contains(&name) {
                    return Err(parser.message(format!("Multiple definition for property '{name}'")));
                }
                seen.push(name);
            }
            Ok(option)
        })?;
        if seen.contains(&"PASSWORD") && seen.contains(&"HASHED_PASSWORD") {
            return Err(self.message("Options 'password' and 'hashed password' are mutually exclusive"));
        }
        Ok(options)
    }

    fn role_option(&mut self) -> Parse<RoleOption> {
        let TokenKind::Keyword(keyword) = self.kind(0) else {
            return Err(self.fail());
        };
        match keyword {
            Keyword::Password => {
                self.advance();
                self.expect_sign("=")?;
                self.expect_string().map(RoleOption::Password)
            }
            Keyword::Hashed => {
                self.advance();
                self.expect(Keyword::Password)?;
                self.expect_sign("=")?;
                self.expect_string().map(RoleOption::HashedPassword)
            }
            Keyword::Options => {
                self.advance();
                self.expect_sign("=")?;
                self.property_map().map(RoleOption::Options)
            }
            Keyword::Superuser => self.boolean_option().map(RoleOption::Superuser),
            Keyword::Login => self.boolean_option().map(RoleOption::Login),
            Keyword::Access => self.access_option(),
            _ => Err(self.fail()),
        }
    }

    fn boolean_option(&mut self) -> Parse<bool> {
        self.advance();
        self.expect_sign("=")?;
        if self.kind(0) != TokenKind::Boolean {
            return Err(self.expected("BOOLEAN"));
        }
        let value = self.slice(0).eq_ignore_ascii_case("true");
        self.advance();
        Ok(value)
    }

    /// `ACCESS TO …` and `ACCESS FROM …`; the grammar decides on three words at once.
    fn access_option(&mut self) -> Parse<RoleOption> {
        let to = match self.kind(1) {
            TokenKind::Keyword(Keyword::To) => true,
            TokenKind::Keyword(Keyword::From) => false,
            _ => return Err(self.fail_ahead(1)),
        };
        let set = if to { Keyword::Datacenters } else { Keyword::Cidrs };
        let all = self.kind(2) == TokenKind::Keyword(Keyword::All);
        if !all && self.kind(2) != TokenKind::Keyword(set) {
            return Err(self.fail_ahead(2));
        }
        (0..3).for_each(|_| self.advance());
        if all {
            self.expect(set)?;
            return Ok(if to { RoleOption::AccessToAllDatacenters } else { RoleOption::AccessFromAllCidrs });
        }
        self.expect_sign("{")?;
        let names = self.separated(Self::expect_string)?;
        self.expect_sign("}")?;
        Ok(if to { RoleOption::AccessToDatacenters(names) } else { RoleOption::AccessFromCidrs(names) })
    }

    /// CREATE USER
    pub(super) fn create_user(&mut self) -> Parse<CreateUser> {
        self.advance();
        self.advance();
        let if_not_exists = self.if_not_exists()?;
        let (name, password, superuser) = self.user()?;
        Ok(CreateUser { if_not_exists, name, password, superuser })
    }

    /// ALTER USER
    pub(super) fn alter_user(&mut self) -> Parse<AlterUser> {
        self.advance();
        self.advance();
        let if_exists = self.if_exists()?;
        let (name, password, superuser) = self.user()?;
        Ok(AlterUser { if_exists, name, password, superuser })
    }

    fn user(&mut self) -> Parse<(Ident, Option<UserPassword>, Option<bool>)> {
        let name = self.verbatim_name(QUOTED_USER)?;
        let mut password = None;
        if self.eat(Keyword::With) {
            password = Some(match self.kind(0) {
                TokenKind::Keyword(Keyword::Hashed) => {
                    self.advance();
                    self.expect(Keyword::Password)?;
                    UserPassword::Hashed(self.expect_string()?)
                }
                TokenKind::Keyword(Keyword::Password) => {
                    self.advance();
                    UserPassword::Plain(self.expect_string()?)
                }
                _ => return Err(self.fail()),
            });
        }
        let superuser = if self.eat(Keyword::Superuser) {
            Some(true)
        } else if self.eat(Keyword::Nosuperuser) {
            Some(false)
        } else {
            None
        };
        Ok((name, password, superuser))
    }

    /// DROP USER
    pub(super) fn drop_user(&mut self) -> Parse<DropUser> {
        self.advance();
        self.advance();
        let if_exists = self.if_exists()?;
        Ok(DropUser { if_exists, name: self.verbatim_name(QUOTED_USER)? })
    }

    /// ADD IDENTITY
    pub(super) fn add_identity(&mut self) -> Parse<AddIdentity> {
        self.expect(Keyword::Add)?;
        self.expect(Keyword::Identity)?;
        let if_not_exists = self.if_not_exists()?;
        let identity = self.verbatim_name(QUOTED_IDENTITY)?;
        self.expect(Keyword::To)?;
        self.expect(Keyword::Role)?;
        Ok(AddIdentity { if_not_exists, identity, role: self.verbatim_name(QUOTED_IDENTITY)? })
    }

    /// DROP IDENTITY
    pub(super) fn drop_identity(&mut self) -> Parse<DropIdentity> {
        self.advance();
        self.advance();
        let if_exists = self.if_exists()?;
        Ok(DropIdentity { if_exists, identity: self.verbatim_name(QUOTED_IDENTITY)? })
    }
}

/// Cassandra's name for a kind of resource, and the permissions that apply to it.
fn resource_permissions(resource: &Resource) -> (&'static str, &'static [Permission]) {
    use Permission::*;
    match resource {
        Resource::AllKeyspaces | Resource::Keyspace(_) | Resource::AllTables(_) => (
            "DataResource",
            &[
                Create,
                Alter,
                Drop,
                Select,
                Modify,
                Authorize,
                Unmask,
                SelectMasked,
                VectorSearchIndexing,
                TextSearchIndexing,
            ],
        ),
        Resource::Table(_) => (
            "DataResource",
            &[
                Alter,
                Drop,
                Select,
                Modify,
                Authorize,
                Unmask,
                SelectMasked,
                VectorSearchIndexing,
                TextSearchIndexing,
            ],
        ),
        Resource::AllRoles => ("RoleResource", &[Create, Alter, Drop, Authorize, Describe]),
        Resource::Role(_) => ("RoleResource", &[Alter, Drop, Authorize, Describe]),
        Resource::AllFunctions | Resource::AllFunctionsIn(_) => {
            ("FunctionResource", &[Create, Alter, Drop, Authorize, Execute])
        }
        Resource::Function { .. } => ("FunctionResource", &[Alter, Drop, Authorize, Execute]),
        Resource::AllMbeans | Resource::Mbean(_) | Resource::Mbeans(_) => {
            ("JMXResource", &[Authorize, Describe, Execute, Modify, Select])
        }
    }
}
