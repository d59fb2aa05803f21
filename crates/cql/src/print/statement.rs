//! Prints a whole statement, without a semicolon.

use std::fmt::{Display, Formatter, Result};

use crate::ast::Statement;

impl Display for Statement {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            Statement::Select(statement) => write!(formatter, "{statement}"),
            Statement::Insert(statement) => write!(formatter, "{statement}"),
            Statement::InsertJson(statement) => write!(formatter, "{statement}"),
            Statement::Update(statement) => write!(formatter, "{statement}"),
            Statement::Delete(statement) => write!(formatter, "{statement}"),
            Statement::Batch(statement) => write!(formatter, "{statement}"),
            Statement::Truncate(statement) => write!(formatter, "{statement}"),
            Statement::PruneMaterializedView(statement) => write!(formatter, "{statement}"),
            Statement::Use(statement) => write!(formatter, "{statement}"),
            Statement::Describe(statement) => write!(formatter, "{statement}"),
            Statement::CreateKeyspace(statement) => write!(formatter, "{statement}"),
            Statement::AlterKeyspace(statement) => write!(formatter, "{statement}"),
            Statement::DropKeyspace(statement) => write!(formatter, "{statement}"),
            Statement::CreateTable(statement) => write!(formatter, "{statement}"),
            Statement::CreateTableLike(statement) => write!(formatter, "{statement}"),
            Statement::AlterTable(statement) => write!(formatter, "{statement}"),
            Statement::DropTable(statement) => write!(formatter, "{statement}"),
            Statement::CreateType(statement) => write!(formatter, "{statement}"),
            Statement::AlterType(statement) => write!(formatter, "{statement}"),
            Statement::DropType(statement) => write!(formatter, "{statement}"),
            Statement::CreateIndex(statement) => write!(formatter, "{statement}"),
            Statement::DropIndex(statement) => write!(formatter, "{statement}"),
            Statement::CreateMaterializedView(statement) => write!(formatter, "{statement}"),
            Statement::AlterMaterializedView(statement) => write!(formatter, "{statement}"),
            Statement::DropMaterializedView(statement) => write!(formatter, "{statement}"),
            Statement::CreateFunction(statement) => write!(formatter, "{statement}"),
            Statement::DropFunction(statement) => write!(formatter, "{statement}"),
            Statement::CreateAggregate(statement) => write!(formatter, "{statement}"),
            Statement::DropAggregate(statement) => write!(formatter, "{statement}"),
            Statement::CreateTrigger(statement) => write!(formatter, "{statement}"),
            Statement::DropTrigger(statement) => write!(formatter, "{statement}"),
            Statement::CreateRole(statement) => write!(formatter, "{statement}"),
            Statement::AlterRole(statement) => write!(formatter, "{statement}"),
            Statement::DropRole(statement) => write!(formatter, "{statement}"),
            Statement::CreateUser(statement) => write!(formatter, "{statement}"),
            Statement::AlterUser(statement) => write!(formatter, "{statement}"),
            Statement::DropUser(statement) => write!(formatter, "{statement}"),
            Statement::GrantRole(statement) => write!(formatter, "{statement}"),
            Statement::RevokeRole(statement) => write!(formatter, "{statement}"),
            Statement::ListRoles(statement) => write!(formatter, "{statement}"),
            Statement::GrantPermissions(statement) => write!(formatter, "{statement}"),
            Statement::RevokePermissions(statement) => write!(formatter, "{statement}"),
            Statement::ListPermissions(statement) => write!(formatter, "{statement}"),
            Statement::AddIdentity(statement) => write!(formatter, "{statement}"),
            Statement::DropIdentity(statement) => write!(formatter, "{statement}"),
            Statement::CreateServiceLevel(statement) => write!(formatter, "{statement}"),
            Statement::AlterServiceLevel(statement) => write!(formatter, "{statement}"),
            Statement::DropServiceLevel(statement) => write!(formatter, "{statement}"),
            Statement::AttachServiceLevel(statement) => write!(formatter, "{statement}"),
            Statement::DetachServiceLevel(statement) => write!(formatter, "{statement}"),
            Statement::ListServiceLevel(statement) => write!(formatter, "{statement}"),
            Statement::ListUsers => formatter.write_str("LIST USERS"),
        }
    }
}
