//! Terms as messages show them, in Cassandra's spelling (its `Term.Raw.getText`).

use cql::ast::{ConstantKind, FunctionCall, Term};

/// The term for a message.
pub fn of_term(term: &Term) -> String {
    match term {
        Term::Constant(constant) => match constant.kind {
            ConstantKind::String => format!("'{}'", constant.text),
            ConstantKind::Null => "NULL".to_owned(),
            _ => constant.text.clone(),
        },
        // Whatever its name is.
        Term::BindMarker(_) => "?".to_owned(),
        Term::List(elements) => format!("[{}]", joined(elements)),
        Term::Set(elements) => format!("{{{}}}", joined(elements)),
        Term::Tuple(elements) => format!("({})", joined(elements)),
        Term::Map(entries) => {
            let entries: Vec<String> =
                entries.iter().map(|(key, value)| format!("{}: {}", of_term(key), of_term(value))).collect();
            format!("{{{}}}", entries.join(", "))
        }
        Term::UserType(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{}: {}", name.name, of_term(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        Term::Function(call) => of_call(call),
        Term::Arithmetic { operator, left, right } => {
            format!("{} {} {}", of_term(left), operator.symbol(), of_term(right))
        }
        Term::Negate(operand) => format!("-{}", of_term(operand)),
        Term::TypeHint { type_name, operand } => {
            format!("({}){}", crate::prepare::types::text(type_name), of_term(operand))
        }
        Term::Cast { operand, target } => format!("cast({} as {})", of_term(operand), target.name()),
    }
}

/// A call for a message.
pub fn of_call(call: &FunctionCall) -> String {
    let keyspace = call.name.keyspace.as_ref().map(|k| format!("{}.", k.name)).unwrap_or_default();
    format!("{keyspace}{}({})", call.name.name.name, joined(&call.arguments))
}

fn joined(terms: &[Term]) -> String {
    terms.iter().map(of_term).collect::<Vec<_>>().join(", ")
}
