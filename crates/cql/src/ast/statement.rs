//! The root of the tree: one statement, and the facts that the parser adds about it.
//!
//! `query`'s prepare matches on [`Statement`] once; the native protocol needs the names of the markers.

use crate::ast::*;

/// One CQL statement.
///
/// Built once per parse and moved by reference from there on, so the size of the largest variant does not
/// matter.
#[allow(clippy::large_enum_variant, reason = "one value per parsed text, never stored in bulk")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each variant is documented at the type it holds")]
pub enum Statement {
    Select(Select),
    Insert(Insert),
    InsertJson(InsertJson),
    Update(Update),
    Delete(Delete),
    Batch(Batch),
    Truncate(Truncate),
    PruneMaterializedView(PruneMaterializedView),
    Use(Use),
    Describe(Describe),
    CreateKeyspace(CreateKeyspace),
    AlterKeyspace(AlterKeyspace),
    DropKeyspace(DropKeyspace),
    CreateTable(CreateTable),
    CreateTableLike(CreateTableLike),
    AlterTable(AlterTable),
    DropTable(DropTable),
    CreateType(CreateType),
    AlterType(AlterType),
    DropType(DropType),
    CreateIndex(CreateIndex),
    DropIndex(DropIndex),
    CreateMaterializedView(CreateMaterializedView),
    AlterMaterializedView(AlterMaterializedView),
    DropMaterializedView(DropMaterializedView),
    CreateFunction(CreateFunction),
    DropFunction(DropFunction),
    CreateAggregate(CreateAggregate),
    DropAggregate(DropAggregate),
    CreateTrigger(CreateTrigger),
    DropTrigger(DropTrigger),
    CreateRole(CreateRole),
    AlterRole(AlterRole),
    DropRole(DropRole),
    CreateUser(CreateUser),
    AlterUser(AlterUser),
    DropUser(DropUser),
    /// `LIST USERS`
    ListUsers,
    GrantRole(GrantRole),
    RevokeRole(RevokeRole),
    ListRoles(ListRoles),
    GrantPermissions(GrantPermissions),
    RevokePermissions(RevokePermissions),
    ListPermissions(ListPermissions),
    AddIdentity(AddIdentity),
    DropIdentity(DropIdentity),
    CreateServiceLevel(CreateServiceLevel),
    AlterServiceLevel(AlterServiceLevel),
    DropServiceLevel(DropServiceLevel),
    AttachServiceLevel(AttachServiceLevel),
    DetachServiceLevel(DetachServiceLevel),
    ListServiceLevel(ListServiceLevel),
}

impl From<Modification> for Statement {
    fn from(modification: Modification) -> Self {
        match modification {
            Modification::Insert(insert) => Statement::Insert(insert),
            Modification::InsertJson(insert) => Statement::InsertJson(insert),
            Modification::Update(update) => Statement::Update(update),
            Modification::Delete(delete) => Statement::Delete(delete),
        }
    }
}

/// A statement and its bind markers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ParsedStatement {
    /// The statement.
    pub statement: Statement,
    /// One entry per bind marker in order of appearance: the name of `:name`, `None` for `?`.
    /// `BindMarker::index` in the tree is a position in here.
    pub markers: Vec<Option<Ident>>,
}
