//! SELECT and the expressions it selects.
//!
//! Names are columns here, and a parenthesis groups. Used by `statement` and by materialised views in
//! `table`.

use super::{Parse, Parser};
use crate::ast::{
    Attribute, CellFunction, Direction, Ident, Ordering, OrderingExpression, Select, SelectSource,
    Selectable, Selection, Selector, Term,
};
use crate::keyword::Keyword;
use crate::lexer::TokenKind;

/// One access to a part of a value.
enum Access {
    Field(Ident),
    Element(Term),
    Slice(Option<Term>, Option<Term>),
}

impl Parser<'_> {
    /// SELECT; the keyword is next.
    pub(super) fn select(&mut self) -> Parse<Select> {
        self.expect(Keyword::Select)?;
        let (json, (distinct, selection)) = self.prefixed(Keyword::Json, Self::distinct_selection)?;
        if self.has_no_source(&selection) {
            return Ok(Select {
                json,
                distinct,
                selection,
                source: SelectSource::Nothing,
                where_clause: None,
                group_by: Vec::new(),
                order_by: Vec::new(),
                per_partition_limit: None,
                limit: None,
                allow_filtering: false,
                bypass_cache: false,
                attributes: Vec::new(),
            });
        }
        self.expect(Keyword::From)?;
        let source = self.select_source()?;
        let where_clause = if self.eat(Keyword::Where) { Some(self.where_clause()?) } else { None };
        let mut group_by = Vec::new();
        if self.eat(Keyword::Group) {
            self.expect(Keyword::By)?;
            group_by = self.separated(Self::selectable)?;
        }
        let mut order_by = Vec::new();
        if self.eat(Keyword::Order) {
            self.expect(Keyword::By)?;
            order_by = self.separated(Self::ordering)?;
        }
        let mut per_partition_limit = None;
        if self.eat(Keyword::Per) {
            self.expect(Keyword::Partition)?;
            self.expect(Keyword::Limit)?;
            per_partition_limit = Some(self.integer_or_marker()?);
        }
        let limit = if self.eat(Keyword::Limit) { Some(self.integer_or_marker()?) } else { None };
        let allow_filtering = self.eat(Keyword::Allow);
        if allow_filtering {
            self.expect(Keyword::Filtering)?;
        }
        let bypass_cache = self.eat_word("bypass");
        if bypass_cache {
            self.expect_word("cache")?;
        }
        let attributes = self.using_clause(|parser| parser.timeout_or_service_level())?;
        Ok(Select {
            json,
            distinct,
            selection,
            source,
            where_clause,
            group_by,
            order_by,
            per_partition_limit,
            limit,
            allow_filtering,
            bypass_cache,
            attributes,
        })
    }

    /// Whether the statement ends here and selects nothing that needs a table. If it names a column, FROM is
    /// missing.
    fn has_no_source(&self, selection: &Selection) -> bool {
        matches!(self.kind(0), TokenKind::End | TokenKind::Sign(";"))
            && match selection {
                Selection::Wildcard => false,
                Selection::Selectors(selectors) => {
                    !selectors.iter().any(|selector| selector.expression.names_column())
                }
            }
    }

    /// `TIMEOUT d` or `SERVICE LEVEL name`, all that a SELECT's USING takes.
    fn timeout_or_service_level(&mut self) -> Parse<Attribute> {
        match self.timeout()? {
            Some(timeout) => Ok(timeout),
            None => {
                self.expect_service_level()?;
                Ok(Attribute::ServiceLevel(self.name()?))
            }
        }
    }

    fn distinct_selection(&mut self) -> Parse<(bool, Selection)> {
        self.prefixed(Keyword::Distinct, Self::selection)
    }

    /// The result of `rule`, and whether `keyword` stands before it. JSON and DISTINCT may also be names of
    /// columns, so they count as keywords only if a whole selection follows.
    fn prefixed<T>(&mut self, keyword: Keyword, rule: impl Fn(&mut Self) -> Parse<T>) -> Parse<(bool, T)> {
        if self.at(keyword) {
            let attempt = self.attempt(|parser| {
                parser.advance();
                rule(parser)
            })?;
            if let Some(value) = attempt {
                return Ok((true, value));
            }
        }
        Ok((false, rule(self)?))
    }

    fn select_source(&mut self) -> Parse<SelectSource> {
        if self.at_word(0, "mutation_fragments") && self.kind(1) == TokenKind::Sign("(") {
            self.advance();
            self.advance();
            let table = self.table_name_before(TokenKind::Sign(")"))?;
            self.expect_sign(")")?;
            return Ok(SelectSource::MutationFragments(table));
        }
        self.table_name().map(SelectSource::Table)
    }

    /// `*` or selectors.
    pub(super) fn selection(&mut self) -> Parse<Selection> {
        if self.eat_sign("*") {
            return Ok(Selection::Wildcard);
        }
        self.separated(Self::selector).map(Selection::Selectors)
    }

    fn selector(&mut self) -> Parse<Selector> {
        let expression = self.selectable()?;
        let alias = if self.eat(Keyword::As) { Some(self.name()?) } else { None };
        Ok(Selector { expression, alias })
    }

    /// Any selected expression.
    fn selectable(&mut self) -> Parse<Selectable> {
        self.nested(|parser| {
            let mut left = parser.selectable_product()?;
            while let Some(operator) = parser.operator_at(false) {
                parser.chain()?;
                parser.advance();
                let right = parser.selectable_product()?;
                left = Selectable::Arithmetic { operator, left: Box::new(left), right: Box::new(right) };
            }
            Ok(left)
        })
    }

    fn selectable_product(&mut self) -> Parse<Selectable> {
        let mut left = self.selectable_group()?;
        while let Some(operator) = self.operator_at(true) {
            self.chain()?;
            self.advance();
            let right = self.selectable_group()?;
            left = Selectable::Arithmetic { operator, left: Box::new(left), right: Box::new(right) };
        }
        Ok(left)
    }

    fn selectable_group(&mut self) -> Parse<Selectable> {
        if self.eat_sign("-") {
            let operand = self.nested(Self::selectable_group)?;
            return Ok(Selectable::Negate(Box::new(operand)));
        }
        let receiver = self.simple_selectable()?;
        self.accessed(receiver)
    }

    /// `receiver` with the field, element and slice accesses after it. If they are malformed, only
    /// `receiver`, and the caller then refuses the text after it.
    fn accessed(&mut self, receiver: Selectable) -> Parse<Selectable> {
        let accesses = self.attempt(|parser| {
            let accesses = parser.accesses()?;
            // The grammar's trial ends by checking that the next token may follow an access.
            if !accesses.is_empty() && !parser.follows_selected(0) {
                return Err(parser.fail());
            }
            Ok(accesses)
        })?;
        Ok(apply(receiver, accesses.unwrap_or_default()))
    }

    fn accesses(&mut self) -> Parse<Vec<Access>> {
        let mut accesses = Vec::new();
        while matches!(self.kind(0), TokenKind::Sign("." | "[")) {
            self.chain()?;
            accesses.push(self.access()?);
        }
        Ok(accesses)
    }

    fn access(&mut self) -> Parse<Access> {
        if self.eat_sign(".") {
            return self.name().map(Access::Field);
        }
        self.expect_sign("[")?;
        let access = self.element_or_slice()?;
        self.expect_sign("]")?;
        Ok(access)
    }

    fn element_or_slice(&mut self) -> Parse<Access> {
        if self.eat_sign("..") {
            return self.term().map(|to| Access::Slice(None, Some(to)));
        }
        let key = self.term()?;
        if !self.eat_sign("..") {
            return Ok(Access::Element(key));
        }
        let to = if self.at_sign("]") { None } else { Some(self.term()?) };
        Ok(Access::Slice(Some(key), to))
    }

    /// An expression without operators and accesses around it.
    fn simple_selectable(&mut self) -> Parse<Selectable> {
        self.nested(|parser| match parser.kind(0) {
            TokenKind::Sign("[") => {
                parser.advance();
                parser.selectable_list_tail("]").map(Selectable::List)
            }
            TokenKind::Sign("{") => parser.selectable_braces(),
            TokenKind::Sign("(") => parser.parenthesised_selectable(),
            TokenKind::QuestionMark if !parser.follows_selected(1) => Err(parser.fail_ahead(1)),
            TokenKind::Sign(":") | TokenKind::QuestionMark => {
                parser.bind_marker().map(Selectable::BindMarker)
            }
            _ => match parser.constant_or_null() {
                Some(constant) => {
                    parser.look(1);
                    Ok(Selectable::Constant(constant))
                }
                None => parser.column_or_function(),
            },
        })
    }

    /// `item, item … close`, possibly empty; the opening sign is consumed.
    fn selectable_list_tail(&mut self, close: &'static str) -> Parse<Vec<Selectable>> {
        let starts = match self.kind(0) {
            TokenKind::Sign("-" | "[" | "{" | "(" | ":") | TokenKind::QuestionMark => true,
            TokenKind::Keyword(Keyword::Null | Keyword::Token) => true,
            _ => self.is_constant() || self.is_name(0),
        };
        let mut items = Vec::new();
        if starts {
            items = self.separated(Self::selectable)?;
        }
        self.expect_sign(close)?;
        Ok(items)
    }

    fn selectable_braces(&mut self) -> Parse<Selectable> {
        self.advance();
        if self.eat_sign("}") {
            return Ok(Selectable::MapOrUserType(Vec::new()));
        }
        let first = self.selectable()?;
        if self.eat_sign(":") {
            let mut entries = vec![(first, self.selectable()?)];
            while self.eat_sign(",") {
                let key = self.selectable()?;
                self.expect_sign(":")?;
                entries.push((key, self.selectable()?));
            }
            self.expect_sign("}")?;
            return Ok(Selectable::MapOrUserType(entries));
        }
        if !self.at_sign(",") && !self.at_sign("}") {
            return Err(self.fail());
        }
        let mut elements = vec![first];
        while self.eat_sign(",") {
            elements.push(self.selectable()?);
        }
        self.expect_sign("}")?;
        Ok(Selectable::Set(elements))
    }

    fn parenthesised_selectable(&mut self) -> Parse<Selectable> {
        let hint = self.attempt(|parser| {
            parser.advance();
            let type_name = parser.type_name()?;
            parser.expect_sign(")")?;
            let operand = Box::new(parser.simple_selectable()?);
            Ok(Selectable::TypeHint { type_name, operand })
        })?;
        if let Some(hint) = hint {
            return Ok(hint);
        }
        self.expect_sign("(")?;
        let elements = self.separated(Self::selectable)?;
        self.expect_sign(")")?;
        Ok(Selectable::Tuple(elements))
    }

    fn column_or_function(&mut self) -> Parse<Selectable> {
        let opens = self.kind(1) == TokenKind::Sign("(");
        if opens {
            let cell = match self.kind(0) {
                TokenKind::Keyword(Keyword::Writetime) => Some(CellFunction::WriteTime),
                TokenKind::Keyword(Keyword::Maxwritetime) => Some(CellFunction::MaxWriteTime),
                TokenKind::Keyword(Keyword::Ttl) => Some(CellFunction::TimeToLive),
                _ => None,
            };
            if let Some(function) = cell {
                return self.cell_function(function);
            }
            if self.at(Keyword::Cast) {
                return self.cast_selectable();
            }
            if self.at(Keyword::Count) && self.kind(2) == TokenKind::Sign("*") {
                (0..3).for_each(|_| self.advance());
                self.expect_sign(")")?;
                return Ok(Selectable::CountRows);
            }
        }
        let calls = opens && self.is_function_name(0)
            || self.is_name(0)
                && self.kind(1) == TokenKind::Sign(".")
                && self.is_function_name(2)
                && self.kind(3) == TokenKind::Sign("(");
        if calls {
            let name = self.function_name()?;
            self.expect_sign("(")?;
            let arguments = self.selectable_list_tail(")")?;
            return Ok(Selectable::Function { name, arguments });
        }
        if self.eat(Keyword::Token) {
            return Err(self.expected("'('"));
        }
        if !self.is_name(0) {
            return Err(self.fail());
        }
        self.look(1);
        if self.kind(1) == TokenKind::Sign(".") && !self.is_name(2) {
            return Err(self.fail_ahead(2));
        }
        if !self.follows_selected(1) {
            return Err(self.fail_ahead(1));
        }
        self.look(2);
        Ok(Selectable::Column(self.take_name()))
    }

    /// Whether the token `ahead` follows a selected value anywhere in the language.
    fn follows_selected(&self, ahead: usize) -> bool {
        match self.kind(ahead) {
            TokenKind::End => true,
            TokenKind::Sign(sign) => {
                matches!(sign, "." | "[" | "]" | ")" | "}" | "," | ":" | ";" | "+" | "-" | "*" | "/" | "%")
            }
            TokenKind::Keyword(keyword) => matches!(
                keyword,
                Keyword::As
                    | Keyword::From
                    | Keyword::Order
                    | Keyword::Per
                    | Keyword::Limit
                    | Keyword::Allow
                    | Keyword::Using
            ),
            TokenKind::Word => self.at_word(ahead, "bypass"),
            _ => false,
        }
    }

    /// `WRITETIME(column…)` and its like.
    fn cell_function(&mut self, function: CellFunction) -> Parse<Selectable> {
        self.advance();
        self.expect_sign("(")?;
        if !self.is_name(0) {
            return Err(self.fail());
        }
        let column = Selectable::Column(self.take_name());
        let operand = Box::new(apply(column, self.accesses()?));
        self.expect_sign(")")?;
        Ok(Selectable::Cell { function, operand })
    }

    fn cast_selectable(&mut self) -> Parse<Selectable> {
        self.advance();
        self.expect_sign("(")?;
        let operand = Box::new(self.selectable()?);
        self.expect(Keyword::As)?;
        let target = self.native_type()?;
        self.expect_sign(")")?;
        Ok(Selectable::Cast { operand, target })
    }

    fn ordering(&mut self) -> Parse<Ordering> {
        if self.starts_column_function() {
            let by = OrderingExpression::Function(self.column_function()?);
            return Ok(Ordering { by, direction: self.direction() });
        }
        let column = self.column_name()?;
        let by = if self.eat(Keyword::Ann) {
            self.expect(Keyword::Of)?;
            OrderingExpression::Ann { column, target: self.term()? }
        } else {
            OrderingExpression::Column(column)
        };
        Ok(Ordering { by, direction: self.direction() })
    }

    /// `ASC`, `DESC` or nothing.
    fn direction(&mut self) -> Direction {
        if self.eat(Keyword::Desc) {
            return Direction::Descending;
        }
        self.eat(Keyword::Asc);
        Direction::Ascending
    }
}

/// `receiver` with `accesses` applied to it, first to last.
fn apply(receiver: Selectable, accesses: Vec<Access>) -> Selectable {
    accesses.into_iter().fold(receiver, |receiver, access| {
        let receiver = Box::new(receiver);
        match access {
            Access::Field(field) => Selectable::Field { receiver, field },
            Access::Element(key) => Selectable::Element { receiver, key },
            Access::Slice(from, to) => Selectable::Slice { receiver, from, to },
        }
    })
}
