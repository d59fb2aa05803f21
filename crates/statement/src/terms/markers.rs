//! The inputs that terms of one statement need at execution, collected while the statement is prepared: bind
//! markers with their receivers, and calls of user-defined functions, which run before the statement.
//!
//! Invariant: once a statement is prepared every marker has a specification; [`Markers::finish`] checks it.

use cql::SameNames;
use cql::ast::Ident;
use model::{CqlType, Table};

use super::{Call, Receiver};
use crate::StatementError;

/// One marker as PREPARED's metadata shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindSpecification {
    /// Keyspace of the table it belongs to.
    pub keyspace: String,
    /// The table.
    pub table: String,
    /// Its own name, or that of its receiver.
    pub name: String,
    /// Type of the value.
    pub ty: CqlType,
}

/// Options by which markers are named and identified as in ScyllaDB; the default is Cassandra's way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MarkerOptions {
    /// `cql_duplicate_bind_variable_names_refer_to_same_variable`
    pub same_names: SameNames,
    /// `cql_in_bind_variable_name_uses_uppercase_operator`: `IN(c)` instead of `in(c)`.
    pub uppercase_in: bool,
}

/// The markers of a statement under preparation.
#[derive(Debug)]
pub struct Markers {
    names: Vec<Option<String>>,
    specifications: Vec<Option<BindSpecification>>,
    partition_key_positions: Vec<Option<u16>>,
    /// Further places in the partition key of markers that are used more than once.
    further_positions: Vec<(usize, u16)>,
    options: MarkerOptions,
    /// The error for a marker that is used with two types.
    conflict: Option<String>,
    keyspace: String,
    table: String,
    calls: Vec<Call>,
}

impl Markers {
    /// Markers with these names, in order of appearance, of a statement that was parsed with these options.
    pub fn new(names: &[Option<Ident>], options: MarkerOptions) -> Self {
        Self {
            names: names.iter().map(|name| name.as_ref().map(|name| name.name.clone())).collect(),
            specifications: vec![None; names.len()],
            partition_key_positions: vec![None; names.len()],
            further_positions: Vec::new(),
            options,
            conflict: None,
            keyspace: String::new(),
            table: String::new(),
            calls: Vec::new(),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Sets the table of the markers that follow.
    pub fn enter(&mut self, keyspace: &str, table: &str) {
        self.keyspace = keyspace.to_owned();
        self.table = table.to_owned();
    }

    /// Sets the receiver of a marker. If markers of the same name are one, it may have several receivers of
    /// one type.
    pub fn specify(&mut self, index: usize, receiver: &Receiver) {
        let Some(slot) = self.specifications.get_mut(index) else { return };
        let name = self.names[index].clone().unwrap_or_else(|| receiver.name.clone());
        if let (SameNames::One, Some(there)) = (self.options.same_names, &slot) {
            if there.ty != receiver.ty {
                self.conflict.get_or_insert_with(|| {
                    format!("Bind variable :{name} is used with two types, {} and {}", there.ty, receiver.ty)
                });
            }
            self.further_positions.extend(receiver.partition_key_position.map(|position| (index, position)));
            return;
        }
        *slot = Some(BindSpecification {
            keyspace: self.keyspace.clone(),
            table: self.table.clone(),
            name,
            ty: receiver.ty.clone(),
        });
        self.partition_key_positions[index] = receiver.partition_key_position;
    }

    /// Specifies a marker as the list of `IN ?`, or with `negated` of `NOT IN ?`, whose values go to
    /// `receiver`; `of` is the list's name. Returns the list's type.
    pub fn specify_list(&mut self, index: usize, of: &str, receiver: &Receiver, negated: bool) -> CqlType {
        let operator = match (negated, self.options.uppercase_in) {
            (false, false) => "in",
            (false, true) => "IN",
            (true, false) => "not in",
            (true, true) => "NOT IN",
        };
        let list = CqlType::List { element: Box::new(receiver.ty.clone()), frozen: false };
        self.specify(index, &Receiver::new(format!("{operator}({of})"), list.clone()));
        list
    }

    /// For each column of the partition key the marker bound to it; empty unless all of them are bound.
    pub fn partition_key_indexes(&self, table: &Table) -> Vec<u16> {
        let mut indexes = vec![None; table.partition_key().len()];
        let first = self.partition_key_positions.iter().enumerate();
        let first = first.filter_map(|(index, position)| position.map(|position| (index, position)));
        for (index, position) in first.chain(self.further_positions.iter().copied()) {
            if let Some(slot) = indexes.get_mut(usize::from(position)) {
                *slot = Some(index as u16);
            }
        }
        indexes.into_iter().collect::<Option<Vec<u16>>>().unwrap_or_default()
    }

    /// Gives a call of a user-defined function its index; calls in its arguments have lower ones.
    pub fn run_before(&mut self, call: Call) -> Call {
        self.calls.push(call.clone());
        Call { place: Some(self.calls.len() - 1), ..call }
    }

    /// Calls of user-defined functions, by index; the calls themselves have no index set.
    pub fn take_calls(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.calls)
    }

    /// All specifications, in order.
    ///
    /// # Errors
    /// [`StatementError::Invalid`] for a marker of two types; [`StatementError::Internal`] if one has no
    /// receiver.
    pub fn finish(self) -> Result<Vec<BindSpecification>, StatementError> {
        if let Some(conflict) = self.conflict {
            return Err(StatementError::Invalid(conflict));
        }
        let missing = self.specifications.iter().position(Option::is_none);
        match missing {
            Some(index) => Err(StatementError::Internal(format!("bind marker {index} was given no meaning"))),
            None => Ok(self.specifications.into_iter().flatten().collect()),
        }
    }
}
