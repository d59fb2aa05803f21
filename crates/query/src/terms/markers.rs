//! What terms of one statement ask of an execution, gathered while the statement is prepared: bind markers, what each is
//! for, and calls of the user's functions, which run before the statement does.
//!
//! Invariant: once a statement is prepared every marker has a specification; [`Markers::finish`] checks it.

use cql::ast::Ident;
use model::{CqlType, Table};

use super::{Call, Receiver};
use crate::QueryError;

/// One marker as PREPARED's metadata shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindSpecification {
    /// Keyspace of the table it belongs to.
    pub keyspace: String,
    /// The table.
    pub table: String,
    /// Its own name, or that of what it is bound to.
    pub name: String,
    /// Type of the value.
    pub ty: CqlType,
}

/// The markers of a statement under preparation.
#[derive(Debug)]
pub struct Markers {
    names: Vec<Option<String>>,
    specifications: Vec<Option<BindSpecification>>,
    partition_key_positions: Vec<Option<u16>>,
    keyspace: String,
    table: String,
    calls: Vec<Call>,
}

impl Markers {
    /// Markers with these names, in order of appearance.
    pub fn new(names: &[Option<Ident>]) -> Self {
        Self {
            names: names.iter().map(|name| name.as_ref().map(|name| name.name.clone())).collect(),
            specifications: vec![None; names.len()],
            partition_key_positions: vec![None; names.len()],
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

    /// What follows belongs to this table.
    pub fn enter(&mut self, keyspace: &str, table: &str) {
        self.keyspace = keyspace.to_owned();
        self.table = table.to_owned();
    }

    /// Says what a marker is for.
    pub fn specify(&mut self, index: usize, receiver: &Receiver) {
        let Some(slot) = self.specifications.get_mut(index) else { return };
        let name = self.names[index].clone().unwrap_or_else(|| receiver.name.clone());
        *slot = Some(BindSpecification {
            keyspace: self.keyspace.clone(),
            table: self.table.clone(),
            name,
            ty: receiver.ty.clone(),
        });
        self.partition_key_positions[index] = receiver.partition_key_position;
    }

    /// For each column of the partition key the marker bound to it; empty unless all of them are bound.
    pub fn partition_key_indexes(&self, table: &Table) -> Vec<u16> {
        let mut indexes = vec![None; table.partition_key().len()];
        for (index, position) in self.partition_key_positions.iter().enumerate() {
            if let Some(slot) = position.and_then(|position| indexes.get_mut(usize::from(position))) {
                *slot = Some(index as u16);
            }
        }
        indexes.into_iter().collect::<Option<Vec<u16>>>().unwrap_or_default()
    }

    /// Gives a call of one of the user's functions its place; those in its arguments have theirs before it.
    pub fn run_before(&mut self, call: Call) -> Call {
        self.calls.push(call.clone());
        Call { place: Some(self.calls.len() - 1), ..call }
    }

    /// Calls of the user's functions, by place; they have none themselves.
    pub fn take_calls(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.calls)
    }

    /// All specifications, in order.
    ///
    /// # Errors
    /// [`QueryError::Internal`] where a marker was never given a meaning.
    pub fn finish(self) -> Result<Vec<BindSpecification>, QueryError> {
        let missing = self.specifications.iter().position(Option::is_none);
        match missing {
            Some(index) => Err(QueryError::Internal(format!("bind marker {index} was given no meaning"))),
            None => Ok(self.specifications.into_iter().flatten().collect()),
        }
    }
}
