//! CREATE, ALTER and DROP of tables and materialised views.
//!
//! Used by `statement`; shares properties with `ddl`.

use super::{Parse, Parser};
use crate::ast::{
    AlterMaterializedView, AlterTable, AlterTableChange, ColumnDefinition, ColumnMask, CopyOption,
    CreateMaterializedView, CreateTable, CreateTableLike, Direction, DropMaterializedView, DropTable,
    FunctionCall, Ident, PrimaryKey, QualifiedName, Statement, TableElement, TableOption,
};
use crate::keyword::Keyword;
use crate::lexer::TokenKind;

impl Parser<'_> {
    /// CREATE TABLE in either form.
    pub(super) fn create_table(&mut self) -> Parse<Statement> {
        self.advance();
        self.expect(Keyword::ColumnFamily)?;
        let if_not_exists = self.if_not_exists()?;
        let name = self.table_name()?;
        if self.eat(Keyword::Like) {
            return self.create_table_like(if_not_exists, name).map(Statement::CreateTableLike);
        }
        self.expect_sign("(")?;
        let mut elements = vec![self.table_element()?];
        while self.eat_sign(",") {
            if self.is_name(0) || self.at(Keyword::Primary) {
                elements.push(self.table_element()?);
            }
        }
        self.expect_sign(")")?;
        let options = self.table_options()?;
        Ok(Statement::CreateTable(CreateTable { if_not_exists, name, elements, options }))
    }

    fn create_table_like(&mut self, if_not_exists: bool, name: QualifiedName) -> Parse<CreateTableLike> {
        let source = self.table_name()?;
        let mut options = Vec::new();
        if self.eat(Keyword::With) {
            let mut names = Vec::new();
            options = self.joined(|parser| {
                if parser.is_name(0) && parser.kind(1) != TokenKind::Sign("=") {
                    return Ok(CopyOption::Include(parser.take_name()));
                }
                parser.property(&mut names).map(CopyOption::Property)
            })?;
        }
        Ok(CreateTableLike { if_not_exists, name, source, options })
    }

    fn table_element(&mut self) -> Parse<TableElement> {
        if self.at(Keyword::Primary) {
            return self.primary_key().map(TableElement::PrimaryKey);
        }
        let name = self.name()?;
        let type_name = self.type_name()?;
        let is_static = self.eat(Keyword::Static);
        let is_row_expiry = self.eat(Keyword::Ttl);
        let mask = if self.at(Keyword::Masked) { Some(self.column_mask()?) } else { None };
        let is_primary_key = self.eat(Keyword::Primary);
        if is_primary_key {
            self.expect(Keyword::Key)?;
        }
        Ok(TableElement::Column(ColumnDefinition {
            name,
            type_name,
            is_static,
            is_row_expiry,
            mask,
            is_primary_key,
        }))
    }

    /// `PRIMARY KEY (…)`
    fn primary_key(&mut self) -> Parse<PrimaryKey> {
        self.expect(Keyword::Primary)?;
        self.expect(Keyword::Key)?;
        self.expect_sign("(")?;
        let partition = if self.eat_sign("(") {
            let columns = self.separated(Self::name)?;
            self.expect_sign(")")?;
            columns
        } else {
            vec![self.name()?]
        };
        let mut clustering = Vec::new();
        while self.eat_sign(",") {
            clustering.push(self.name()?);
        }
        self.expect_sign(")")?;
        Ok(PrimaryKey { partition, clustering })
    }

    /// `MASKED WITH …`
    fn column_mask(&mut self) -> Parse<ColumnMask> {
        self.look(1);
        if self.kind(1) != TokenKind::Keyword(Keyword::With) {
            return Err(self.fail_ahead(1));
        }
        self.look(2);
        let decision = self.next;
        self.advance();
        self.advance();
        if self.at(Keyword::Default) && !matches!(self.kind(1), TokenKind::Sign("(" | ".")) {
            self.advance();
            return Ok(ColumnMask::Default);
        }
        if !self.is_name(0) && !self.is_function_name(0) {
            return Err(self.fail_since(decision));
        }
        let name = self.function_name()?;
        if !self.at_sign("(") {
            return Err(self.fail());
        }
        self.advance();
        if self.eat_sign(")") {
            return Ok(ColumnMask::Function(FunctionCall { name, arguments: Vec::new() }));
        }
        let arguments = self.separated(Self::term)?;
        self.expect_sign(")")?;
        Ok(ColumnMask::Function(FunctionCall { name, arguments }))
    }

    /// The WITH clause of a table or view, when it is there.
    fn table_options(&mut self) -> Parse<Vec<TableOption>> {
        if !self.eat(Keyword::With) {
            return Ok(Vec::new());
        }
        let mut names = Vec::new();
        self.joined(|parser| parser.table_option(&mut names))
    }

    fn table_option(&mut self, names: &mut Vec<Ident>) -> Parse<TableOption> {
        self.look(1);
        match (self.kind(0), self.kind(1)) {
            (TokenKind::Keyword(Keyword::Compact), TokenKind::Keyword(Keyword::Storage)) => {
                self.advance();
                self.advance();
                Ok(TableOption::CompactStorage)
            }
            (TokenKind::Keyword(Keyword::Clustering), TokenKind::Keyword(Keyword::Order)) => {
                self.advance();
                self.advance();
                self.expect(Keyword::By)?;
                self.expect_sign("(")?;
                let columns = self.separated(Self::clustering_order)?;
                self.expect_sign(")")?;
                Ok(TableOption::ClusteringOrder(columns))
            }
            (TokenKind::Keyword(Keyword::Compact | Keyword::Clustering), next)
                if next != TokenKind::Sign("=") =>
            {
                Err(self.fail_ahead(1))
            }
            _ => self.property(names).map(TableOption::Property),
        }
    }

    fn clustering_order(&mut self) -> Parse<(Ident, Direction)> {
        let column = self.name()?;
        if self.eat(Keyword::Asc) {
            return Ok((column, Direction::Ascending));
        }
        if self.eat(Keyword::Desc) {
            return Ok((column, Direction::Descending));
        }
        Err(self.fail())
    }

    /// ALTER TABLE
    pub(super) fn alter_table(&mut self) -> Parse<AlterTable> {
        self.advance();
        self.expect(Keyword::ColumnFamily)?;
        let if_exists = self.if_exists()?;
        let name = self.table_name_before(TokenKind::Keyword(Keyword::Ttl))?;
        let change = self.alter_table_change()?;
        Ok(AlterTable { if_exists, name, change })
    }

    fn alter_table_change(&mut self) -> Parse<AlterTableChange> {
        match self.kind(0) {
            TokenKind::Keyword(Keyword::Alter) => self.alter_column(),
            TokenKind::Keyword(Keyword::Add) => {
                self.advance();
                let if_not_exists = self.if_not_exists()?;
                let columns = if self.eat_sign("(") {
                    let columns = self.separated(Self::added_column)?;
                    self.expect_sign(")")?;
                    columns
                } else if self.is_name(0) {
                    vec![self.added_column()?]
                } else {
                    return Err(self.fail());
                };
                Ok(AlterTableChange::Add { if_not_exists, columns })
            }
            TokenKind::Keyword(Keyword::Drop) => self.drop_columns(),
            TokenKind::Keyword(Keyword::Rename) => {
                self.advance();
                let if_exists = self.if_exists()?;
                let columns = self.joined(Self::renaming)?;
                Ok(AlterTableChange::Rename { if_exists, columns })
            }
            TokenKind::Keyword(Keyword::With) => {
                self.advance();
                self.properties().map(AlterTableChange::Options)
            }
            TokenKind::Keyword(Keyword::Ttl) => {
                self.advance();
                if self.eat(Keyword::Null) {
                    return Ok(AlterTableChange::RowExpiry(None));
                }
                self.name().map(|column| AlterTableChange::RowExpiry(Some(column)))
            }
            _ => Err(self.fail()),
        }
    }

    fn alter_column(&mut self) -> Parse<AlterTableChange> {
        self.look(1);
        if self.is_column_name(1) {
            self.look(2);
            match self.kind(2) {
                TokenKind::Keyword(Keyword::Type | Keyword::Masked | Keyword::Drop) => {}
                _ => return Err(self.fail_ahead(2)),
            }
        } else if self.kind(1) != TokenKind::Keyword(Keyword::If) {
            return Err(self.fail_ahead(1));
        }
        self.advance();
        let if_exists = self.if_exists()?;
        let column = self.column_name()?;
        match self.kind(0) {
            TokenKind::Keyword(Keyword::Type) if !if_exists => {
                self.advance();
                Ok(AlterTableChange::ColumnType { column, type_name: self.type_name()? })
            }
            TokenKind::Keyword(Keyword::Masked) => {
                Ok(AlterTableChange::ColumnMask { if_exists, column, mask: Some(self.column_mask()?) })
            }
            TokenKind::Keyword(Keyword::Drop) => {
                self.advance();
                self.expect(Keyword::Masked)?;
                Ok(AlterTableChange::ColumnMask { if_exists, column, mask: None })
            }
            _ => Err(self.fail()),
        }
    }

    fn added_column(&mut self) -> Parse<ColumnDefinition> {
        let name = self.name()?;
        let type_name = self.type_name()?;
        let is_static = self.eat(Keyword::Static);
        let mask = if self.at(Keyword::Masked) { Some(self.column_mask()?) } else { None };
        Ok(ColumnDefinition { name, type_name, is_static, is_row_expiry: false, mask, is_primary_key: false })
    }

    fn drop_columns(&mut self) -> Parse<AlterTableChange> {
        self.look(1);
        let columns_follow =
            self.is_name(1) || matches!(self.kind(1), TokenKind::Sign("(") | TokenKind::Keyword(Keyword::If));
        if !columns_follow {
            return Err(self.fail_ahead(1));
        }
        if self.kind(1) == TokenKind::Keyword(Keyword::Compact) {
            self.look(2);
            match self.kind(2) {
                TokenKind::Keyword(Keyword::Storage) => {
                    (0..3).for_each(|_| self.advance());
                    return Ok(AlterTableChange::DropCompactStorage);
                }
                TokenKind::Keyword(Keyword::Using) | TokenKind::Sign(";") | TokenKind::End => {}
                _ => return Err(self.fail_ahead(2)),
            }
        }
        self.advance();
        let if_exists = self.if_exists()?;
        let columns = if self.at_sign("(") {
            self.advance();
            let columns = self.separated(Self::name)?;
            self.expect_sign(")")?;
            columns
        } else {
            vec![self.name()?]
        };
        let mut timestamp = None;
        if self.eat(Keyword::Using) {
            self.expect(Keyword::Timestamp)?;
            if self.kind(0) != TokenKind::Integer {
                return Err(self.expected("INTEGER"));
            }
            let digits = self.slice(0);
            if digits.parse::<i64>().is_err() {
                return Err(self.message(format!("Invalid timestamp {digits}")));
            }
            timestamp = Some(digits.to_owned());
            self.advance();
        }
        Ok(AlterTableChange::Drop { if_exists, columns, timestamp })
    }

    /// `a TO b`
    pub(super) fn renaming(&mut self) -> Parse<(Ident, Ident)> {
        let from = self.name()?;
        self.expect(Keyword::To)?;
        Ok((from, self.name()?))
    }

    /// DROP TABLE
    pub(super) fn drop_table(&mut self) -> Parse<DropTable> {
        self.advance();
        self.expect(Keyword::ColumnFamily)?;
        let if_exists = self.if_exists()?;
        Ok(DropTable { if_exists, name: self.table_name()? })
    }

    /// CREATE MATERIALIZED VIEW
    pub(super) fn create_view(&mut self) -> Parse<CreateMaterializedView> {
        self.advance();
        self.expect(Keyword::Materialized)?;
        self.expect(Keyword::View)?;
        let if_not_exists = self.if_not_exists()?;
        let name = self.table_name()?;
        self.expect(Keyword::As)?;
        self.expect(Keyword::Select)?;
        let selection = self.selection()?;
        self.expect(Keyword::From)?;
        let base_table = self.table_name()?;
        let where_clause = if self.eat(Keyword::Where) { Some(self.where_clause()?) } else { None };
        let primary_key = self.primary_key()?;
        let options = self.table_options()?;
        Ok(CreateMaterializedView {
            if_not_exists,
            name,
            selection,
            base_table,
            where_clause,
            primary_key,
            options,
        })
    }

    /// ALTER MATERIALIZED VIEW
    pub(super) fn alter_view(&mut self) -> Parse<AlterMaterializedView> {
        self.advance();
        self.expect(Keyword::Materialized)?;
        self.expect(Keyword::View)?;
        let if_exists = self.if_exists()?;
        let name = self.table_name()?;
        self.expect(Keyword::With)?;
        Ok(AlterMaterializedView { if_exists, name, properties: self.properties()? })
    }

    /// DROP MATERIALIZED VIEW
    pub(super) fn drop_view(&mut self) -> Parse<DropMaterializedView> {
        self.advance();
        self.expect(Keyword::Materialized)?;
        self.expect(Keyword::View)?;
        let if_exists = self.if_exists()?;
        Ok(DropMaterializedView { if_exists, name: self.table_name()? })
    }
}
