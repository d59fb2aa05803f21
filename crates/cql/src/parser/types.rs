//! Type names.
//!
//! Words like `map` and `frozen` are types only before `<`; otherwise they name a user-defined type.
//! Used by `ddl`, and by `term` and `select` for casts and type hints.

use super::{Parse, Parser};
use crate::ast::{NativeType, TypeName};
use crate::keyword::Keyword;
use crate::lexer::TokenKind;

impl Parser<'_> {
    /// Any type.
    pub(super) fn type_name(&mut self) -> Parse<TypeName> {
        self.nested(Self::type_name_here)
    }

    fn type_name_here(&mut self) -> Parse<TypeName> {
        if matches!(self.kind(0), TokenKind::String | TokenKind::DollarString) {
            return Ok(TypeName::Custom(self.take_string()));
        }
        let qualified = self.kind(1) == TokenKind::Sign(".");
        if let Some(native) = self.native_at(0).filter(|_| !qualified) {
            self.check_type_end()?;
            self.advance();
            return Ok(TypeName::Native(native));
        }
        if self.at(Keyword::Set) {
            self.advance();
            let element = self.one_argument()?;
            return Ok(TypeName::Set(Box::new(element)));
        }
        if self.kind(1) == TokenKind::Sign("<") {
            match self.kind(0) {
                TokenKind::Keyword(Keyword::List) => {
                    self.advance();
                    return Ok(TypeName::List(Box::new(self.one_argument()?)));
                }
                TokenKind::Keyword(Keyword::Frozen) => {
                    self.advance();
                    let inner = self.one_argument()?;
                    return self.frozen(inner);
                }
                TokenKind::Keyword(Keyword::Map) => {
                    self.advance();
                    self.expect_sign("<")?;
                    let key = self.type_name()?;
                    self.expect_sign(",")?;
                    let value = self.type_name()?;
                    self.expect_sign(">")?;
                    return Ok(TypeName::Map(Box::new(key), Box::new(value)));
                }
                TokenKind::Keyword(Keyword::Tuple) => {
                    self.advance();
                    self.expect_sign("<")?;
                    let elements = self.separated(Self::type_name)?;
                    self.expect_sign(">")?;
                    return Ok(TypeName::Tuple(elements));
                }
                TokenKind::Keyword(Keyword::Vector) => return self.vector(),
                _ => {}
            }
        }
        if !self.is_name(0) {
            return Err(self.fail());
        }
        let constructor = matches!(
            self.kind(0),
            TokenKind::Keyword(
                Keyword::List | Keyword::Frozen | Keyword::Map | Keyword::Tuple | Keyword::Vector
            )
        );
        if constructor && !qualified {
            self.check_type_end()?;
        }
        self.user_type_name().map(TypeName::User)
    }

    /// Fails if the token after the next one, a type of one word, cannot follow a type anywhere in the
    /// language. The grammar looks at that token before it decides which kind of type this is.
    fn check_type_end(&mut self) -> Parse<()> {
        self.look(1);
        let follows = match self.kind(1) {
            TokenKind::End => true,
            TokenKind::Sign(sign) => matches!(sign, ";" | ")" | "," | ">"),
            TokenKind::Keyword(keyword) => matches!(
                keyword,
                Keyword::Static
                    | Keyword::Masked
                    | Keyword::Primary
                    | Keyword::Language
                    | Keyword::Finalfunc
                    | Keyword::Initcond
                    | Keyword::Ttl
            ),
            TokenKind::Word => self.at_word(1, "reducefunc"),
            _ => false,
        };
        if !follows {
            return Err(self.fail_ahead(1));
        }
        self.look(2);
        Ok(())
    }

    /// `< type >`
    fn one_argument(&mut self) -> Parse<TypeName> {
        self.expect_sign("<")?;
        let argument = self.type_name()?;
        self.expect_sign(">")?;
        Ok(argument)
    }

    fn frozen(&mut self, inner: TypeName) -> Parse<TypeName> {
        if matches!(inner, TypeName::Native(_) | TypeName::Custom(_)) {
            let refusal = "frozen<> is only allowed on collections, tuples, and user-defined types";
            return Err(self.message(format!("{refusal} (got {inner})")));
        }
        Ok(TypeName::Frozen(Box::new(inner)))
    }

    fn vector(&mut self) -> Parse<TypeName> {
        self.advance();
        self.expect_sign("<")?;
        let element = self.type_name()?;
        self.expect_sign(",")?;
        if self.kind(0) != TokenKind::Integer {
            return Err(self.expected("INTEGER"));
        }
        let Ok(dimension) = self.slice(0).parse::<i32>() else {
            return Err(self.message(format!("Invalid vector dimension {}", self.slice(0))));
        };
        self.advance();
        self.expect_sign(">")?;
        Ok(TypeName::Vector(Box::new(element), dimension))
    }

    /// A native type, as in CAST.
    pub(super) fn native_type(&mut self) -> Parse<NativeType> {
        let native = self.native_at(0).ok_or_else(|| self.fail())?;
        self.advance();
        Ok(native)
    }

    /// The native type the token `ahead` names.
    fn native_at(&self, ahead: usize) -> Option<NativeType> {
        let TokenKind::Keyword(keyword) = self.kind(ahead) else {
            return None;
        };
        Some(match keyword {
            Keyword::Ascii => NativeType::Ascii,
            Keyword::Bigint => NativeType::Bigint,
            Keyword::Blob => NativeType::Blob,
            Keyword::Boolean => NativeType::Boolean,
            Keyword::Counter => NativeType::Counter,
            Keyword::Date => NativeType::Date,
            Keyword::Decimal => NativeType::Decimal,
            Keyword::Double => NativeType::Double,
            Keyword::Duration => NativeType::Duration,
            Keyword::Float => NativeType::Float,
            Keyword::Inet => NativeType::Inet,
            Keyword::Int => NativeType::Int,
            Keyword::Smallint => NativeType::Smallint,
            Keyword::Text => NativeType::Text,
            Keyword::Time => NativeType::Time,
            Keyword::Timestamp => NativeType::Timestamp,
            Keyword::Timeuuid => NativeType::Timeuuid,
            Keyword::Tinyint => NativeType::Tinyint,
            Keyword::Uuid => NativeType::Uuid,
            Keyword::Varchar => NativeType::Varchar,
            Keyword::Varint => NativeType::Varint,
            _ => return None,
        })
    }

    /// `'(' type ')'` if it is next and `starts` accepts the tokens after it, to which it would apply;
    /// otherwise nothing is consumed.
    pub(super) fn type_hint(&mut self, starts: impl FnOnce(&Self) -> bool) -> Parse<Option<TypeName>> {
        let looked = self.looked;
        let hint = self.attempt(|parser| {
            parser.advance();
            let type_name = parser.type_name()?;
            parser.expect_sign(")")?;
            if starts(parser) { Ok(type_name) } else { Err(parser.fail()) }
        })?;
        if hint.is_none() {
            self.looked = looked;
        }
        Ok(hint)
    }
}
