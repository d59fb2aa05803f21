//! Prints values.
//!
//! A space follows every minus: `--` would be a comment, and a minus before digits would join the literal.

use std::fmt::{Display, Formatter, Result};

use super::names::FunctionName;
use super::{Quoted, enclosed, pairs};
use crate::ast::{BindMarker, Constant, ConstantKind, FunctionCall, Term};

impl Display for Constant {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self.kind {
            ConstantKind::String => write!(formatter, "{}", Quoted(&self.text)),
            _ => formatter.write_str(&self.text),
        }
    }
}

impl Display for BindMarker {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match &self.name {
            Some(name) => write!(formatter, ":{name}"),
            None => formatter.write_str("?"),
        }
    }
}

impl Display for FunctionCall {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "{}", FunctionName(&self.name))?;
        enclosed(formatter, "(", &self.arguments, ")")
    }
}

impl Display for Term {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            Term::Constant(constant) => write!(formatter, "{constant}"),
            Term::BindMarker(marker) => write!(formatter, "{marker}"),
            Term::List(elements) => enclosed(formatter, "[", elements, "]"),
            Term::Set(elements) => enclosed(formatter, "{", elements, "}"),
            Term::Map(entries) => enclosed(formatter, "{", pairs(entries, ": "), "}"),
            Term::Tuple(elements) => enclosed(formatter, "(", elements, ")"),
            Term::UserType(fields) => enclosed(formatter, "{", pairs(fields, ": "), "}"),
            Term::Function(call) => write!(formatter, "{call}"),
            Term::Arithmetic { operator, left, right } => {
                write!(formatter, "{left} {} {right}", operator.symbol())
            }
            Term::Negate(operand) => write!(formatter, "- {operand}"),
            Term::TypeHint { type_name, operand } => write!(formatter, "({type_name}) {operand}"),
            Term::Cast { operand, target } => write!(formatter, "CAST({operand} AS {target})"),
        }
    }
}
