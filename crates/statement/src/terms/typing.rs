//! The types of terms before evaluation: the type that a term has by itself, and the types it may stand for.
//!
//! Invariant: each part of a term is resolved at most once for each type requested of it, so that the work
//! grows with the text and not with the depth of nested calls. Results are remembered while the outermost
//! term is prepared.

use std::cell::RefCell;

use cql::ast;
use hashbrown::{HashMap, HashSet};
use model::CqlType;

use super::literal::{self, Assignment};
use super::prepare::Context;
use super::text;
use crate::StatementError;
use crate::functions::{self, CallArguments, CallSite, Function, type_assignment};
use crate::prepare::types;

/// A part of a term, by its place in memory, and the type asked of it.
type Question = (usize, Option<CqlType>);

/// Keyspace of the functions that operators and casts stand for.
const SYSTEM: Option<&str> = Some("system");

/// Findings about the parts of a term that is being prepared.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// The overload that a call resolves to; `None` if there is none, or more than one.
    known: RefCell<HashMap<Question, Option<Function>, foldhash::fast::FixedState>>,
    /// Types of literals with parts, by their place in memory.
    composed: RefCell<HashMap<usize, Option<CqlType>, foldhash::fast::FixedState>>,
}

impl Answers {
    /// Forgets all: another term may stand at the same place.
    pub(super) fn clear(&self) {
        self.known.borrow_mut().clear();
        self.composed.borrow_mut().clear();
    }
}

/// Answers questions about a term.
pub(super) struct Typing<'t, 'c> {
    context: &'t Context<'c>,
}

impl<'t, 'c> Typing<'t, 'c> {
    pub(super) fn new(context: &'t Context<'c>) -> Self {
        Self { context }
    }

    /// The overload that a call or an operator resolves to if `receiver` is the requested type; `None` if no
    /// function has the name.
    ///
    /// # Errors
    /// [`StatementError::Invalid`] if no overload, or more than one, takes the arguments.
    pub(super) fn overload(
        &self,
        term: &ast::Term,
        receiver: Option<&CqlType>,
    ) -> Result<Option<Function>, StatementError> {
        let (keyspace, name, terms) = match term {
            ast::Term::Function(call) => (
                call.name.keyspace.as_ref().map(|keyspace| keyspace.name.as_str()),
                call.name.name.name.as_str(),
                call.arguments.iter().collect::<Vec<_>>(),
            ),
            ast::Term::Arithmetic { operator, left, right } => {
                (SYSTEM, functions::operator_name(*operator), vec![&**left, &**right])
            }
            ast::Term::Negate(operand) => (SYSTEM, functions::NEGATION, vec![&**operand]),
            ast::Term::Cast { operand, target } => (SYSTEM, functions::cast_name(*target), vec![&**operand]),
            _ => return Ok(None),
        };
        let (table, schema) = (self.context.table, self.context.schema);
        let site = CallSite { keyspace, name, table, schema, receiver };
        functions::resolve(&site, &TermArguments { typing: self, terms })
    }

    fn known_overload(&self, term: &ast::Term, receiver: Option<&CqlType>) -> Option<Function> {
        let question = (std::ptr::from_ref(term) as usize, receiver.cloned());
        if let Some(known) = self.context.answers().known.borrow().get(&question) {
            return known.clone();
        }
        let found = self.overload(term, receiver).ok().flatten();
        self.context.answers().known.borrow_mut().insert(question, found.clone());
        found
    }

    /// The type a term has whatever asks for it; `None` for markers and null.
    pub(super) fn known_type(&self, term: &ast::Term) -> Option<CqlType> {
        if !matches!(term, ast::Term::Set(_) | ast::Term::Map(_) | ast::Term::Tuple(_)) {
            return self.find_type(term);
        }
        // Asked twice at each level of tuples in sets: without the answer kept, that is 2^depth times at the
        // innermost.
        let place = std::ptr::from_ref(term) as usize;
        if let Some(known) = self.context.answers().composed.borrow().get(&place) {
            return known.clone();
        }
        let found = self.find_type(term);
        self.context.answers().composed.borrow_mut().insert(place, found.clone());
        found
    }

    fn find_type(&self, term: &ast::Term) -> Option<CqlType> {
        reactor::give_way();
        match term {
            ast::Term::Constant(constant) => literal::preferred_type(constant),
            ast::Term::Function(_) | ast::Term::Arithmetic { .. } | ast::Term::Negate(_) => {
                self.known_overload(term, None).map(|function| function.result().clone())
            }
            ast::Term::TypeHint { type_name, .. } => {
                types::resolve(type_name, self.context.table.keyspace(), self.context.schema).ok()
            }
            ast::Term::Cast { target, .. } => types::resolve(
                &ast::TypeName::Native(*target),
                self.context.table.keyspace(),
                self.context.schema,
            )
            .ok(),
            ast::Term::Set(elements) => {
                let element = Box::new(self.common_type(elements.iter())?);
                Some(CqlType::Set { element, frozen: true })
            }
            ast::Term::Map(entries) => {
                let key = Box::new(self.common_type(entries.iter().map(|(key, _)| key))?);
                let value = Box::new(self.common_type(entries.iter().map(|(_, value)| value))?);
                Some(CqlType::Map { key, value, frozen: true })
            }
            ast::Term::Tuple(components) => {
                let types = components.iter().map(|component| self.exact_type(component));
                types.collect::<Option<Vec<_>>>().map(CqlType::Tuple)
            }
            // A list literal may also be a vector; only the requested type decides.
            ast::Term::List(_) | ast::Term::BindMarker(_) | ast::Term::UserType(_) => None,
        }
    }

    /// As [`Typing::known_type`], but `None` for constants, which may stand for several types.
    fn exact_type(&self, term: &ast::Term) -> Option<CqlType> {
        match term {
            ast::Term::Constant(_) => None,
            ast::Term::Set(elements) => elements
                .iter()
                .all(|element| self.exact_type(element).is_some())
                .then(|| self.known_type(term))?,
            ast::Term::Map(entries) => {
                let exact = |term| self.exact_type(term).is_some();
                entries
                    .iter()
                    .all(|(key, value)| exact(key) && exact(value))
                    .then(|| self.known_type(term))?
            }
            other => self.known_type(other),
        }
    }

    /// The first type among those of some terms that all of them fit.
    fn common_type<'e>(&self, terms: impl Iterator<Item = &'e ast::Term>) -> Option<CqlType> {
        let mut types: Vec<CqlType> = Vec::new();
        let mut seen = HashSet::<CqlType, foldhash::fast::FixedState>::default();
        for ty in terms.filter_map(|term| self.known_type(term)) {
            if seen.insert(ty.clone()) {
                types.push(ty);
            }
        }
        // The type that one candidate does not stand for is likely to refuse the next as well, so it is asked
        // first.
        let mut unlike = 0;
        types
            .iter()
            .find(|want| {
                let refuses = |ty: &CqlType| !type_assignment(ty, want).is_assignable();
                if types.get(unlike).is_some_and(refuses) {
                    return false;
                }
                match types.iter().position(refuses) {
                    Some(at) => {
                        unlike = at;
                        false
                    }
                    None => true,
                }
            })
            .cloned()
    }

    /// How well a term fits a type.
    pub(super) fn assignment(&self, term: &ast::Term, ty: &CqlType) -> Assignment {
        let all = |terms: &mut dyn Iterator<Item = (&ast::Term, &CqlType)>| {
            terms.map(|(term, ty)| self.assignment(term, ty)).min().unwrap_or(Assignment::Weak)
        };
        reactor::give_way();
        match term {
            ast::Term::Constant(constant) => literal::assignment(constant, ty),
            ast::Term::BindMarker(_) => Assignment::Weak,
            ast::Term::List(elements) => match ty {
                CqlType::List { element, .. } => all(&mut elements.iter().map(|e| (e, &**element))),
                CqlType::Vector { element, dimension } if *dimension as usize == elements.len() => {
                    all(&mut elements.iter().map(|e| (e, &**element)))
                }
                _ => Assignment::No,
            },
            ast::Term::Set(elements) => match ty {
                CqlType::Set { element, .. } => all(&mut elements.iter().map(|e| (e, &**element))),
                CqlType::Map { .. } if elements.is_empty() => Assignment::Weak,
                _ => Assignment::No,
            },
            ast::Term::Map(entries) => match ty {
                CqlType::Map { key, value, .. } => {
                    all(&mut entries.iter().flat_map(|(k, v)| [(k, &**key), (v, &**value)]))
                }
                _ => Assignment::No,
            },
            ast::Term::Tuple(components) => match ty {
                CqlType::Tuple(types) if components.len() <= types.len() => {
                    all(&mut components.iter().zip(types)).min(Assignment::Weak)
                }
                CqlType::Tuple(_) => Assignment::No,
                // One term in parentheses is no tuple if no tuple is requested.
                _ if components.len() == 1 => self.assignment(&components[0], ty),
                _ => Assignment::No,
            },
            ast::Term::UserType(fields) => match ty {
                CqlType::Udt(udt) => fields
                    .iter()
                    .map(|(name, value)| match udt.fields.iter().find(|(field, _)| *field == name.name) {
                        Some((_, ty)) => self.assignment(value, ty),
                        None => Assignment::No,
                    })
                    .min()
                    .unwrap_or(Assignment::Weak)
                    .min(Assignment::Weak),
                _ => Assignment::No,
            },
            // A function that does not exist is refused when the call is prepared, with a better message.
            ast::Term::Function(_) | ast::Term::Arithmetic { .. } | ast::Term::Negate(_) => {
                match self.known_overload(term, Some(ty)) {
                    // Such a function returns any requested type: that must not decide between overloads.
                    Some(function) if function.is_made_for_its_arguments() => Assignment::Weak,
                    Some(function) => type_assignment(function.result(), ty),
                    None => Assignment::Weak,
                }
            }
            ast::Term::TypeHint { .. } | ast::Term::Cast { .. } => match self.known_type(term) {
                Some(known) => type_assignment(&known, ty),
                None => Assignment::No,
            },
        }
    }
}

/// Terms as the arguments of a call.
struct TermArguments<'q, 't, 'c> {
    typing: &'q Typing<'t, 'c>,
    terms: Vec<&'q ast::Term>,
}

impl CallArguments for TermArguments<'_, '_, '_> {
    fn count(&self) -> usize {
        self.terms.len()
    }

    fn fits(&self, at: usize, ty: &CqlType) -> Assignment {
        self.typing.assignment(self.terms[at], ty)
    }

    fn compatible_type(&self, at: usize) -> Option<CqlType> {
        self.typing.known_type(self.terms[at])
    }

    fn is_marker(&self, at: usize) -> bool {
        matches!(self.terms[at], ast::Term::BindMarker(_))
    }

    fn text(&self, at: usize) -> String {
        text::of_term(self.terms[at])
    }
}
