//! Values outside selections: constants, markers, literals, calls, arithmetic.
//!
//! Used by `modify`, `relation`, `ddl`, and by `select` for element keys.

use super::{Parse, Parser};
use crate::ast::{ArithmeticOperator, Constant, ConstantKind, FunctionCall, Term};
use crate::keyword::Keyword;
use crate::lexer::TokenKind;

impl Parser<'_> {
    /// Any value.
    pub(super) fn term(&mut self) -> Parse<Term> {
        self.term_before(|_| false)
    }

    /// A value, up to an additive operator if `ends` reports that no value follows the operator.
    pub(super) fn term_before(&mut self, ends: impl Fn(&Self) -> bool) -> Parse<Term> {
        self.nested(|parser| {
            let mut left = parser.term_product()?;
            while let Some(operator) = parser.operator_at(false) {
                if ends(parser) {
                    break;
                }
                parser.chain()?;
                parser.advance();
                let right = parser.term_product()?;
                left = Term::Arithmetic { operator, left: Box::new(left), right: Box::new(right) };
            }
            Ok(left)
        })
    }

    fn term_product(&mut self) -> Parse<Term> {
        let mut left = self.term_group()?;
        while let Some(operator) = self.operator_at(true) {
            self.chain()?;
            self.advance();
            let right = self.term_group()?;
            left = Term::Arithmetic { operator, left: Box::new(left), right: Box::new(right) };
        }
        if !self.follows_term() {
            return Err(self.fail());
        }
        self.look(1);
        Ok(left)
    }

    /// Whether the next token can follow a value anywhere in the language. The grammar checks that before it
    /// checks which token is allowed here.
    fn follows_term(&self) -> bool {
        self.ends_term(0)
    }

    /// Whether the token behind the next one, a marker, can follow a value without operators.
    fn follows_marker(&self) -> bool {
        matches!(self.kind(1), TokenKind::Sign("*" | "/" | "%") | TokenKind::Keyword(Keyword::As))
            || self.ends_term(1)
    }

    fn ends_term(&self, ahead: usize) -> bool {
        match self.kind(ahead) {
            TokenKind::End => true,
            TokenKind::Sign(sign) => matches!(sign, ";" | ")" | "]" | "}" | "," | ":" | ".." | "+" | "-"),
            TokenKind::Keyword(keyword) => matches!(
                keyword,
                Keyword::Allow
                    | Keyword::And
                    | Keyword::Apply
                    | Keyword::Asc
                    | Keyword::Delete
                    | Keyword::Desc
                    | Keyword::Group
                    | Keyword::If
                    | Keyword::Insert
                    | Keyword::Limit
                    | Keyword::Order
                    | Keyword::Per
                    | Keyword::Primary
                    | Keyword::Update
                    | Keyword::Using
                    | Keyword::Where
            ),
            TokenKind::Word => self.at_word(ahead, "bypass"),
            _ => false,
        }
    }

    /// The arithmetic operator that is next, if it is of the asked precedence.
    pub(super) fn operator_at(&self, multiplicative: bool) -> Option<ArithmeticOperator> {
        let operator = match self.kind(0) {
            TokenKind::Sign("+") => ArithmeticOperator::Add,
            TokenKind::Sign("-") => ArithmeticOperator::Subtract,
            TokenKind::Sign("*") => ArithmeticOperator::Multiply,
            TokenKind::Sign("/") => ArithmeticOperator::Divide,
            TokenKind::Sign("%") => ArithmeticOperator::Modulo,
            _ => return None,
        };
        (operator.is_multiplicative() == multiplicative).then_some(operator)
    }

    fn term_group(&mut self) -> Parse<Term> {
        if self.eat_sign("-") {
            return Ok(Term::Negate(Box::new(self.simple_term()?)));
        }
        self.simple_term()
    }

    /// A value without operators around it.
    fn simple_term(&mut self) -> Parse<Term> {
        self.nested(|parser| match parser.kind(0) {
            TokenKind::Sign("[") => {
                parser.advance();
                parser.list_tail("]").map(Term::List)
            }
            TokenKind::Sign("{") => parser.braces(),
            TokenKind::Sign("(") => parser.parenthesised_term(),
            TokenKind::QuestionMark if !parser.follows_marker() => Err(parser.fail_ahead(1)),
            TokenKind::Sign(":") | TokenKind::QuestionMark => parser.bind_marker().map(Term::BindMarker),
            TokenKind::Keyword(Keyword::Cast) if parser.kind(1) == TokenKind::Sign("(") => parser.cast_term(),
            _ => match parser.constant_or_null() {
                Some(constant) => Ok(Term::Constant(constant)),
                None => parser.function_call().map(Term::Function),
            },
        })
    }

    /// Whether a [`Self::simple_term`] may start at the next token.
    fn starts_simple_term(&self) -> bool {
        match self.kind(0) {
            TokenKind::Sign("[" | "{" | "(" | ":") | TokenKind::QuestionMark => true,
            _ if self.is_constant() || self.at(Keyword::Null) => true,
            _ => {
                self.is_function_name(0) && self.kind(1) == TokenKind::Sign("(")
                    || self.is_name(0) && self.kind(1) == TokenKind::Sign(".")
                    || self.at(Keyword::Cast) && self.kind(1) == TokenKind::Sign("(")
            }
        }
    }

    /// Whether a [`Self::term`] may start at the next token, judged by that token alone.
    fn starts_term(&self) -> bool {
        self.starts_simple_term() || self.at_sign("-") || self.is_name(0) || self.is_function_name(0)
    }

    /// `item, item … close`, possibly empty; the opening sign is consumed.
    pub(super) fn list_tail(&mut self, close: &'static str) -> Parse<Vec<Term>> {
        let mut items = Vec::new();
        if self.starts_term() {
            items = self.separated(Self::term)?;
        }
        self.expect_sign(close)?;
        Ok(items)
    }

    /// A set, map or user-type literal.
    fn braces(&mut self) -> Parse<Term> {
        let decision = self.next;
        self.advance();
        if self.eat_sign("}") {
            return Ok(Term::Set(Vec::new()));
        }
        self.look(1);
        if self.is_name(0) && self.kind(1) == TokenKind::Sign(":") {
            let fields = self.separated(|parser| {
                let field = parser.name()?;
                parser.expect_sign(":")?;
                Ok((field, parser.term()?))
            })?;
            self.expect_sign("}")?;
            return Ok(Term::UserType(fields));
        }
        if !self.starts_term() {
            return Err(self.fail_since(decision));
        }
        let first = self.term()?;
        if self.eat_sign(":") {
            let mut entries = vec![(first, self.term()?)];
            while self.eat_sign(",") {
                let key = self.term()?;
                self.expect_sign(":")?;
                entries.push((key, self.term()?));
            }
            self.expect_sign("}")?;
            return Ok(Term::Map(entries));
        }
        let mut elements = vec![first];
        if !self.at_sign(",") && !self.at_sign("}") {
            return Err(self.fail());
        }
        while self.eat_sign(",") {
            elements.push(self.term()?);
        }
        self.expect_sign("}")?;
        Ok(Term::Set(elements))
    }

    /// `{key: value, …}`, possibly empty: the only literal a property accepts.
    pub(super) fn full_map(&mut self) -> Parse<Vec<(Term, Term)>> {
        self.expect_sign("{")?;
        if self.eat_sign("}") {
            return Ok(Vec::new());
        }
        let entries = self.separated(|parser| {
            let key = parser.term()?;
            parser.expect_sign(":")?;
            Ok((key, parser.term()?))
        })?;
        self.expect_sign("}")?;
        Ok(entries)
    }

    /// A type hint and its operand, or a tuple.
    fn parenthesised_term(&mut self) -> Parse<Term> {
        // A string may be a type or a value: `{('a'): f(1)}` is a map, while `('a') :b` is a typed marker.
        let string = matches!(self.kind(1), TokenKind::String | TokenKind::DollarString);
        let starts = |parser: &Self| match string {
            true if parser.at_sign(":") => {
                parser.is_name(1) && !matches!(parser.kind(2), TokenKind::Sign("(" | "."))
            }
            true => parser.starts_simple_term(),
            false => parser.starts_simple_term() || parser.is_name(0),
        };
        if let Some(type_name) = self.type_hint(starts)? {
            let operand = Box::new(self.simple_term()?);
            return Ok(Term::TypeHint { type_name, operand });
        }
        if self.is_name(1) && self.kind(2) == TokenKind::Sign(")") {
            return Err(self.fail_ahead(3));
        }
        let decision = self.next;
        self.advance();
        if !self.starts_term() && !self.at(Keyword::Set) {
            return Err(self.fail_since(decision));
        }
        self.next = decision;
        self.tuple().map(Term::Tuple)
    }

    /// `(a, b, …)`, at least one element.
    pub(super) fn tuple(&mut self) -> Parse<Vec<Term>> {
        self.expect_sign("(")?;
        let elements = self.separated(Self::term)?;
        self.expect_sign(")")?;
        Ok(elements)
    }

    fn cast_term(&mut self) -> Parse<Term> {
        self.advance();
        self.advance();
        let operand = Box::new(self.simple_term()?);
        self.expect(Keyword::As)?;
        let target = self.native_type()?;
        self.expect_sign(")")?;
        Ok(Term::Cast { operand, target })
    }

    /// `[keyspace.]name(arguments)`
    fn function_call(&mut self) -> Parse<FunctionCall> {
        let decision = self.next;
        if self.is_name(0) && self.kind(1) == TokenKind::Sign(".") {
            let qualified = self.is_function_name(2) && self.kind(3) == TokenKind::Sign("(");
            if !qualified {
                let ahead = if self.is_function_name(2) { 3 } else { 2 };
                return Err(self.fail_ahead(ahead));
            }
        } else if !self.is_function_name(0) {
            let ahead = usize::from(self.is_name(0));
            return Err(self.fail_ahead(ahead));
        } else if self.kind(1) != TokenKind::Sign("(") {
            return Err(self.fail_ahead(1));
        }
        let name = self.function_name()?;
        self.expect_sign("(")?;
        if self.eat_sign(")") {
            return Ok(FunctionCall { name, arguments: Vec::new() });
        }
        if !self.starts_term() {
            return Err(self.fail_since(decision));
        }
        let arguments = self.separated(Self::term)?;
        self.expect_sign(")")?;
        Ok(FunctionCall { name, arguments })
    }

    /// Whether the next token is a literal (`null` is not).
    pub(super) fn is_constant(&self) -> bool {
        self.constant_kind().is_some()
    }

    fn constant_kind(&self) -> Option<ConstantKind> {
        Some(match self.kind(0) {
            TokenKind::String | TokenKind::DollarString => ConstantKind::String,
            TokenKind::Integer => ConstantKind::Integer,
            TokenKind::Float | TokenKind::NegativeNan | TokenKind::NegativeInfinity => ConstantKind::Float,
            TokenKind::Keyword(Keyword::Nan | Keyword::Infinity) => ConstantKind::Float,
            TokenKind::Boolean => ConstantKind::Boolean,
            TokenKind::Duration => ConstantKind::Duration,
            TokenKind::Uuid => ConstantKind::Uuid,
            TokenKind::Hex => ConstantKind::Hex,
            _ => return None,
        })
    }

    /// The literal that is next, if one is.
    pub(super) fn constant(&mut self) -> Option<Constant> {
        let kind = self.constant_kind()?;
        if kind == ConstantKind::String {
            return Some(Constant::new(kind, self.take_string()));
        }
        let text = match self.kind(0) {
            TokenKind::Keyword(Keyword::Nan) => "NaN",
            TokenKind::Keyword(Keyword::Infinity) => "Infinity",
            TokenKind::NegativeNan => "-NaN",
            TokenKind::NegativeInfinity => "-Infinity",
            _ => self.slice(0),
        };
        let constant = Constant::new(kind, text);
        self.advance();
        Some(constant)
    }

    /// The literal or `null` that is next, if one is.
    pub(super) fn constant_or_null(&mut self) -> Option<Constant> {
        if self.eat(Keyword::Null) { Some(Constant::null()) } else { self.constant() }
    }

    /// An integer literal or a marker: LIMIT, TTL, TIMESTAMP.
    pub(super) fn integer_or_marker(&mut self) -> Parse<Term> {
        match self.kind(0) {
            TokenKind::Integer => {
                let constant = Constant::new(ConstantKind::Integer, self.slice(0));
                self.advance();
                Ok(Term::Constant(constant))
            }
            _ => self.bind_marker().map(Term::BindMarker),
        }
    }
}
