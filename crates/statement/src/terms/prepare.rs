//! Converts parsed terms to prepared ones: type checks, overloads, folding of constants.
//!
//! Rules and messages are those of Cassandra 5's `Term.Raw` family. Every marker in a term gets its
//! specification.

use cql::ast::{self, ConstantKind, FunctionCall};
use model::{CqlType, Schema, Table};

use super::literal::{self, Assignment};
use super::typing::{Answers, Typing};
use super::{
    Binding, Bound, Call, Collection, Composite, Markers, Receiver, Term, append_vector_component,
    assemble_collection, text,
};
use crate::StatementError;
use crate::ambient::Ambient;
use crate::functions::{AggregateKind, Function, type_assignment};
use crate::prepare::types;

/// The inputs of preparing a term.
#[derive(Debug)]
pub struct Context<'a> {
    /// The schema, for user types of hints.
    pub schema: &'a Schema,
    /// The statement's table.
    pub table: &'a Table,
    /// For the timestamp `'now'` and folding.
    pub ambient: &'a Ambient,
    /// Markers found so far.
    pub markers: &'a mut Markers,
    /// Results about the term that is being prepared.
    pub progress: Progress,
}

/// Progress of preparing a term.
#[derive(Debug, Default)]
pub struct Progress {
    answers: Answers,
    /// Number of terms around the one that is being prepared.
    depth: usize,
    /// Whether the literal around it fits its type: then its parts do too, and are not checked again at each
    /// level.
    fits: bool,
}

impl Context<'_> {
    /// Prepares `term` for `receiver`.
    ///
    /// # Errors
    /// [`StatementError::Invalid`] in Cassandra's words if the term cannot be such a value.
    pub fn prepare(&mut self, term: &ast::Term, receiver: &Receiver) -> Result<Term, StatementError> {
        self.begin();
        self.progress.depth += 1;
        let prepared = self.prepare_part(term, receiver);
        self.progress.depth -= 1;
        prepared
    }

    /// Drops the results about the previous term, unless this is a part of it.
    fn begin(&self) {
        if self.progress.depth == 0 {
            self.progress.answers.clear();
        }
    }

    pub(super) fn answers(&self) -> &Answers {
        &self.progress.answers
    }

    /// Prepares a part of a literal that fits, or of a term that was not checked.
    fn prepare_inside(
        &mut self,
        term: &ast::Term,
        receiver: &Receiver,
        fits: bool,
    ) -> Result<Term, StatementError> {
        let before = std::mem::replace(&mut self.progress.fits, fits);
        let prepared = self.prepare(term, receiver);
        self.progress.fits = before;
        prepared
    }

    fn prepare_part(&mut self, term: &ast::Term, receiver: &Receiver) -> Result<Term, StatementError> {
        reactor::give_way();
        match term {
            ast::Term::Constant(constant) => self.constant(constant, receiver),
            ast::Term::BindMarker(marker) => {
                self.markers.specify(marker.index, receiver);
                Ok(Term::Marker { index: marker.index, ty: receiver.ty.clone() })
            }
            ast::Term::List(elements) => self.list(elements, receiver),
            ast::Term::Set(elements) => self.set(elements, receiver),
            ast::Term::Map(entries) => self.map(entries, receiver),
            ast::Term::Tuple(components) => self.tuple(components, receiver),
            ast::Term::UserType(fields) => self.user_type(fields, receiver),
            ast::Term::Function(call) => self.function(term, call, receiver),
            ast::Term::TypeHint { type_name, operand } => {
                let ty = types::resolve(type_name, self.table.keyspace(), self.schema)?;
                if !self.assignment(operand, &ty).is_assignable() {
                    return Err(StatementError::Invalid(format!(
                        "Cannot cast value {} to type {}",
                        text::of_term(operand),
                        types::text(type_name)
                    )));
                }
                if !type_assignment(&ty, &receiver.ty).is_assignable() {
                    return Err(cannot_assign(term, receiver));
                }
                self.prepare_inside(operand, receiver, false)
            }
            ast::Term::Cast { operand, .. } => self.operation(term, &[operand], receiver),
            ast::Term::Arithmetic { left, right, .. } => self.operation(term, &[left, right], receiver),
            ast::Term::Negate(operand) => self.operation(term, &[operand], receiver),
        }
    }

    fn operation(
        &mut self,
        term: &ast::Term,
        operands: &[&ast::Term],
        receiver: &Receiver,
    ) -> Result<Term, StatementError> {
        let function = Typing::new(self).overload(term, Some(&receiver.ty))?;
        let function = function.ok_or_else(|| {
            // Operators always have overloads; casts to some types do not exist.
            StatementError::Invalid(format!("Unknown function {} called", text::of_term(term)))
        })?;
        self.call(function, operands, receiver)
    }

    fn constant(&mut self, constant: &ast::Constant, receiver: &Receiver) -> Result<Term, StatementError> {
        if !literal::assignment(constant, &receiver.ty).is_assignable() {
            return Err(StatementError::Invalid(match constant.kind {
                ConstantKind::Null => "Invalid null value for counter increment/decrement".to_owned(),
                kind => format!(
                    "Invalid {} constant ({}) for \"{}\" of type {}",
                    literal::kind_name(kind),
                    literal::shown(constant),
                    receiver.name,
                    receiver.ty
                ),
            }));
        }
        if constant.kind == ConstantKind::Null {
            return Ok(Term::NULL);
        }
        let mut value = Vec::new();
        literal::append_value(constant, &receiver.ty, self.ambient.now_ms(), &mut value)
            .map_err(StatementError::Invalid)?;
        Ok(Term::value(value))
    }

    /// Elements of a list, set or map; markers are not taken inside collection literals.
    fn element(
        &mut self,
        kind: &str,
        collection: &Receiver,
        role: &str,
        element: &ast::Term,
        receiver: &Receiver,
    ) -> Result<Term, StatementError> {
        check_list(element, &receiver.ty)?;
        if !self.progress.fits && !self.assignment(element, &receiver.ty).is_assignable() {
            return Err(StatementError::Invalid(format!(
                "Invalid {kind} literal for {}: {role} {} is not of type {}",
                collection.name,
                text::of_term(element),
                receiver.ty
            )));
        }
        let prepared = self.prepare_inside(element, receiver, true)?;
        if prepared.has_marker() {
            return Err(StatementError::Invalid(format!(
                "Invalid {kind} literal for {}: bind variables are not supported inside collection literals",
                collection.name
            )));
        }
        if matches!(prepared, Term::Constant(None)) {
            return Err(StatementError::invalid("null is not supported inside collections"));
        }
        Ok(prepared)
    }

    fn list(&mut self, elements: &[ast::Term], receiver: &Receiver) -> Result<Term, StatementError> {
        match &receiver.ty {
            CqlType::List { element, .. } => {
                let inner = Receiver::value_of(&receiver.name, (**element).clone());
                let parts = elements
                    .iter()
                    .map(|e| self.element("list", receiver, "value", e, &inner))
                    .collect::<Result<Vec<_>, _>>()?;
                Ok(collection(receiver.ty.clone(), parts))
            }
            CqlType::Vector { element, dimension } => self.vector(elements, receiver, element, *dimension),
            other => Err(unexpected_list(other)),
        }
    }

    fn vector(
        &mut self,
        elements: &[ast::Term],
        receiver: &Receiver,
        element: &CqlType,
        dimension: u32,
    ) -> Result<Term, StatementError> {
        if elements.len() != dimension as usize {
            return Err(StatementError::Invalid(format!(
                "Invalid vector literal for {} of type {}; expected {dimension} elements, but given {}",
                receiver.name,
                receiver.ty,
                elements.len()
            )));
        }
        let inner = Receiver::value_of(&receiver.name, element.clone());
        let mut components = Vec::with_capacity(elements.len());
        for part in elements {
            check_list(part, element)?;
            if !self.progress.fits && !self.assignment(part, element).is_assignable() {
                return Err(StatementError::Invalid(format!(
                    "Invalid vector literal for {}: value {} is not of type {element}",
                    receiver.name,
                    text::of_term(part)
                )));
            }
            components.push(self.prepare_inside(part, &inner, true)?);
        }
        composite(receiver.ty.clone(), components)
    }

    fn set(&mut self, elements: &[ast::Term], receiver: &Receiver) -> Result<Term, StatementError> {
        match &receiver.ty {
            CqlType::Set { element, .. } => {
                let inner = Receiver::value_of(&receiver.name, (**element).clone());
                let parts = elements
                    .iter()
                    .map(|e| self.element("set", receiver, "value", e, &inner))
                    .collect::<Result<Vec<_>, _>>()?;
                Ok(collection(receiver.ty.clone(), parts))
            }
            CqlType::Map { .. } if elements.is_empty() => Ok(collection(receiver.ty.clone(), Vec::new())),
            _ => Err(StatementError::Invalid(format!(
                "Invalid set literal for {} of type {}",
                receiver.name, receiver.ty
            ))),
        }
    }

    fn map(
        &mut self,
        entries: &[(ast::Term, ast::Term)],
        receiver: &Receiver,
    ) -> Result<Term, StatementError> {
        let CqlType::Map { key, value, .. } = &receiver.ty else {
            return Err(StatementError::Invalid(format!(
                "Invalid map literal for {} of type {}",
                receiver.name, receiver.ty
            )));
        };
        let key_receiver = Receiver::key_of(&receiver.name, (**key).clone());
        let value_receiver = Receiver::value_of(&receiver.name, (**value).clone());
        let mut parts = Vec::with_capacity(entries.len() * 2);
        for (k, v) in entries {
            parts.push(self.element("map", receiver, "key", k, &key_receiver)?);
            parts.push(self.element("map", receiver, "value", v, &value_receiver)?);
        }
        Ok(collection(receiver.ty.clone(), parts))
    }

    fn tuple(&mut self, components: &[ast::Term], receiver: &Receiver) -> Result<Term, StatementError> {
        if let ([only], false) = (components, matches!(receiver.ty, CqlType::Tuple(_))) {
            return self.prepare(only, receiver);
        }
        let types: Vec<&CqlType> = match &receiver.ty {
            CqlType::Tuple(types) => types.iter().collect(),
            // The bytes are the same, and Cassandra accepts one for the other.
            CqlType::Udt(udt) => udt.fields.iter().map(|(_, ty)| ty).collect(),
            other => {
                return Err(StatementError::Invalid(format!(
                    "Invalid tuple type literal for {} of type {other}",
                    receiver.name
                )));
            }
        };
        if components.len() > types.len() {
            return Err(StatementError::Invalid(format!(
                "Invalid tuple literal for {}: too many elements. Type {} expects {} but got {}",
                receiver.name,
                receiver.ty,
                types.len(),
                components.len()
            )));
        }
        let mut prepared = Vec::with_capacity(components.len());
        for (at, (component, ty)) in components.iter().zip(types).enumerate() {
            if !self.progress.fits && !self.assignment(component, ty).is_assignable() {
                return Err(StatementError::Invalid(format!(
                    "Invalid tuple literal for {}: component {at} is not of type {ty}",
                    receiver.name
                )));
            }
            let inner = Receiver::new(format!("{}[{at}]", receiver.name), ty.clone());
            prepared.push(self.prepare_inside(component, &inner, true)?);
        }
        composite(receiver.ty.clone(), prepared)
    }

    fn user_type(
        &mut self,
        fields: &[(ast::Ident, ast::Term)],
        receiver: &Receiver,
    ) -> Result<Term, StatementError> {
        let CqlType::Udt(udt) = &receiver.ty else {
            return Err(StatementError::Invalid(format!(
                "Invalid user type literal for {} of type {}",
                receiver.name, receiver.ty
            )));
        };
        if let Some((unknown, _)) =
            fields.iter().find(|(name, _)| !udt.fields.iter().any(|(field, _)| *field == name.name))
        {
            return Err(StatementError::Invalid(format!(
                "Unknown field '{}' in value of user defined type {}",
                unknown.name, udt.name
            )));
        }
        let mut prepared = Vec::with_capacity(udt.fields.len());
        for (field, ty) in &udt.fields {
            let Some((_, value)) = fields.iter().rfind(|(name, _)| name.name == *field) else {
                prepared.push(Term::NULL);
                continue;
            };
            if !self.progress.fits && !self.assignment(value, ty).is_assignable() {
                return Err(StatementError::Invalid(format!(
                    "Invalid user type literal for {}: field {field} is not of type {ty}",
                    receiver.name
                )));
            }
            let inner = Receiver::new(format!("{}.{field}", receiver.name), ty.clone());
            prepared.push(self.prepare_inside(value, &inner, true)?);
        }
        composite(receiver.ty.clone(), prepared)
    }

    fn function(
        &mut self,
        term: &ast::Term,
        call: &FunctionCall,
        receiver: &Receiver,
    ) -> Result<Term, StatementError> {
        let Some(function) = Typing::new(self).overload(term, Some(&receiver.ty))? else {
            return Err(StatementError::Invalid(if self.is_aggregate(call) {
                "Aggregation function are not supported in the where clause".to_owned()
            } else {
                format!("Unknown function {} called", function_name(call))
            }));
        };
        self.call(function, &call.arguments.iter().collect::<Vec<_>>(), receiver)
    }

    /// Whether an aggregate, of the system's or of the user's, has the name.
    fn is_aggregate(&self, call: &FunctionCall) -> bool {
        let name = call.name.name.name.as_str();
        let keyspace = call.name.keyspace.as_ref().map_or(self.table.keyspace(), |keyspace| &keyspace.name);
        let of_user = self.schema.keyspace(keyspace);
        AggregateKind::of_name(name).is_some()
            || of_user.is_some_and(|of| of.aggregates.iter().any(|aggregate| aggregate.name == name))
    }

    fn call(
        &mut self,
        function: Function,
        terms: &[&ast::Term],
        receiver: &Receiver,
    ) -> Result<Term, StatementError> {
        let wants_cells = receiver.ty.is_multi_cell() && *function.result() != receiver.ty;
        if wants_cells || !type_assignment(function.result(), &receiver.ty).is_assignable() {
            return Err(StatementError::Invalid(format!(
                "Type error: cannot assign result of {} (type {}) to {} (type {})",
                function.shown(),
                function.result(),
                receiver.name,
                receiver.ty
            )));
        }
        let mut arguments = Vec::with_capacity(terms.len());
        for (at, (argument, ty)) in terms.iter().zip(function.arguments().to_vec()).enumerate() {
            let receiver = Receiver::new(format!("arg{at}({})", function.full_name()), ty);
            arguments.push(self.prepare_inside(argument, &receiver, false)?);
        }
        self.fold(function, arguments)
    }

    /// A call, or its value if that is constant.
    fn fold(&mut self, function: Function, arguments: Vec<Term>) -> Result<Term, StatementError> {
        let foldable = function.is_pure() && arguments.iter().all(Term::is_constant);
        let call = Call { function, arguments, place: None };
        if call.function.user().is_some() {
            return Ok(Term::Call(Box::new(self.markers.run_before(call))));
        }
        let term = Term::Call(Box::new(call));
        if !foldable {
            return Ok(term);
        }
        let bound = term.bind(&Binding { values: &[], markers: &[], ambient: self.ambient, calls: None })?;
        Ok(match bound {
            Bound::Value(value) => Term::value(value.into_owned()),
            Bound::Null | Bound::Unset => Term::NULL,
        })
    }

    /// The type of a term in any context; `None` for markers and null.
    pub fn known_type(&self, term: &ast::Term) -> Option<CqlType> {
        self.begin();
        Typing::new(self).known_type(term)
    }

    /// How well a term fits a type.
    pub fn assignment(&self, term: &ast::Term, ty: &CqlType) -> Assignment {
        self.begin();
        Typing::new(self).assignment(term, ty)
    }
}

/// Refuses a list where the type allows none, with the error for lists.
fn check_list(term: &ast::Term, ty: &CqlType) -> Result<(), StatementError> {
    match (term, ty) {
        (_, CqlType::List { .. } | CqlType::Vector { .. }) => Ok(()),
        (ast::Term::List(_), other) => Err(unexpected_list(other)),
        _ => Ok(()),
    }
}

fn unexpected_list(ty: &CqlType) -> StatementError {
    StatementError::Invalid(format!("Unexpected receiver type '{ty}'; only list and vector are expected"))
}

fn function_name(call: &FunctionCall) -> String {
    let keyspace =
        call.name.keyspace.as_ref().map(|keyspace| format!("{}.", keyspace.name)).unwrap_or_default();
    format!("{keyspace}{}", call.name.name.name)
}

fn cannot_assign(term: &ast::Term, receiver: &Receiver) -> StatementError {
    StatementError::Invalid(format!(
        "Cannot assign value {} to {} of type {}",
        text::of_term(term),
        receiver.name,
        receiver.ty
    ))
}

/// A collection, folded to its bytes if every part is constant.
fn collection(ty: CqlType, parts: Vec<Term>) -> Term {
    let constants: Option<Vec<&[u8]>> = parts
        .iter()
        .map(|part| match part {
            Term::Constant(Some(value)) => Some(&**value),
            _ => None,
        })
        .collect();
    match constants {
        Some(values) => Term::value(assemble_collection(&ty, values)),
        None => Term::Collection(Box::new(Collection { ty, parts })),
    }
}

/// A tuple, user type or vector, folded to its bytes if every component is constant.
fn composite(ty: CqlType, components: Vec<Term>) -> Result<Term, StatementError> {
    if !components.iter().all(Term::is_constant) {
        return Ok(Term::Composite(Box::new(Composite { ty, components })));
    }
    let mut out = Vec::new();
    for component in &components {
        let Term::Constant(value) = component else { continue };
        match &ty {
            CqlType::Vector { element, .. } => {
                let value = value
                    .as_deref()
                    .ok_or_else(|| StatementError::invalid("null is not supported inside vectors"))?;
                append_vector_component(&mut out, element, value)?;
            }
            _ => model::collection::append_element(&mut out, value.as_deref()),
        }
    }
    Ok(Term::value(out))
}
