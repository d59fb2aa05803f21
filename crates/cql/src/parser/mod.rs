//! Recursive descent over the tokens of one statement.
//!
//! The language is Cassandra 5.0's `Parser.g` with ScyllaDB's documented extensions; words that only the
//! extensions use (`BYPASS`, `SERVICE LEVEL`, `TIMEOUT`, …) are recognised at their places and stay ordinary
//! names elsewhere. The message of an error depends on how the ANTLR grammar decides at that point: see
//! [`Parser::fail`]. Invariants: the first error ends the parse; recursion is bounded by
//! [`NESTING_DEPTH_MAX`], and chains of operators and accesses, which do not recurse, by
//! [`CHAIN_LENGTH_MAX`], so no text overflows the stack, neither here nor when the tree is printed, compared
//! or dropped.

mod auth;
mod ddl;
mod modify;
mod names;
mod relation;
mod select;
mod service_level;
mod statement;
mod table;
mod term;
mod types;

use std::collections::BTreeMap;

use crate::ast::{BindMarker, Ident, ParsedStatement, Term, TypeName};
use crate::error::{self, Failure, FailureKind, SyntaxError};
use crate::keyword::Keyword;
use crate::lexer::{self, Fault, Token, TokenKind};

/// Greatest nesting of expressions, types and relations; a level of tuples or collections counts twice.
pub const NESTING_DEPTH_MAX: usize = 270;

/// Most operators and field or element accesses of one expression besides its nesting.
pub const CHAIN_LENGTH_MAX: usize = 1_000;

/// Most bind markers of a statement: the native protocol counts them in an unsigned 16-bit number.
pub const BIND_MARKERS_MAX: usize = 65_535;

/// Parses one statement, with any number of semicolons behind it.
///
/// # Errors
/// [`SyntaxError`] with Cassandra's wording and position. Time grows linearly with the length of the text,
/// which is the caller's to limit; memory too, up to [`TOKENS_MAX`](crate::TOKENS_MAX).
pub fn parse_statement(text: &str) -> Result<ParsedStatement, SyntaxError> {
    parse_statement_as(text, SameNames::Apart, || ())
}

/// The meaning of bind markers of the same name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SameNames {
    /// Separate markers, each with its value and type, as in Cassandra.
    #[default]
    Apart,
    /// One marker with one value, as in ScyllaDB.
    One,
}

/// As [`parse_statement`], with the meaning of bind markers of the same name. `give_way` is called now and
/// then, after some microseconds of work each time.
///
/// # Errors
/// As [`parse_statement`].
pub fn parse_statement_as(
    text: &str,
    same_names: SameNames,
    give_way: fn(),
) -> Result<ParsedStatement, SyntaxError> {
    parse_whole(text, give_way, |parser| {
        parser.by_name = (same_names == SameNames::One).then(BTreeMap::new);
        let statement = parser.statement()?;
        while parser.eat_sign(";") {}
        parser.expect_end()?;
        Ok(statement)
    })
    .map(|(statement, markers)| ParsedStatement { statement, markers })
}

/// Parses a type in the form of a column definition, e.g. `frozen<map<text, int>>`.
///
/// # Errors
/// [`SyntaxError`] as by [`parse_statement`].
pub fn parse_type(text: &str) -> Result<TypeName, SyntaxError> {
    parse_whole(
        text,
        || (),
        |parser| {
            let type_name = parser.type_name()?;
            parser.expect_end()?;
            Ok(type_name)
        },
    )
    .map(|(type_name, _)| type_name)
}

/// Parses a value in the form of an INSERT, e.g. `{'a': 1}`; bind markers are allowed and numbered from 0.
///
/// # Errors
/// [`SyntaxError`] as by [`parse_statement`].
pub fn parse_term(text: &str) -> Result<Term, SyntaxError> {
    parse_whole(
        text,
        || (),
        |parser| {
            let term = parser.term()?;
            parser.expect_end()?;
            Ok(term)
        },
    )
    .map(|(term, _)| term)
}

fn parse_whole<T>(
    text: &str,
    give_way: fn(),
    rule: impl FnOnce(&mut Parser<'_>) -> Parse<T>,
) -> Result<(T, Vec<Option<Ident>>), SyntaxError> {
    let lexed = lexer::tokenize(text, give_way);
    let mut parser = Parser::new(text, &lexed.tokens, give_way);
    match (rule(&mut parser), lexed.fault) {
        (Ok(value), None) => Ok((value, parser.markers)),
        (Ok(_), Some(fault)) => Err(error::describe_fault(text, &fault)),
        (Err(failure), fault) => Err(parser.first_error(failure, fault)),
    }
}

/// The result of a grammar rule.
pub(crate) type Parse<T> = Result<T, Failure>;

/// The state of one parse.
pub(crate) struct Parser<'t> {
    text: &'t str,
    tokens: &'t [Token],
    /// The next token.
    next: usize,
    /// The furthest token the grammar has looked at.
    looked: usize,
    /// How deep the current rule is nested.
    depth: usize,
    /// Operators and accesses seen in the current outermost expression.
    chained: usize,
    markers: Vec<Option<Ident>>,
    /// Index of each name in `markers`, unless it was taken back; `None` if each marker is separate.
    by_name: Option<BTreeMap<Ident, usize>>,
    give_way: fn(),
}

impl<'t> Parser<'t> {
    fn new(text: &'t str, tokens: &'t [Token], give_way: fn()) -> Self {
        let markers = Vec::new();
        Self { text, tokens, next: 0, looked: 0, depth: 0, chained: 0, markers, by_name: None, give_way }
    }

    /// The earlier of two errors: the rule that failed, or the text that is not a token.
    fn first_error(&self, failure: Failure, fault: Option<Fault>) -> SyntaxError {
        let last = self.tokens.len().saturating_sub(1);
        match fault {
            // Tokens are read on demand: a fault counts once the parser has examined its place or a later
            // one.
            Some(fault) if self.looked.max(failure.token) >= last => error::describe_fault(self.text, &fault),
            _ => error::describe(self.text, self.tokens, failure, self.looked),
        }
    }

    // ---- looking ----

    /// The kind of the token `ahead` of the next one; `End` from the end on.
    fn kind(&self, ahead: usize) -> TokenKind {
        self.tokens.get(self.next + ahead).map_or(TokenKind::End, |token| token.kind)
    }

    /// Notes that the grammar decides here by looking at the token `ahead` too.
    fn look(&mut self, ahead: usize) {
        self.looked = self.looked.max((self.next + ahead).min(self.tokens.len().saturating_sub(1)));
    }

    fn at(&self, keyword: Keyword) -> bool {
        self.kind(0) == TokenKind::Keyword(keyword)
    }

    fn at_sign(&self, sign: &'static str) -> bool {
        self.kind(0) == TokenKind::Sign(sign)
    }

    /// Whether the token `ahead` is a word without meaning in Cassandra's grammar, spelt `word` in any case.
    fn at_word(&self, ahead: usize, word: &str) -> bool {
        self.kind(ahead) == TokenKind::Word && self.slice(ahead).eq_ignore_ascii_case(word)
    }

    /// The text of the token `ahead`.
    fn slice(&self, ahead: usize) -> &'t str {
        self.tokens
            .get(self.next + ahead)
            .and_then(|token| self.text.get(token.start..token.end))
            .unwrap_or_default()
    }

    // ---- consuming ----

    /// Moves to the next token.
    fn advance(&mut self) {
        if self.next + 1 < self.tokens.len() {
            self.next += 1;
        }
        if self.next.is_multiple_of(lexer::TOKENS_AT_ONCE) {
            (self.give_way)();
        }
        self.look(0);
    }

    fn eat(&mut self, keyword: Keyword) -> bool {
        let found = self.at(keyword);
        if found {
            self.advance();
        }
        found
    }

    fn eat_sign(&mut self, sign: &'static str) -> bool {
        let found = self.at_sign(sign);
        if found {
            self.advance();
        }
        found
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = self.at_word(0, word);
        if found {
            self.advance();
        }
        found
    }

    fn expect(&mut self, keyword: Keyword) -> Parse<()> {
        if self.eat(keyword) { Ok(()) } else { Err(self.expected(keyword.grammar_name())) }
    }

    fn expect_sign(&mut self, sign: &'static str) -> Parse<()> {
        if self.eat_sign(sign) { Ok(()) } else { Err(self.expected(quoted_sign(sign))) }
    }

    fn expect_word(&mut self, word: &'static str) -> Parse<()> {
        if self.eat_word(word) { Ok(()) } else { Err(self.expected(word)) }
    }

    fn expect_end(&mut self) -> Parse<()> {
        if self.kind(0) == TokenKind::End { Ok(()) } else { Err(self.expected("EOF")) }
    }

    /// The content of the string literal that must come next.
    fn expect_string(&mut self) -> Parse<String> {
        match self.kind(0) {
            TokenKind::String | TokenKind::DollarString => Ok(self.take_string()),
            _ => Err(self.expected("STRING_LITERAL")),
        }
    }

    /// Takes the string literal that is next.
    fn take_string(&mut self) -> String {
        let slice = self.slice(0);
        let content = match self.kind(0) {
            TokenKind::DollarString => {
                slice.strip_prefix("$$").and_then(|rest| rest.strip_suffix("$$")).unwrap_or(slice).to_owned()
            }
            _ => error::unquote_in_parts(slice, '\'', self.give_way),
        };
        self.advance();
        content
    }

    /// `IF NOT EXISTS`, if it is there.
    fn if_not_exists(&mut self) -> Parse<bool> {
        if !self.eat(Keyword::If) {
            return Ok(false);
        }
        self.expect(Keyword::Not)?;
        self.expect(Keyword::Exists)?;
        Ok(true)
    }

    /// `IF EXISTS`, if it is there.
    fn if_exists(&mut self) -> Parse<bool> {
        if !self.eat(Keyword::If) {
            return Ok(false);
        }
        self.expect(Keyword::Exists)?;
        Ok(true)
    }

    /// `first (separator item)*`; `item` parses each item.
    fn separated<T>(&mut self, mut item: impl FnMut(&mut Self) -> Parse<T>) -> Parse<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.eat_sign(",") {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// `item (AND item)*`.
    fn joined<T>(&mut self, mut item: impl FnMut(&mut Self) -> Parse<T>) -> Parse<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.eat(Keyword::And) {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// The bind marker that is next: `?`, or `:` and a name.
    fn bind_marker(&mut self) -> Parse<BindMarker> {
        let name = if self.eat_sign(":") {
            Some(self.name()?)
        } else if self.kind(0) == TokenKind::QuestionMark {
            self.advance();
            None
        } else {
            return Err(self.fail());
        };
        if let (Some(by_name), Some(name)) = (&self.by_name, &name)
            && let Some(index) = by_name.get(name).copied()
            && self.markers.get(index).is_some_and(|there| there.as_ref() == Some(name))
        {
            return Ok(BindMarker { index, name: Some(name.clone()) });
        }
        if self.markers.len() >= BIND_MARKERS_MAX {
            return Err(
                self.message(format!("Too many bind variables: at most {BIND_MARKERS_MAX} are supported"))
            );
        }
        let index = self.markers.len();
        self.markers.push(name.clone());
        if let (Some(by_name), Some(name)) = (&mut self.by_name, &name) {
            by_name.insert(name.clone(), index);
        }
        Ok(BindMarker { index, name })
    }

    /// The result of `rule`, or nothing if it fails, as if it had not been tried.
    ///
    /// An error with its own message (a limit, a refusal) is returned without trying anything else. The
    /// furthest examined token is kept: Cassandra's messages also quote up to the furthest token of its
    /// trials.
    fn attempt<T>(&mut self, rule: impl FnOnce(&mut Self) -> Parse<T>) -> Parse<Option<T>> {
        let (next, markers) = (self.next, self.markers.len());
        match rule(self) {
            Ok(value) => Ok(Some(value)),
            Err(Failure { kind: FailureKind::Message(message), .. }) => Err(self.message(message)),
            Err(failure) => {
                self.looked = self.looked.max(failure.token);
                self.next = next;
                self.markers.truncate(markers);
                Ok(None)
            }
        }
    }

    // ---- failing ----

    /// Nothing the grammar has fits the next token, and it decided without looking further.
    fn fail(&self) -> Failure {
        Failure { kind: FailureKind::NoViableAlternative, token: self.next, decision: self.next }
    }

    /// Nothing the grammar has fits the token `ahead`, and it decided at the next one.
    fn fail_ahead(&self, ahead: usize) -> Failure {
        let token = (self.next + ahead).min(self.tokens.len().saturating_sub(1));
        Failure { kind: FailureKind::NoViableAlternative, token, decision: self.next }
    }

    /// Nothing the grammar has fits the next token, and it decided at token number `decision`.
    fn fail_since(&self, decision: usize) -> Failure {
        Failure { kind: FailureKind::NoViableAlternative, token: self.next, decision }
    }

    /// One thing fits here, and the next token is not it.
    fn expected(&self, what: &'static str) -> Failure {
        Failure { kind: FailureKind::Expected(what), token: self.next, decision: self.next }
    }

    /// The error if one of a few tokens is required and the next is none of them.
    fn expected_set(&self) -> Failure {
        Failure { kind: FailureKind::ExpectedSet, token: self.next, decision: self.next }
    }

    /// A message without a place.
    fn message(&self, message: impl Into<String>) -> Failure {
        Failure { kind: FailureKind::Message(message.into()), token: self.next, decision: self.next }
    }

    // ---- limits ----

    /// Runs a rule one level deeper.
    fn nested<T>(&mut self, rule: impl FnOnce(&mut Self) -> Parse<T>) -> Parse<T> {
        if self.depth >= NESTING_DEPTH_MAX {
            return Err(self
                .message(format!("Nesting is too deep: at most {NESTING_DEPTH_MAX} levels are supported")));
        }
        if self.depth == 0 {
            self.chained = 0;
        }
        self.depth += 1;
        let result = rule(self);
        self.depth -= 1;
        result
    }

    /// Counts one more operator or access in the current expression.
    fn chain(&mut self) -> Parse<()> {
        self.chained += 1;
        if self.chained > CHAIN_LENGTH_MAX {
            let limit = format!("Expression is too long: at most {CHAIN_LENGTH_MAX} operators are supported");
            return Err(self.message(limit));
        }
        Ok(())
    }
}

/// A sign in quotes, as the grammar's token names have it.
fn quoted_sign(sign: &'static str) -> &'static str {
    match sign {
        "(" => "'('",
        ")" => "')'",
        "[" => "'['",
        "]" => "']'",
        "{" => "'{'",
        "}" => "'}'",
        "<" => "'<'",
        ">" => "'>'",
        "," => "','",
        "." => "'.'",
        ":" => "':'",
        "=" => "'='",
        "*" => "'\\*'",
        other => other,
    }
}
