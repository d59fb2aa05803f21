//! Identifiers and qualified names.
//!
//! Cassandra's grammar lets most keywords serve as names; which ones depends on the kind of the named thing
//! (`KeywordClass`). Every other file of the parser uses this one.

use super::{Parse, Parser};
use crate::ast::{Ident, QualifiedName};
use crate::error;
use crate::keyword::{Keyword, KeywordClass};
use crate::lexer::TokenKind;

/// Names Cassandra keeps for types of its own future.
const RESERVED_TYPE_NAMES: [&str; 7] =
    ["byte", "complex", "enum", "date", "interval", "macaddr", "bitstring"];

impl Parser<'_> {
    /// Whether the token `ahead` can be a column, table, keyspace, role or option name.
    pub(super) fn is_name(&self, ahead: usize) -> bool {
        match self.kind(ahead) {
            TokenKind::Word | TokenKind::QuotedName => true,
            TokenKind::Keyword(keyword) => keyword.class() != KeywordClass::Reserved,
            _ => false,
        }
    }

    /// Whether the token `ahead` can be a column name; columns may also be named `""`.
    pub(super) fn is_column_name(&self, ahead: usize) -> bool {
        self.kind(ahead) == TokenKind::EmptyQuotedName || self.is_name(ahead)
    }

    /// Whether the token `ahead` can be a function's name.
    pub(super) fn is_function_name(&self, ahead: usize) -> bool {
        match self.kind(ahead) {
            TokenKind::Word | TokenKind::QuotedName => true,
            TokenKind::Keyword(Keyword::Token | Keyword::Count) => true,
            TokenKind::Keyword(keyword) => {
                matches!(keyword.class(), KeywordClass::Basic | KeywordClass::Native)
            }
            _ => false,
        }
    }

    /// Whether the token `ahead` can be a user type's name.
    pub(super) fn is_type_name(&self, ahead: usize) -> bool {
        match self.kind(ahead) {
            TokenKind::Word | TokenKind::QuotedName | TokenKind::Keyword(Keyword::Key) => true,
            TokenKind::Keyword(keyword) => keyword.class() == KeywordClass::Basic,
            _ => false,
        }
    }

    /// Takes the next token as an identifier, whatever it is.
    pub(super) fn take_name(&mut self) -> Ident {
        let slice = self.slice(0);
        let name = match self.kind(0) {
            TokenKind::QuotedName => Ident { name: error::unquote(slice, '"'), quoted: true },
            TokenKind::EmptyQuotedName => Ident { name: String::new(), quoted: true },
            _ => Ident { name: slice.to_ascii_lowercase(), quoted: false },
        };
        self.advance();
        name
    }

    /// A name.
    pub(super) fn name(&mut self) -> Parse<Ident> {
        if self.is_name(0) { Ok(self.take_name()) } else { Err(self.fail()) }
    }

    /// A column's name.
    pub(super) fn column_name(&mut self) -> Parse<Ident> {
        if self.is_column_name(0) { Ok(self.take_name()) } else { Err(self.fail()) }
    }

    /// A name where a bind marker gets a message of its own.
    fn name_not_marker(&mut self, what: &str) -> Parse<Ident> {
        if self.kind(0) == TokenKind::QuestionMark {
            self.advance();
            return Err(self.message(format!("Bind variables cannot be used for {what} names")));
        }
        self.name()
    }

    /// A keyspace's name.
    pub(super) fn keyspace_name(&mut self) -> Parse<Ident> {
        self.name_not_marker("keyspace")
    }

    /// `[keyspace.]table`, also of views.
    ///
    /// The grammar reads the name and one token more before it decides whether a keyspace is there, and
    /// refuses tokens that follow no table name anywhere in the language.
    pub(super) fn table_name(&mut self) -> Parse<QualifiedName> {
        self.qualified_name("table", Self::follows_table_name)
    }

    /// As [`Self::table_name`], but `extra` may follow the name too.
    pub(super) fn table_name_before(&mut self, extra: TokenKind) -> Parse<QualifiedName> {
        self.qualified_name("table", |parser| parser.kind(1) == extra || parser.follows_table_name())
    }

    /// `[keyspace.]index`
    pub(super) fn index_name(&mut self) -> Parse<QualifiedName> {
        self.qualified_name("index", |parser| matches!(parser.kind(1), TokenKind::End | TokenKind::Sign(";")))
    }

    fn qualified_name(&mut self, what: &str, follows: impl FnOnce(&Self) -> bool) -> Parse<QualifiedName> {
        let starts = self.is_name(0) || self.kind(0) == TokenKind::QuestionMark;
        if starts {
            self.look(1);
            if self.kind(1) == TokenKind::Sign(".") {
                let keyspace = self.keyspace_name()?;
                self.advance();
                return Ok(QualifiedName { keyspace: Some(keyspace), name: self.name_not_marker(what)? });
            }
            if !follows(self) {
                return Err(self.fail_ahead(1));
            }
            self.look(2);
        }
        Ok(QualifiedName::bare(self.name_not_marker(what)?))
    }

    /// Whether the token after the next one follows a table name in some statement.
    fn follows_table_name(&self) -> bool {
        match self.kind(1) {
            TokenKind::End | TokenKind::Sign(";" | "(") => true,
            TokenKind::Keyword(keyword) => matches!(
                keyword,
                Keyword::Add
                    | Keyword::Allow
                    | Keyword::Alter
                    | Keyword::As
                    | Keyword::Drop
                    | Keyword::From
                    | Keyword::Group
                    | Keyword::Json
                    | Keyword::Like
                    | Keyword::Limit
                    | Keyword::Norecursive
                    | Keyword::Of
                    | Keyword::Order
                    | Keyword::Per
                    | Keyword::Primary
                    | Keyword::Rename
                    | Keyword::Set
                    | Keyword::To
                    | Keyword::Using
                    | Keyword::Where
                    | Keyword::With
            ),
            TokenKind::Word => self.at_word(1, "bypass"),
            _ => false,
        }
    }

    /// `[keyspace.]type` of a user-defined type.
    pub(super) fn user_type_name(&mut self) -> Parse<QualifiedName> {
        if !self.is_name(0) {
            return Err(self.fail());
        }
        self.look(1);
        if self.kind(1) == TokenKind::Sign(".") {
            let keyspace = self.take_name();
            self.advance();
            return Ok(QualifiedName { keyspace: Some(keyspace), name: self.bare_type_name()? });
        }
        if !self.is_type_name(0) {
            self.advance();
            return Err(self.expected("'.'"));
        }
        Ok(QualifiedName::bare(self.bare_type_name()?))
    }

    fn bare_type_name(&mut self) -> Parse<Ident> {
        if !self.is_type_name(0) {
            return Err(self.fail());
        }
        let name = self.take_name();
        if RESERVED_TYPE_NAMES.contains(&name.as_str()) && !name.quoted {
            return Err(self.message(format!("Invalid (reserved) user type name {}", name.name)));
        }
        Ok(name)
    }

    /// `[keyspace.]function`, also of aggregates.
    pub(super) fn function_name(&mut self) -> Parse<QualifiedName> {
        if !self.is_name(0) {
            return Ok(QualifiedName::bare(self.bare_function_name()?));
        }
        self.look(1);
        if self.kind(1) == TokenKind::Sign(".") {
            let keyspace = self.take_name();
            self.advance();
            return Ok(QualifiedName { keyspace: Some(keyspace), name: self.bare_function_name()? });
        }
        if self.is_name(0) && !self.is_function_name(0) {
            self.advance();
            return Err(self.expected("'.'"));
        }
        let follows = matches!(self.kind(1), TokenKind::End | TokenKind::Sign("(" | ";"))
            || self.kind(1) == TokenKind::Keyword(Keyword::With);
        if !follows {
            return Err(self.fail_ahead(1));
        }
        self.look(2);
        Ok(QualifiedName::bare(self.bare_function_name()?))
    }

    /// A function's name without keyspace.
    pub(super) fn bare_function_name(&mut self) -> Parse<Ident> {
        if self.is_function_name(0) { Ok(self.take_name()) } else { Err(self.fail()) }
    }

    /// A role's name: like any name, or in single quotes with its case kept.
    pub(super) fn role_name(&mut self) -> Parse<Ident> {
        match self.kind(0) {
            TokenKind::String | TokenKind::DollarString => {
                Ok(Ident { name: self.take_string(), quoted: true })
            }
            _ => self.name_not_marker("role"),
        }
    }

    /// A user's or identity's name: a bare word or a string, its case kept either way.
    ///
    /// `refusal` is the message of the error for a name in double quotes.
    pub(super) fn verbatim_name(&mut self, refusal: &'static str) -> Parse<Ident> {
        match self.kind(0) {
            TokenKind::String | TokenKind::DollarString => {
                Ok(Ident { name: self.take_string(), quoted: true })
            }
            TokenKind::Word => {
                let name = self.slice(0).to_owned();
                self.advance();
                Ok(Ident { name, quoted: true })
            }
            TokenKind::QuotedName => Err(self.message(refusal)),
            _ => Err(self.fail()),
        }
    }
}
