//! Keyspaces, types, indexes, functions, aggregates, triggers, and the properties they share with tables.
//!
//! Used by `statement` and `table`. Invariant: property names of one clause, and keys of one map, are unique.

use super::{Parse, Parser};
use crate::ast::{
    AlterKeyspace, AlterType, AlterTypeChange, Constant, ConstantKind, CreateAggregate, CreateFunction,
    CreateIndex, CreateKeyspace, CreateTrigger, CreateType, DropAggregate, DropFunction, DropIndex,
    DropKeyspace, DropTrigger, DropType, Ident, IndexTarget, Property, PropertyItem, PropertyValue, Term,
    TypeName,
};
use crate::keyword::Keyword;
use crate::lexer::TokenKind;

impl Parser<'_> {
    /// `name = value AND …`
    pub(super) fn properties(&mut self) -> Parse<Vec<Property>> {
        let mut names = Vec::new();
        self.joined(|parser| parser.property(&mut names))
    }

    /// `name = value`, whose name must not be among `names` and is added to them.
    pub(super) fn property(&mut self, names: &mut Vec<Ident>) -> Parse<Property> {
        let decision = self.next;
        if !self.is_name(0) {
            return Err(self.fail());
        }
        self.look(1);
        if self.kind(1) != TokenKind::Sign("=") {
            return Err(self.fail_ahead(1));
        }
        self.look(2);
        let name = self.take_name();
        self.advance();
        let value = self.property_value(decision)?;
        if names.contains(&name) {
            return Err(self.message(format!("Multiple definitions for property '{}'", name.name)));
        }
        names.push(name.clone());
        Ok(Property { name, value })
    }

    fn property_value(&mut self, decision: usize) -> Parse<PropertyValue> {
        if self.at_sign("{") {
            return self.property_map().map(PropertyValue::Map);
        }
        if let Some(constant) = self.constant() {
            return Ok(PropertyValue::Constant(constant));
        }
        match self.kind(0) {
            TokenKind::Keyword(_) if self.is_name(0) => {
                let word = self.slice(0).to_owned();
                self.advance();
                Ok(PropertyValue::Keyword(word))
            }
            _ => Err(self.fail_since(decision)),
        }
    }

    /// A map literal of literals; lists of literals are allowed as values.
    pub(super) fn property_map(&mut self) -> Parse<Vec<(Constant, PropertyItem)>> {
        let entries = self.full_map()?;
        let mut items: Vec<(Constant, PropertyItem)> = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let Term::Constant(name) = &key else {
                return Err(self.message(format!("Invalid property name: {key}{}", marker_note(&key))));
            };
            if name.kind == ConstantKind::Null {
                return Err(self.message(format!("Invalid property name: {key}")));
            }
            let Some(item) = property_item(&value) else {
                let (shown, note) = (shown_value(&value), marker_note(&value));
                let refusal = format!("Invalid property value: {shown} for property: {key}{note}");
                return Err(self.message(refusal));
            };
            if items.iter().any(|(earlier, _)| earlier.text == name.text) {
                return Err(self.message(format!("Multiple definition for property {}", name.text)));
            }
            items.push((name.clone(), item));
        }
        Ok(items)
    }

    /// CREATE KEYSPACE
    pub(super) fn create_keyspace(&mut self) -> Parse<CreateKeyspace> {
        self.advance();
        self.expect(Keyword::Keyspace)?;
        let if_not_exists = self.if_not_exists()?;
        let name = self.keyspace_name()?;
        self.expect(Keyword::With)?;
        Ok(CreateKeyspace { if_not_exists, name, properties: self.properties()? })
    }

    /// ALTER KEYSPACE
    pub(super) fn alter_keyspace(&mut self) -> Parse<AlterKeyspace> {
        self.advance();
        self.expect(Keyword::Keyspace)?;
        let if_exists = self.if_exists()?;
        let name = self.keyspace_name()?;
        self.expect(Keyword::With)?;
        Ok(AlterKeyspace { if_exists, name, properties: self.properties()? })
    }

    /// DROP KEYSPACE
    pub(super) fn drop_keyspace(&mut self) -> Parse<DropKeyspace> {
        self.advance();
        self.expect(Keyword::Keyspace)?;
        let if_exists = self.if_exists()?;
        Ok(DropKeyspace { if_exists, name: self.keyspace_name()? })
    }

    /// CREATE TYPE
    pub(super) fn create_type(&mut self) -> Parse<CreateType> {
        self.advance();
        self.expect(Keyword::Type)?;
        let if_not_exists = self.if_not_exists()?;
        let name = self.user_type_name()?;
        self.expect_sign("(")?;
        let mut fields = vec![self.type_field()?];
        while self.eat_sign(",") {
            if self.is_name(0) {
                fields.push(self.type_field()?);
            }
        }
        self.expect_sign(")")?;
        Ok(CreateType { if_not_exists, name, fields })
    }

    fn type_field(&mut self) -> Parse<(Ident, TypeName)> {
        let field = self.name()?;
        Ok((field, self.type_name()?))
    }

    /// ALTER TYPE
    pub(super) fn alter_type(&mut self) -> Parse<AlterType> {
        self.advance();
        self.expect(Keyword::Type)?;
        let if_exists = self.if_exists()?;
        let name = self.user_type_name()?;
        let change = match self.kind(0) {
            TokenKind::Keyword(Keyword::Alter) => {
                self.advance();
                let field = self.name()?;
                self.expect(Keyword::Type)?;
                AlterTypeChange::FieldType { field, type_name: self.type_name()? }
            }
            TokenKind::Keyword(Keyword::Add) => {
                self.advance();
                let if_not_exists = self.if_not_exists()?;
                let (field, type_name) = self.type_field()?;
                AlterTypeChange::Add { if_not_exists, field, type_name }
            }
            TokenKind::Keyword(Keyword::Rename) => {
                self.advance();
                let if_exists = self.if_exists()?;
                AlterTypeChange::Rename { if_exists, fields: self.joined(Self::renaming)? }
            }
            _ => return Err(self.fail()),
        };
        Ok(AlterType { if_exists, name, change })
    }

    /// DROP TYPE
    pub(super) fn drop_type(&mut self) -> Parse<DropType> {
        self.advance();
        self.expect(Keyword::Type)?;
        let if_exists = self.if_exists()?;
        Ok(DropType { if_exists, name: self.user_type_name()? })
    }

    /// CREATE INDEX
    pub(super) fn create_index(&mut self) -> Parse<CreateIndex> {
        self.advance();
        let custom = self.eat(Keyword::Custom);
        self.expect(Keyword::Index)?;
        let if_not_exists = self.if_not_exists()?;
        let mut name = None;
        if self.is_name(0) {
            name = Some(self.take_name());
        } else if self.kind(0) == TokenKind::QuestionMark {
            return Err(self.message("Bind variables cannot be used for index names"));
        }
        self.expect(Keyword::On)?;
        let table = self.table_name()?;
        self.expect_sign("(")?;
        let mut targets = Vec::new();
        if !self.at_sign(")") && self.starts_index_target() {
            // A local index names the partition key in front of the column it covers.
            if self.at_sign("(") {
                targets.push(IndexTarget::PartitionKey(self.column_list()?));
                while self.eat_sign(",") {
                    targets.push(self.index_target()?);
                }
            } else {
                targets = self.separated(Self::index_target)?;
            }
        }
        self.expect_sign(")")?;
        let class = if self.eat(Keyword::Using) { Some(self.expect_string()?) } else { None };
        let properties = if self.eat(Keyword::With) { self.properties()? } else { Vec::new() };
        Ok(CreateIndex { custom, if_not_exists, name, table, targets, class, properties })
    }

    fn starts_index_target(&self) -> bool {
        self.is_column_name(0)
            || matches!(
                self.kind(0),
                TokenKind::Keyword(Keyword::Entries | Keyword::Full) | TokenKind::Sign("(")
            )
    }

    fn index_target(&mut self) -> Parse<IndexTarget> {
        if matches!(self.kind(0), TokenKind::Keyword(Keyword::Values | Keyword::Keys)) {
            // These may also be columns.
            self.look(1);
            if !matches!(self.kind(1), TokenKind::Sign("(" | "," | ")")) {
                return Err(self.fail_ahead(1));
            }
        }
        let of: fn(Ident) -> IndexTarget = match self.kind(0) {
            TokenKind::Keyword(Keyword::Values) if self.kind(1) == TokenKind::Sign("(") => {
                IndexTarget::Values
            }
            TokenKind::Keyword(Keyword::Keys) if self.kind(1) == TokenKind::Sign("(") => IndexTarget::Keys,
            TokenKind::Keyword(Keyword::Entries) => IndexTarget::Entries,
            TokenKind::Keyword(Keyword::Full) => IndexTarget::Full,
            _ => return self.column_name().map(IndexTarget::Column),
        };
        self.advance();
        self.expect_sign("(")?;
        let column = self.column_name()?;
        self.expect_sign(")")?;
        Ok(of(column))
    }

    /// DROP INDEX
    pub(super) fn drop_index(&mut self) -> Parse<DropIndex> {
        self.advance();
        self.expect(Keyword::Index)?;
        let if_exists = self.if_exists()?;
        Ok(DropIndex { if_exists, name: self.index_name()? })
    }

    /// CREATE FUNCTION; `or_replace` is whether OR REPLACE is in between.
    pub(super) fn create_function(&mut self, or_replace: bool) -> Parse<CreateFunction> {
        self.advance();
        if or_replace {
            self.advance();
            self.advance();
        }
        self.expect(Keyword::Function)?;
        let if_not_exists = self.if_not_exists()?;
        let name = self.function_name()?;
        self.expect_sign("(")?;
        let mut arguments = Vec::new();
        if self.is_name(0) {
            arguments = self.separated(Self::type_field)?;
        }
        self.expect_sign(")")?;
        let called_on_null_input = match self.kind(0) {
            TokenKind::Keyword(Keyword::Called) => true,
            TokenKind::Keyword(Keyword::Returns) => false,
            _ => return Err(self.fail()),
        };
        self.advance();
        if !called_on_null_input {
            self.expect(Keyword::Null)?;
        }
        self.expect(Keyword::On)?;
        self.expect(Keyword::Null)?;
        self.expect(Keyword::Input)?;
        self.expect(Keyword::Returns)?;
        let returns = self.type_name()?;
        self.expect(Keyword::Language)?;
        if self.kind(0) != TokenKind::Word {
            return Err(self.expected("IDENT"));
        }
        let language = self.take_name();
        self.expect(Keyword::As)?;
        let body = self.expect_string()?;
        Ok(CreateFunction {
            or_replace,
            if_not_exists,
            name,
            arguments,
            called_on_null_input,
            returns,
            language,
            body,
        })
    }

    /// DROP FUNCTION
    pub(super) fn drop_function(&mut self) -> Parse<DropFunction> {
        self.advance();
        self.expect(Keyword::Function)?;
        let if_exists = self.if_exists()?;
        let name = self.function_name()?;
        Ok(DropFunction { if_exists, name, argument_types: self.optional_argument_types()? })
    }

    /// CREATE AGGREGATE; `or_replace` is whether OR REPLACE is in between.
    pub(super) fn create_aggregate(&mut self, or_replace: bool) -> Parse<CreateAggregate> {
        self.advance();
        if or_replace {
            self.advance();
            self.advance();
        }
        self.expect(Keyword::Aggregate)?;
        let if_not_exists = self.if_not_exists()?;
        let name = self.function_name()?;
        self.expect_sign("(")?;
        let argument_types = self.argument_types()?;
        self.expect(Keyword::Sfunc)?;
        let state_function = self.bare_function_name()?;
        self.expect(Keyword::Stype)?;
        let state_type = self.type_name()?;
        let mut reduce_function = None;
        if self.eat_word("reducefunc") {
            reduce_function = Some(self.bare_function_name()?);
        }
        let mut final_function = None;
        if self.eat(Keyword::Finalfunc) {
            final_function = Some(self.bare_function_name()?);
        }
        let initial_condition = if self.eat(Keyword::Initcond) { Some(self.term()?) } else { None };
        Ok(CreateAggregate {
            or_replace,
            if_not_exists,
            name,
            argument_types,
            state_function,
            state_type,
            reduce_function,
            final_function,
            initial_condition,
        })
    }

    /// DROP AGGREGATE
    pub(super) fn drop_aggregate(&mut self) -> Parse<DropAggregate> {
        self.advance();
        self.expect(Keyword::Aggregate)?;
        let if_exists = self.if_exists()?;
        let name = self.function_name()?;
        Ok(DropAggregate { if_exists, name, argument_types: self.optional_argument_types()? })
    }

    fn optional_argument_types(&mut self) -> Parse<Option<Vec<TypeName>>> {
        if self.eat_sign("(") { self.argument_types().map(Some) } else { Ok(None) }
    }

    /// `type, type … )`, possibly none; the opening parenthesis is consumed.
    pub(super) fn argument_types(&mut self) -> Parse<Vec<TypeName>> {
        let mut types = Vec::new();
        let starts = self.is_name(0) || self.at(Keyword::Set) || self.is_constant();
        if !self.at_sign(")") && starts {
            types = self.separated(Self::type_name)?;
        }
        self.expect_sign(")")?;
        Ok(types)
    }

    /// CREATE TRIGGER
    pub(super) fn create_trigger(&mut self) -> Parse<CreateTrigger> {
        self.advance();
        self.expect(Keyword::Trigger)?;
        let if_not_exists = self.if_not_exists()?;
        let name = self.name()?;
        self.expect(Keyword::On)?;
        let table = self.table_name()?;
        self.expect(Keyword::Using)?;
        Ok(CreateTrigger { if_not_exists, name, table, class: self.expect_string()? })
    }

    /// DROP TRIGGER
    pub(super) fn drop_trigger(&mut self) -> Parse<DropTrigger> {
        self.advance();
        self.expect(Keyword::Trigger)?;
        let if_exists = self.if_exists()?;
        let name = self.name()?;
        self.expect(Keyword::On)?;
        Ok(DropTrigger { if_exists, name, table: self.table_name()? })
    }
}

/// A map value that a property may have: a literal, or a list of literals.
fn property_item(value: &Term) -> Option<PropertyItem> {
    match value {
        Term::Constant(constant) if constant.kind != ConstantKind::Null => {
            Some(PropertyItem::Constant(constant.clone()))
        }
        Term::List(elements) => {
            let constants = elements.iter().map(|element| match element {
                Term::Constant(constant) if constant.kind != ConstantKind::Null => Some(constant.clone()),
                _ => None,
            });
            constants.collect::<Option<Vec<_>>>().map(PropertyItem::List)
        }
        _ => None,
    }
}

/// A refused value as messages show it.
fn shown_value(value: &Term) -> String {
    if value.is_null() { "NULL".to_owned() } else { value.to_string() }
}

/// The addition to an error if the refused term is a bind marker.
fn marker_note(term: &Term) -> &'static str {
    match term {
        Term::BindMarker(_) => " (bind variables are not supported in DDL queries)",
        _ => "",
    }
}
