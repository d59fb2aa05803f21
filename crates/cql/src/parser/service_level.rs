//! Service levels, an extension of ScyllaDB's.
//!
//! None of their words is a keyword of Cassandra's grammar, so all are recognised by their spelling. Used by
//! `statement`, by `auth` for LIST, and by `select` for USING SERVICE LEVEL.

use super::{Parse, Parser};
use crate::ast::{
    AlterServiceLevel, AttachServiceLevel, CreateServiceLevel, DetachServiceLevel, DropServiceLevel,
    ListServiceLevel,
};
use crate::keyword::Keyword;
use crate::lexer::TokenKind;

impl Parser<'_> {
    /// Whether `SERVICE LEVEL` or `SERVICE_LEVEL` is at the token `ahead`.
    pub(super) fn at_service_level(&self, ahead: usize) -> bool {
        self.at_word(ahead, "service_level")
            || self.at_word(ahead, "service") && self.at_word(ahead + 1, "level")
    }

    pub(super) fn expect_service_level(&mut self) -> Parse<()> {
        if self.eat_word("service_level") {
            return Ok(());
        }
        if !self.eat_word("service") {
            return Err(self.fail());
        }
        self.expect_word("level")
    }

    fn expect_service_levels(&mut self) -> Parse<()> {
        if self.eat_word("service_levels") {
            return Ok(());
        }
        self.expect_word("service")?;
        self.expect_word("levels")
    }

    /// CREATE SERVICE LEVEL; `SERVICE` is next.
    pub(super) fn create_service_level(&mut self) -> Parse<CreateServiceLevel> {
        self.expect_service_level()?;
        let if_not_exists = self.if_not_exists()?;
        let name = self.name()?;
        let properties = if self.eat(Keyword::With) { self.properties()? } else { Vec::new() };
        Ok(CreateServiceLevel { if_not_exists, name, properties })
    }

    /// ALTER SERVICE LEVEL; `SERVICE` is next.
    pub(super) fn alter_service_level(&mut self) -> Parse<AlterServiceLevel> {
        self.expect_service_level()?;
        let name = self.name()?;
        self.expect(Keyword::With)?;
        Ok(AlterServiceLevel { name, properties: self.properties()? })
    }

    /// DROP SERVICE LEVEL; `SERVICE` is next.
    pub(super) fn drop_service_level(&mut self) -> Parse<DropServiceLevel> {
        self.expect_service_level()?;
        let if_exists = self.if_exists()?;
        Ok(DropServiceLevel { if_exists, name: self.name()? })
    }

    /// ATTACH SERVICE LEVEL
    pub(super) fn attach_service_level(&mut self) -> Parse<AttachServiceLevel> {
        self.expect_word("attach")?;
        self.expect_service_level()?;
        let name = self.name()?;
        self.expect(Keyword::To)?;
        Ok(AttachServiceLevel { name, role: self.role_name()? })
    }

    /// DETACH SERVICE LEVEL
    pub(super) fn detach_service_level(&mut self) -> Parse<DetachServiceLevel> {
        self.expect_word("detach")?;
        self.expect_service_level()?;
        self.expect(Keyword::From)?;
        Ok(DetachServiceLevel { role: self.role_name()? })
    }

    pub(super) fn lists_service_levels(&self) -> bool {
        let first = if self.kind(1) == TokenKind::Keyword(Keyword::All) { 2 } else { 1 };
        ["service", "service_level", "service_levels", "attached", "effective"]
            .iter()
            .any(|word| self.at_word(first, word))
    }

    /// The rest of a LIST statement.
    pub(super) fn list_service_level(&mut self) -> Parse<ListServiceLevel> {
        if self.eat(Keyword::All) {
            let attached = self.eat_word("attached");
            self.expect_service_levels()?;
            return Ok(if attached { ListServiceLevel::AllAttached } else { ListServiceLevel::All });
        }
        let attached = self.eat_word("attached");
        if attached || self.eat_word("effective") {
            self.expect_service_level()?;
            self.expect(Keyword::Of)?;
            let role = self.role_name()?;
            return Ok(if attached {
                ListServiceLevel::AttachedTo(role)
            } else {
                ListServiceLevel::EffectiveFor(role)
            });
        }
        self.expect_service_level()?;
        self.name().map(ListServiceLevel::One)
    }
}
