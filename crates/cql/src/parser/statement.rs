//! Which statement stands here.
//!
//! The grammar decides on the first words of a statement at once, so an error among them is reported with the
//! statement's first word in brackets. Used by the entry points in `mod`.

use super::{Parse, Parser};
use crate::ast::{Describe, DescribeTarget, QualifiedName, Statement, Use};
use crate::keyword::Keyword;
use crate::lexer::TokenKind;

impl Parser<'_> {
    /// One statement.
    pub(super) fn statement(&mut self) -> Parse<Statement> {
        let TokenKind::Keyword(keyword) = self.kind(0) else {
            return self.extension();
        };
        match keyword {
            Keyword::Select => self.select().map(Statement::Select),
            Keyword::Insert => self.insert().map(Statement::from),
            Keyword::Update => self.update().map(Statement::Update),
            Keyword::Delete => self.delete_statement().map(Statement::Delete),
            Keyword::Begin => self.batch().map(Statement::Batch),
            Keyword::Truncate => self.truncate().map(Statement::Truncate),
            Keyword::Use => {
                self.advance();
                Ok(Statement::Use(Use { keyspace: self.keyspace_name()? }))
            }
            Keyword::Describe | Keyword::Desc => self.describe().map(Statement::Describe),
            Keyword::Create => self.create(),
            Keyword::Alter => self.alter(),
            Keyword::Drop => self.drop_statement(),
            Keyword::Grant => self.grant(),
            Keyword::Revoke => self.revoke(),
            Keyword::List => self.list(),
            Keyword::Add => self.add_identity().map(Statement::AddIdentity),
            _ => Err(self.fail()),
        }
    }

    /// Statements that start with a word that is unknown in Cassandra's language.
    fn extension(&mut self) -> Parse<Statement> {
        if self.at_word(0, "prune") {
            return self.prune().map(Statement::PruneMaterializedView);
        }
        if self.at_word(0, "attach") {
            return self.attach_service_level().map(Statement::AttachServiceLevel);
        }
        if self.at_word(0, "detach") {
            return self.detach_service_level().map(Statement::DetachServiceLevel);
        }
        Err(self.fail())
    }

    fn create(&mut self) -> Parse<Statement> {
        self.look(1);
        let TokenKind::Keyword(keyword) = self.kind(1) else {
            if self.at_service_level(1) {
                self.advance();
                return self.create_service_level().map(Statement::CreateServiceLevel);
            }
            return Err(self.fail_ahead(1));
        };
        match keyword {
            Keyword::Keyspace => self.create_keyspace().map(Statement::CreateKeyspace),
            Keyword::ColumnFamily => self.create_table(),
            Keyword::Type => self.create_type().map(Statement::CreateType),
            Keyword::Index | Keyword::Custom => self.create_index().map(Statement::CreateIndex),
            Keyword::Materialized => self.create_view().map(Statement::CreateMaterializedView),
            Keyword::Trigger => self.create_trigger().map(Statement::CreateTrigger),
            Keyword::Role => self.create_role().map(Statement::CreateRole),
            Keyword::User => self.create_user().map(Statement::CreateUser),
            Keyword::Function => self.create_function(false).map(Statement::CreateFunction),
            Keyword::Aggregate => self.create_aggregate(false).map(Statement::CreateAggregate),
            Keyword::Or => self.create_or_replace(),
            _ => Err(self.fail_ahead(1)),
        }
    }

    fn create_or_replace(&mut self) -> Parse<Statement> {
        self.look(2);
        if self.kind(2) != TokenKind::Keyword(Keyword::Replace) {
            return Err(self.fail_ahead(2));
        }
        self.look(3);
        match self.kind(3) {
            TokenKind::Keyword(Keyword::Function) => {
                self.create_function(true).map(Statement::CreateFunction)
            }
            TokenKind::Keyword(Keyword::Aggregate) => {
                self.create_aggregate(true).map(Statement::CreateAggregate)
            }
            _ => Err(self.fail_ahead(3)),
        }
    }

    fn alter(&mut self) -> Parse<Statement> {
        self.look(1);
        let TokenKind::Keyword(keyword) = self.kind(1) else {
            if self.at_service_level(1) {
                self.advance();
                return self.alter_service_level().map(Statement::AlterServiceLevel);
            }
            return Err(self.fail_ahead(1));
        };
        match keyword {
            Keyword::Keyspace => self.alter_keyspace().map(Statement::AlterKeyspace),
            Keyword::ColumnFamily => self.alter_table().map(Statement::AlterTable),
            Keyword::Type => self.alter_type().map(Statement::AlterType),
            Keyword::Materialized => self.alter_view().map(Statement::AlterMaterializedView),
            Keyword::Role => self.alter_role().map(Statement::AlterRole),
            Keyword::User => self.alter_user().map(Statement::AlterUser),
            _ => Err(self.fail_ahead(1)),
        }
    }

    fn drop_statement(&mut self) -> Parse<Statement> {
        self.look(1);
        let TokenKind::Keyword(keyword) = self.kind(1) else {
            if self.at_service_level(1) {
                self.advance();
                return self.drop_service_level().map(Statement::DropServiceLevel);
            }
            return Err(self.fail_ahead(1));
        };
        match keyword {
            Keyword::Keyspace => self.drop_keyspace().map(Statement::DropKeyspace),
            Keyword::ColumnFamily => self.drop_table().map(Statement::DropTable),
            Keyword::Type => self.drop_type().map(Statement::DropType),
            Keyword::Index => self.drop_index().map(Statement::DropIndex),
            Keyword::Materialized => self.drop_view().map(Statement::DropMaterializedView),
            Keyword::Trigger => self.drop_trigger().map(Statement::DropTrigger),
            Keyword::Role => self.drop_role().map(Statement::DropRole),
            Keyword::User => self.drop_user().map(Statement::DropUser),
            Keyword::Function => self.drop_function().map(Statement::DropFunction),
            Keyword::Aggregate => self.drop_aggregate().map(Statement::DropAggregate),
            Keyword::Identity => self.drop_identity().map(Statement::DropIdentity),
            _ => Err(self.fail_ahead(1)),
        }
    }

    fn describe(&mut self) -> Parse<Describe> {
        self.advance();
        let target = self.describe_target()?;
        let mut internals = false;
        let mut passwords = false;
        if self.eat(Keyword::With) {
            self.expect(Keyword::Internals)?;
            internals = true;
            if self.eat(Keyword::And) {
                self.expect_word("passwords")?;
                passwords = true;
            }
        }
        Ok(Describe { target, internals, passwords })
    }

    fn describe_target(&mut self) -> Parse<DescribeTarget> {
        let named = self.is_name(1);
        let ambiguous = [Keyword::Type, Keyword::Function, Keyword::Aggregate, Keyword::Only];
        if ambiguous.iter().any(|keyword| self.at(*keyword)) {
            // These may also be a table's name.
            self.look(1);
            let ends = matches!(self.kind(1), TokenKind::End | TokenKind::Sign("." | ";"))
                || self.kind(1) == TokenKind::Keyword(Keyword::With);
            let keyspace = self.at(Keyword::Only) && self.kind(1) == TokenKind::Keyword(Keyword::Keyspace);
            let named = named && !self.at(Keyword::Only);
            let function = !self.at(Keyword::Only) && !self.at(Keyword::Type) && self.is_function_name(1);
            if !ends && !keyspace && !named && !function {
                return Err(self.fail_ahead(1));
            }
        }
        match self.kind(0) {
            TokenKind::Keyword(Keyword::Cluster) => self.describe_all(DescribeTarget::Cluster),
            TokenKind::Keyword(Keyword::Keyspaces) => self.describe_all(DescribeTarget::Keyspaces),
            TokenKind::Keyword(Keyword::Tables) => self.describe_all(DescribeTarget::Tables),
            TokenKind::Keyword(Keyword::Types) => self.describe_all(DescribeTarget::Types),
            TokenKind::Keyword(Keyword::Functions) => self.describe_all(DescribeTarget::Functions),
            TokenKind::Keyword(Keyword::Aggregates) => self.describe_all(DescribeTarget::Aggregates),
            TokenKind::Keyword(Keyword::Full) => {
                self.advance();
                self.expect(Keyword::Schema)?;
                Ok(DescribeTarget::Schema { full: true })
            }
            TokenKind::Keyword(Keyword::Schema) => {
                self.advance();
                Ok(DescribeTarget::Schema { full: false })
            }
            TokenKind::Keyword(Keyword::Keyspace) => self.describe_keyspace(false),
            TokenKind::Keyword(Keyword::Only) if self.kind(1) == TokenKind::Keyword(Keyword::Keyspace) => {
                self.advance();
                self.describe_keyspace(true)
            }
            TokenKind::Keyword(Keyword::ColumnFamily) => {
                self.advance();
                self.table_name().map(DescribeTarget::Table)
            }
            TokenKind::Keyword(Keyword::Index) => {
                self.advance();
                self.table_name().map(DescribeTarget::Index)
            }
            TokenKind::Keyword(Keyword::Materialized) => {
                self.advance();
                self.expect(Keyword::View)?;
                self.table_name().map(DescribeTarget::MaterializedView)
            }
            TokenKind::Keyword(Keyword::Type) if named => {
                self.advance();
                self.user_type_name().map(DescribeTarget::Type)
            }
            TokenKind::Keyword(Keyword::Function) if named || self.is_function_name(1) => {
                self.advance();
                self.function_name().map(DescribeTarget::Function)
            }
            TokenKind::Keyword(Keyword::Aggregate) if named || self.is_function_name(1) => {
                self.advance();
                self.function_name().map(DescribeTarget::Aggregate)
            }
            _ => self.described_anything(),
        }
    }

    fn describe_all(&mut self, target: DescribeTarget) -> Parse<DescribeTarget> {
        self.look(2);
        self.advance();
        Ok(target)
    }

    fn describe_keyspace(&mut self, only: bool) -> Parse<DescribeTarget> {
        self.expect(Keyword::Keyspace)?;
        let named = self.is_name(0) || self.kind(0) == TokenKind::QuestionMark;
        let name = if named { Some(self.keyspace_name()?) } else { None };
        Ok(DescribeTarget::Keyspace { only, name })
    }

    fn described_anything(&mut self) -> Parse<DescribeTarget> {
        if !self.is_name(0) {
            return Err(self.fail());
        }
        self.look(1);
        match self.kind(1) {
            TokenKind::Sign("." | ";") | TokenKind::Keyword(Keyword::With) | TokenKind::End => self.look(2),
            _ => return Err(self.fail_ahead(1)),
        }
        let first = self.take_name();
        if self.eat_sign(".") {
            let name = self.name()?;
            return Ok(DescribeTarget::Anything(QualifiedName { keyspace: Some(first), name }));
        }
        Ok(DescribeTarget::Anything(QualifiedName::bare(first)))
    }
}
