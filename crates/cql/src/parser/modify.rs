//! INSERT, UPDATE, DELETE, BATCH, TRUNCATE, PRUNE and the USING clause.
//!
//! Used by `statement`. Invariant: a parsed UPDATE sets no column twice in incompatible ways.

use std::collections::{BTreeMap, BTreeSet};

use super::{Parse, Parser};
use crate::ast::{
    Assignment, AssignmentOperation, Attribute, Batch, BatchKind, Constant, ConstantKind, Delete,
    DeleteSelection, Ident, Insert, InsertJson, JsonDefault, Modification, PruneMaterializedView,
    QualifiedName, Term, Truncate, Update,
};
use crate::keyword::Keyword;
use crate::lexer::TokenKind;

/// Assignments of an UPDATE that are compared with each other; more are looked up by their columns.
const COMPARED_MAX: usize = 32;

impl Parser<'_> {
    /// INSERT in either form; the keyword is next.
    pub(super) fn insert(&mut self) -> Parse<Modification> {
        self.expect(Keyword::Insert)?;
        self.expect(Keyword::Into)?;
        let table = self.table_name()?;
        if self.eat(Keyword::Json) {
            return self.insert_json(table).map(Modification::InsertJson);
        }
        if !self.at_sign("(") {
            return Err(self.fail());
        }
        let columns = self.column_list()?;
        self.expect(Keyword::Values)?;
        let values = self.tuple()?;
        let if_not_exists = self.if_not_exists()?;
        let attributes = self.using_clause(Self::write_attribute)?;
        Ok(Modification::Insert(Insert { table, columns, values, if_not_exists, attributes }))
    }

    fn insert_json(&mut self, table: QualifiedName) -> Parse<InsertJson> {
        let value = match self.kind(0) {
            TokenKind::String | TokenKind::DollarString => {
                Term::Constant(Constant::new(ConstantKind::String, self.take_string()))
            }
            _ => Term::BindMarker(self.bind_marker()?),
        };
        let mut default = JsonDefault::Null;
        if self.eat(Keyword::Default) {
            if self.eat(Keyword::Unset) {
                default = JsonDefault::Unset;
            } else if !self.eat(Keyword::Null) {
                return Err(self.fail());
            }
        }
        let if_not_exists = self.if_not_exists()?;
        let attributes = self.using_clause(Self::write_attribute)?;
        Ok(InsertJson { table, value, default, if_not_exists, attributes })
    }

    /// `USING item AND item …`, if it is there.
    pub(super) fn using_clause(
        &mut self,
        item: impl FnMut(&mut Self) -> Parse<Attribute>,
    ) -> Parse<Vec<Attribute>> {
        if self.eat(Keyword::Using) { self.joined(item) } else { Ok(Vec::new()) }
    }

    /// `TIMESTAMP n`, `TTL n` or `TIMEOUT d`.
    fn write_attribute(&mut self) -> Parse<Attribute> {
        if self.eat(Keyword::Timestamp) {
            return self.integer_or_marker().map(Attribute::Timestamp);
        }
        if self.eat(Keyword::Ttl) {
            return self.integer_or_marker().map(Attribute::TimeToLive);
        }
        self.timeout()?.ok_or_else(|| self.fail())
    }

    /// `TIMESTAMP n` or `TIMEOUT d`.
    fn delete_attribute(&mut self) -> Parse<Attribute> {
        if let Some(timeout) = self.timeout()? {
            return Ok(timeout);
        }
        self.expect(Keyword::Timestamp)?;
        self.integer_or_marker().map(Attribute::Timestamp)
    }

    /// `TIMEOUT d`, if it is there.
    pub(super) fn timeout(&mut self) -> Parse<Option<Attribute>> {
        if !self.eat_word("timeout") {
            return Ok(None);
        }
        let term = match self.kind(0) {
            TokenKind::Duration => {
                let constant = Constant::new(ConstantKind::Duration, self.slice(0));
                self.advance();
                Term::Constant(constant)
            }
            _ => Term::BindMarker(self.bind_marker()?),
        };
        Ok(Some(Attribute::Timeout(term)))
    }

    fn only_timeout(&mut self) -> Parse<Attribute> {
        self.timeout()?.ok_or_else(|| self.fail())
    }

    /// UPDATE; the keyword is next.
    pub(super) fn update(&mut self) -> Parse<Update> {
        self.expect(Keyword::Update)?;
        let table = self.table_name()?;
        let attributes = self.using_clause(Self::write_attribute)?;
        self.expect(Keyword::Set)?;
        let (mut assignments, mut many): (Vec<Assignment>, _) = (Vec::new(), Assigned::default());
        loop {
            let assignment = self.assignment()?;
            if assignments.len() == COMPARED_MAX {
                assignments.iter().for_each(|earlier| assert!(!many.add(earlier), "no two contradict"));
            }
            let contradicts = match assignments.len() {
                0..COMPARED_MAX => assignments.iter().any(|earlier| conflict(earlier, &assignment)),
                _ => many.add(&assignment),
            };
            if contradicts {
                let column = assignment.column;
                return Err(self.message(format!("Multiple incompatible setting of column {column}")));
            }
            assignments.push(assignment);
            if !self.eat_sign(",") {
                break;
            }
        }
        self.expect(Keyword::Where)?;
        let where_clause = self.where_clause()?;
        let condition = self.if_clause()?;
        Ok(Update { table, attributes, assignments, where_clause, condition })
    }

    fn assignment(&mut self) -> Parse<Assignment> {
        let column = self.column_name()?;
        let operation = match self.kind(0) {
            TokenKind::Sign("=") => {
                self.advance();
                self.plain_assignment(&column)?
            }
            TokenKind::Sign("+=") => {
                self.advance();
                AssignmentOperation::Add(self.term()?)
            }
            TokenKind::Sign("-=") => {
                self.advance();
                AssignmentOperation::Subtract(self.term()?)
            }
            TokenKind::Sign("[") => {
                self.advance();
                let key = self.term()?;
                self.expect_sign("]")?;
                self.expect_sign("=")?;
                AssignmentOperation::SetElement { key, value: self.term()? }
            }
            TokenKind::Sign(".") => {
                self.advance();
                let field = self.name()?;
                self.expect_sign("=")?;
                AssignmentOperation::SetField { field, value: self.term()? }
            }
            _ => return Err(self.fail()),
        };
        Ok(Assignment { column, operation })
    }

    /// The operation behind `column =`.
    fn plain_assignment(&mut self, column: &Ident) -> Parse<AssignmentOperation> {
        if self.is_column_name(0) {
            self.look(1);
            let sign = match self.kind(1) {
                TokenKind::Sign("+") => Some("+"),
                TokenKind::Sign("-") => Some("-"),
                _ => None,
            };
            if let Some(sign) = sign {
                let operand = self.take_name();
                self.advance();
                let value = self.term()?;
                if operand != *column {
                    let wanted = format!("Only expressions of the form X = X {sign}<value> are supported.");
                    return Err(self.message(wanted));
                }
                return Ok(match sign {
                    "+" => AssignmentOperation::Add(value),
                    _ => AssignmentOperation::Subtract(value),
                });
            }
            if self.kind(1) == TokenKind::Integer {
                // `c = c -3` lexes as a name and a negative integer.
                let operand = self.take_name();
                let text = self.slice(0);
                self.advance();
                if operand != *column {
                    let sign = if text.starts_with('-') { '-' } else { '+' };
                    let wanted = format!("Only expressions of the form X = X {sign} <value> are supported.");
                    return Err(self.message(wanted));
                }
                return Ok(AssignmentOperation::Add(Term::Constant(Constant::new(
                    ConstantKind::Integer,
                    text,
                ))));
            }
        }
        // `value + c`: the name behind `+` is no call, so it is the column.
        let value = self.term_before(|parser| {
            parser.at_sign("+")
                && parser.is_column_name(1)
                && !matches!(parser.kind(2), TokenKind::Sign("(" | "."))
        })?;
        if !self.eat_sign("+") {
            return Ok(AssignmentOperation::Set(value));
        }
        let operand = self.column_name()?;
        if operand != *column {
            return Err(self.message("Only expressions of the form X = <value> + X are supported."));
        }
        Ok(AssignmentOperation::Prepend(value))
    }

    /// DELETE; the keyword is next.
    fn delete(&mut self) -> Parse<Delete> {
        self.expect(Keyword::Delete)?;
        let mut selections = Vec::new();
        if self.is_column_name(0) {
            selections = self.separated(Self::delete_selection)?;
        }
        self.expect(Keyword::From)?;
        let table = self.table_name()?;
        let attributes = self.using_clause(Self::delete_attribute)?;
        self.expect(Keyword::Where)?;
        let where_clause = self.where_clause()?;
        let condition = self.if_clause()?;
        Ok(Delete { selections, table, attributes, where_clause, condition, bypass_guardrails: false })
    }

    /// DELETE as a separate statement; the keyword is next.
    pub(super) fn delete_statement(&mut self) -> Parse<Delete> {
        let delete = self.delete()?;
        let bypass_guardrails = self.eat_word("bypass");
        if bypass_guardrails {
            self.expect_word("large_data_guardrails")?;
        }
        Ok(Delete { bypass_guardrails, ..delete })
    }

    fn delete_selection(&mut self) -> Parse<DeleteSelection> {
        if !self.is_column_name(0) {
            return Err(self.fail());
        }
        self.look(1);
        match self.kind(1) {
            TokenKind::Sign("[") => {
                let column = self.take_name();
                self.advance();
                let key = self.term()?;
                self.expect_sign("]")?;
                Ok(DeleteSelection::Element { column, key })
            }
            TokenKind::Sign(".") => {
                let column = self.take_name();
                self.advance();
                Ok(DeleteSelection::Field { column, field: self.name()? })
            }
            TokenKind::Sign(",") | TokenKind::Keyword(Keyword::From) => {
                Ok(DeleteSelection::Column(self.take_name()))
            }
            _ => Err(self.fail_ahead(1)),
        }
    }

    /// BATCH; `BEGIN` is next.
    pub(super) fn batch(&mut self) -> Parse<Batch> {
        self.expect(Keyword::Begin)?;
        let kind = if self.eat(Keyword::Unlogged) {
            BatchKind::Unlogged
        } else if self.eat(Keyword::Counter) {
            BatchKind::Counter
        } else {
            BatchKind::Logged
        };
        self.expect(Keyword::Batch)?;
        let attributes = self.using_clause(Self::write_attribute)?;
        let mut statements = Vec::new();
        loop {
            let statement = match self.kind(0) {
                TokenKind::Keyword(Keyword::Insert) => self.insert()?,
                TokenKind::Keyword(Keyword::Update) => Modification::Update(self.update()?),
                TokenKind::Keyword(Keyword::Delete) => Modification::Delete(self.delete()?),
                _ => break,
            };
            statements.push(statement);
            self.eat_sign(";");
        }
        self.expect(Keyword::Apply)?;
        self.expect(Keyword::Batch)?;
        Ok(Batch { kind, attributes, statements })
    }

    /// TRUNCATE; the keyword is next.
    pub(super) fn truncate(&mut self) -> Parse<Truncate> {
        self.expect(Keyword::Truncate)?;
        self.eat(Keyword::ColumnFamily);
        let table = self.table_name()?;
        let attributes = self.using_clause(Self::only_timeout)?;
        Ok(Truncate { table, attributes })
    }

    /// PRUNE MATERIALIZED VIEW; the word is next.
    pub(super) fn prune(&mut self) -> Parse<PruneMaterializedView> {
        self.expect_word("prune")?;
        self.expect(Keyword::Materialized)?;
        self.expect(Keyword::View)?;
        let view = self.table_name()?;
        let where_clause = if self.eat(Keyword::Where) { Some(self.where_clause()?) } else { None };
        let attributes = self.using_clause(|parser| {
            if parser.eat_word("concurrency") {
                return parser.integer_or_marker().map(Attribute::Concurrency);
            }
            parser.only_timeout()
        })?;
        Ok(PruneMaterializedView { view, where_clause, attributes })
    }
}

/// The columns that an UPDATE of many assignments has set so far, each with whether its whole value was set,
/// and the fields.
#[derive(Default)]
struct Assigned {
    columns: BTreeMap<Ident, bool>,
    fields: BTreeSet<(Ident, Ident)>,
}

impl Assigned {
    /// Adds an assignment; returns whether it contradicts an earlier one, as [`conflict`] says.
    fn add(&mut self, assignment: &Assignment) -> bool {
        let Assignment { column, operation } = assignment;
        let is_whole = matches!(operation, AssignmentOperation::Set(_));
        if self.columns.insert(column.clone(), is_whole).is_some_and(|was_whole| was_whole || is_whole) {
            return true;
        }
        match operation {
            AssignmentOperation::SetField { field, .. } => {
                !self.fields.insert((column.clone(), field.clone()))
            }
            _ => false,
        }
    }
}

/// Whether two assignments of one UPDATE contradict each other: a whole value beside any other, or one field
/// twice.
fn conflict(earlier: &Assignment, later: &Assignment) -> bool {
    if earlier.column != later.column {
        return false;
    }
    match (&earlier.operation, &later.operation) {
        (AssignmentOperation::Set(_), _) | (_, AssignmentOperation::Set(_)) => true,
        (
            AssignmentOperation::SetField { field: earlier, .. },
            AssignmentOperation::SetField { field: later, .. },
        ) => earlier == later,
        _ => false,
    }
}
