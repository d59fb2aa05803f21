//! SELECT and the expressions it selects.
//!
//! Names are columns here, and a parenthesis groups. Leaned on by `statement` and by materialised views in `table`.

use super::{Parse, Parser};
use crate::ast::{
    Attribute, CellFunction, Direction, Ordering, OrderingExpression, Select, SelectSource, Selectable,
    Selection, Selector,
};
use crate::keyword::Keyword;
use crate::lexer::TokenKind;

impl Parser<'_> {
    /// SELECT; the keyword is next.
    pub(super) fn select(&mut self) -> Parse<Select> {
        self.expect(Keyword::Select)?;
        let json = self.eat_before_selection(Keyword::Json);
        let distinct = self.eat_before_selection(Keyword::Distinct);
        let selection = self.selection()?;
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

    /// Takes JSON or DISTINCT when a selection follows it; otherwise it is a column of that name.
    fn eat_before_selection(&mut self, keyword: Keyword) -> bool {
        if !self.at(keyword) {
            return false;
        }
        self.look(1);
        let selection_follows = match self.kind(1) {
            TokenKind::Sign("*" | "-" | "(" | "[" | "{" | ":") | TokenKind::QuestionMark => true,
            TokenKind::Keyword(Keyword::Null | Keyword::Nan | Keyword::Infinity | Keyword::Token) => true,
            TokenKind::Keyword(Keyword::As) => !self.is_name(2) || self.at_alias_list_end(3),
            TokenKind::Sign(_) | TokenKind::End => false,
            TokenKind::Keyword(_) | TokenKind::Word | TokenKind::QuotedName => self.is_name(1),
            _ => true,
        };
        let grouped = matches!(self.kind(1), TokenKind::Sign("(" | "[")) && keyword == Keyword::Distinct;
        if selection_follows || grouped {
            self.advance();
            return true;
        }
        false
    }

    /// Whether `AS` before the token `ahead` was a column's name rather than the keyword.
    fn at_alias_list_end(&self, ahead: usize) -> bool {
        !matches!(self.kind(ahead), TokenKind::Sign(",") | TokenKind::Keyword(Keyword::From) | TokenKind::End)
    }

    fn select_source(&mut self) -> Parse<SelectSource> {
        if self.at_word(0, "mutation_fragments") && self.kind(1) == TokenKind::Sign("(") {
            self.advance();
            self.advance();
            let table = self.table_name()?;
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
            return Ok(Selectable::Negate(Box::new(self.simple_selectable()?)));
        }
        let decision = self.next;
        let receiver = self.simple_selectable()?;
        self.accessed(receiver, decision)
    }

    /// `receiver` with the field, element and slice accesses that follow it.
    fn accessed(&mut self, mut receiver: Selectable, decision: usize) -> Parse<Selectable> {
        loop {
            if self.eat_sign(".") {
                self.chain()?;
                if !self.is_name(0) {
                    return Err(self.fail_since(decision));
                }
                receiver = Selectable::Field { receiver: Box::new(receiver), field: self.take_name() };
            } else if self.eat_sign("[") {
                self.chain()?;
                receiver = self.element_or_slice(receiver)?;
            } else {
                return Ok(receiver);
            }
        }
    }

    fn element_or_slice(&mut self, receiver: Selectable) -> Parse<Selectable> {
        let receiver = Box::new(receiver);
        if self.eat_sign("..") {
            let to = self.term()?;
            self.expect_sign("]")?;
            return Ok(Selectable::Slice { receiver, from: None, to: Some(to) });
        }
        let key = self.term()?;
        if self.eat_sign("..") {
            let to = if self.at_sign("]") { None } else { Some(self.term()?) };
            self.expect_sign("]")?;
            return Ok(Selectable::Slice { receiver, from: Some(key), to });
        }
        self.expect_sign("]")?;
        Ok(Selectable::Element { receiver, key })
    }

    /// An expression without operators and accesses around it.
    fn simple_selectable(&mut self) -> Parse<Selectable> {
        self.nested(|parser| match parser.kind(0) {
            TokenKind::Sign("[") => {
                parser.advance();
                if parser.eat_sign("]") {
                    return Ok(Selectable::List(Vec::new()));
                }
                let elements = parser.separated(Self::selectable)?;
                parser.expect_sign("]")?;
                Ok(Selectable::List(elements))
            }
            TokenKind::Sign("{") => parser.selectable_braces(),
            TokenKind::Sign("(") => parser.parenthesised_selectable(),
            TokenKind::Sign(":") | TokenKind::QuestionMark => {
                parser.bind_marker().map(Selectable::BindMarker)
            }
            _ => match parser.constant_or_null() {
                Some(constant) => Ok(Selectable::Constant(constant)),
                None => parser.column_or_function(),
            },
        })
    }

    /// Whether a [`Self::simple_selectable`] may start at the next token.
    fn starts_simple_selectable(&self) -> bool {
        match self.kind(0) {
            TokenKind::Sign("[" | "{" | "(" | ":") | TokenKind::QuestionMark => true,
            TokenKind::Keyword(Keyword::Null | Keyword::Token) => true,
            TokenKind::Keyword(Keyword::As) => !self.is_name(1) || self.at_alias_list_end(2),
            _ => self.is_constant() || self.is_name(0),
        }
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
        if let Some(type_name) = self.type_hint(Self::starts_simple_selectable) {
            let operand = Box::new(self.simple_selectable()?);
            return Ok(Selectable::TypeHint { type_name, operand });
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
            if self.at(Keyword::Count)
                && self.kind(2) == TokenKind::Sign("*")
                && self.kind(3) == TokenKind::Sign(")")
            {
                (0..4).for_each(|_| self.advance());
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
            if self.eat_sign(")") {
                return Ok(Selectable::Function { name, arguments: Vec::new() });
            }
            let arguments = self.separated(Self::selectable)?;
            self.expect_sign(")")?;
            return Ok(Selectable::Function { name, arguments });
        }
        if self.at(Keyword::Token) {
            return Err(self.fail_ahead(1));
        }
        if !self.is_name(0) {
            return Err(self.fail());
        }
        self.look(1);
        if !self.follows_selected_column() {
            return Err(self.fail_ahead(1));
        }
        Ok(Selectable::Column(self.take_name()))
    }

    /// Whether the token after the next one follows a selected column anywhere in the language.
    fn follows_selected_column(&self) -> bool {
        match self.kind(1) {
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
            TokenKind::Word => self.at_word(1, "bypass"),
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
        let decision = self.next;
        let column = Selectable::Column(self.take_name());
        let operand = Box::new(self.accessed(column, decision)?);
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
