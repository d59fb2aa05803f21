//! WHERE clauses and IF conditions.
//!
//! Used by `select`, `modify` and materialised views in `table`.

use super::{Parse, Parser};
use crate::ast::{
    ColumnFunction, ComparisonOperator, Condition, ConditionTarget, ConditionTest, IfClause, InValues,
    Relation, RelationTarget, Term, WhereClause,
};
use crate::keyword::Keyword;
use crate::lexer::TokenKind;

impl Parser<'_> {
    /// The relations behind WHERE.
    pub(super) fn where_clause(&mut self) -> Parse<WhereClause> {
        Ok(WhereClause { relations: self.joined(Self::relation_or_expression)? })
    }

    fn relation_or_expression(&mut self) -> Parse<Relation> {
        if self.kind(0) != TokenKind::ExpressionOpen {
            return self.relation();
        }
        self.advance();
        let index = self.index_in_expression()?;
        self.expect_sign(",")?;
        let value = self.term()?;
        self.expect_sign(")")?;
        Ok(Relation::CustomIndex { index, value })
    }

    fn index_in_expression(&mut self) -> Parse<crate::ast::Ident> {
        if self.kind(0) == TokenKind::QuestionMark {
            return Err(self.message("Bind variables cannot be used for index names"));
        }
        self.name()
    }

    fn relation(&mut self) -> Parse<Relation> {
        self.nested(|parser| {
            if parser.at(Keyword::Token) {
                return parser.token_relation();
            }
            if parser.at_sign("(") {
                return parser.parenthesised_relation();
            }
            // Any other name before a parenthesis is a syntax error, as in Cassandra.
            if parser.at_word(0, "bm25") && parser.starts_column_function() {
                let function = parser.column_function()?;
                let operator = parser.comparison_operator()?;
                let value = parser.term()?;
                return Ok(Relation::Compare { target: RelationTarget::Function(function), operator, value });
            }
            parser.column_relation()
        })
    }

    /// Whether a function over a column starts here.
    pub(super) fn starts_column_function(&self) -> bool {
        self.kind(1) == TokenKind::Sign("(") && self.is_function_name(0) && self.is_name(2)
    }

    /// `name(column, arguments…)`
    pub(super) fn column_function(&mut self) -> Parse<ColumnFunction> {
        let name = self.function_name()?;
        self.expect_sign("(")?;
        let column = self.column_name()?;
        let mut arguments = Vec::new();
        while self.eat_sign(",") {
            arguments.push(self.term()?);
        }
        self.expect_sign(")")?;
        Ok(ColumnFunction { name, column, arguments })
    }

    fn token_relation(&mut self) -> Parse<Relation> {
        self.advance();
        let target = RelationTarget::Token(self.column_list()?);
        if self.at_word(0, "between") {
            return self.between(target);
        }
        let operator = self.comparison_operator()?;
        Ok(Relation::Compare { target, operator, value: self.term()? })
    }

    /// `(a, b, …)`
    pub(super) fn column_list(&mut self) -> Parse<Vec<crate::ast::Ident>> {
        self.expect_sign("(")?;
        let columns = self.separated(Self::column_name)?;
        self.expect_sign(")")?;
        Ok(columns)
    }

    /// `(a, b) op …`, or a relation in parentheses.
    fn parenthesised_relation(&mut self) -> Parse<Relation> {
        let columns = self.is_column_name(1) && matches!(self.kind(2), TokenKind::Sign("," | ")"));
        if !columns {
            let decision = self.next;
            self.advance();
            if !self.is_column_name(0) && !self.at_sign("(") && !self.at(Keyword::Token) {
                return Err(self.fail_since(decision));
            }
            let relation = self.relation()?;
            self.expect_sign(")")?;
            return Ok(relation);
        }
        let target = RelationTarget::Columns(self.column_list()?);
        if self.at_word(0, "between") {
            return self.between(target);
        }
        let negated = self.at(Keyword::Not) && self.kind(1) == TokenKind::Keyword(Keyword::In);
        if negated {
            self.advance();
        }
        if self.eat(Keyword::In) {
            let values = self.tuple_in_values()?;
            return Ok(Relation::In { target, negated, values });
        }
        let Some(operator) = self.comparison_at() else {
            return Err(self.fail());
        };
        self.look(1);
        if !matches!(self.kind(1), TokenKind::Sign("(" | ":") | TokenKind::QuestionMark) {
            return Err(self.fail_ahead(1));
        }
        self.advance();
        let value = if self.at_sign("(") {
            Term::Tuple(self.tuple()?)
        } else {
            Term::BindMarker(self.bind_marker()?)
        };
        Ok(Relation::Compare { target, operator, value })
    }

    /// The right-hand side of `(a, b) IN`: a marker, tuples, or markers for tuples.
    fn tuple_in_values(&mut self) -> Parse<InValues> {
        let decision = self.next;
        if !self.at_sign("(") {
            return self.bind_marker().map(InValues::Marker);
        }
        self.look(1);
        self.advance();
        match self.kind(0) {
            TokenKind::Sign(")") => {
                self.advance();
                return Ok(InValues::List(Vec::new()));
            }
            TokenKind::Sign("(") => {
                let tuples = self.separated(|parser| parser.tuple().map(Term::Tuple))?;
                self.expect_sign(")")?;
                return Ok(InValues::List(tuples));
            }
            TokenKind::Sign(":") | TokenKind::QuestionMark => {}
            _ => return Err(self.fail_since(decision)),
        }
        let markers = self.separated(|parser| parser.bind_marker().map(Term::BindMarker))?;
        self.expect_sign(")")?;
        Ok(InValues::List(markers))
    }

    fn column_relation(&mut self) -> Parse<Relation> {
        if !self.is_column_name(0) {
            return Err(self.fail());
        }
        self.look(1);
        self.check_column_relation()?;
        let column = self.take_name();
        if let Some(operator) = self.comparison_at() {
            self.advance();
            let target = RelationTarget::Column(column);
            return Ok(Relation::Compare { target, operator, value: self.term()? });
        }
        match self.kind(0) {
            TokenKind::Keyword(Keyword::Like) => {
                self.advance();
                Ok(Relation::Like { column, pattern: self.term()? })
            }
            TokenKind::Keyword(Keyword::Is) => {
                self.advance();
                self.expect(Keyword::Not)?;
                self.expect(Keyword::Null)?;
                Ok(Relation::IsNotNull { column })
            }
            TokenKind::Keyword(Keyword::In) => {
                self.advance();
                let target = RelationTarget::Column(column);
                Ok(Relation::In { target, negated: false, values: self.in_values()? })
            }
            TokenKind::Keyword(Keyword::Contains) => {
                let (key, value) = self.contains()?;
                Ok(Relation::Contains { column, negated: false, key, value })
            }
            TokenKind::Keyword(Keyword::Not) => {
                self.advance();
                if self.eat(Keyword::In) {
                    let target = RelationTarget::Column(column);
                    return Ok(Relation::In { target, negated: true, values: self.in_values()? });
                }
                let (key, value) = self.contains()?;
                Ok(Relation::Contains { column, negated: true, key, value })
            }
            TokenKind::Sign("[") => {
                self.advance();
                let key = self.term()?;
                self.expect_sign("]")?;
                let target = RelationTarget::Element { column, key };
                if self.at_word(0, "between") {
                    return self.between(target);
                }
                let operator = self.comparison_operator()?;
                Ok(Relation::Compare { target, operator, value: self.term()? })
            }
            _ => self.between(RelationTarget::Column(column)),
        }
    }

    /// Fails if no relation continues after the column name that is next; the grammar reads up to two tokens
    /// behind the name before it decides, and reports the first that does not fit.
    fn check_column_relation(&mut self) -> Parse<()> {
        match self.kind(1) {
            TokenKind::Sign("=" | "<" | "<=" | ">" | ">=" | "!=" | "[") => Ok(()),
            TokenKind::Keyword(Keyword::Like | Keyword::Is | Keyword::Contains) => Ok(()),
            TokenKind::Keyword(Keyword::Not)
                if matches!(self.kind(2), TokenKind::Keyword(Keyword::In | Keyword::Contains)) =>
            {
                Ok(())
            }
            TokenKind::Keyword(Keyword::In) => {
                self.look(2);
                match self.kind(2) {
                    TokenKind::Sign("(" | ":") | TokenKind::QuestionMark => Ok(()),
                    _ => Err(self.fail_ahead(2)),
                }
            }
            _ if self.at_word(1, "between") => Ok(()),
            _ => Err(self.fail_ahead(1)),
        }
    }

    /// `BETWEEN low AND high`
    fn between(&mut self, target: RelationTarget) -> Parse<Relation> {
        self.expect_word("between")?;
        let low = self.term()?;
        self.expect(Keyword::And)?;
        Ok(Relation::Between { target, low, high: self.term()? })
    }

    /// `CONTAINS [KEY] value`
    fn contains(&mut self) -> Parse<(bool, Term)> {
        self.expect(Keyword::Contains)?;
        let key = self.eat(Keyword::Key);
        Ok((key, self.term()?))
    }

    /// The right-hand side of `column IN`: a marker or values.
    fn in_values(&mut self) -> Parse<InValues> {
        if !self.at_sign("(") {
            return self.bind_marker().map(InValues::Marker);
        }
        self.advance();
        self.list_tail(")").map(InValues::List)
    }

    fn comparison_at(&self) -> Option<ComparisonOperator> {
        Some(match self.kind(0) {
            TokenKind::Sign("=") => ComparisonOperator::Equal,
            TokenKind::Sign("<") => ComparisonOperator::Less,
            TokenKind::Sign("<=") => ComparisonOperator::LessOrEqual,
            TokenKind::Sign(">") => ComparisonOperator::Greater,
            TokenKind::Sign(">=") => ComparisonOperator::GreaterOrEqual,
            TokenKind::Sign("!=") => ComparisonOperator::NotEqual,
            _ => return None,
        })
    }

    fn comparison_operator(&mut self) -> Parse<ComparisonOperator> {
        let operator = self.comparison_at().ok_or_else(|| self.fail())?;
        self.advance();
        Ok(operator)
    }

    /// The IF of an UPDATE or DELETE, if it is there.
    pub(super) fn if_clause(&mut self) -> Parse<IfClause> {
        if !self.eat(Keyword::If) {
            return Ok(IfClause::None);
        }
        // `exists` may also be a column's name.
        self.look(1);
        let is_column = match self.kind(1) {
            TokenKind::Sign(sign) => sign != ";",
            TokenKind::Keyword(Keyword::In | Keyword::Contains | Keyword::Not | Keyword::Like) => true,
            _ => false,
        };
        if self.at(Keyword::Exists) && !is_column {
            self.advance();
            return Ok(IfClause::Exists);
        }
        self.joined(Self::condition).map(IfClause::Conditions)
    }

    fn condition(&mut self) -> Parse<Condition> {
        let column = self.column_name()?;
        if self.at(Keyword::Contains) {
            let (key, value) = self.contains()?;
            return Ok(Condition {
                target: ConditionTarget::Column(column),
                test: ConditionTest::Contains { key, value },
            });
        }
        let target = if self.eat_sign("[") {
            let key = self.term()?;
            self.expect_sign("]")?;
            ConditionTarget::Element { column, key }
        } else if self.eat_sign(".") {
            ConditionTarget::Field { column, field: self.name()? }
        } else {
            ConditionTarget::Column(column)
        };
        let negated = self.at(Keyword::Not) && self.kind(1) == TokenKind::Keyword(Keyword::In);
        if negated {
            self.advance();
        }
        let test = if !negated && self.eat(Keyword::Like) {
            ConditionTest::Like { pattern: self.term()? }
        } else if self.eat(Keyword::In) {
            ConditionTest::In { negated, values: self.in_values()? }
        } else {
            let operator = self.comparison_operator()?;
            ConditionTest::Compare { operator, value: self.term()? }
        };
        Ok(Condition { target, test })
    }
}
