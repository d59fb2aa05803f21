//! Groups of rows that become one row each: GROUP BY, and aggregates over everything.
//!
//! A group is open from its first row until a row of another group comes or its partition ends. Selected
//! values that are not aggregates come from the group's first row, of which a copy is kept while the group is
//! open. A step that a user-defined function may pause is continued from where it was: nothing is added
//! twice.

use model::clustering::Clustering;
use model::compare::compare;
use model::{RowView, Table};
use smallvec::SmallVec;
use statement::functions::Accumulator;
use statement::prepare::selection::{GroupBy, Groups};
use statement::prepare::selector::Aggregate;
use statement::restrictions::keys;
use statement::terms::Binding;

use super::evaluate::{RowInput, evaluate};
use crate::QueryError;
use crate::answer_room::PAGE_BYTES_MAX;
use crate::answer_room::too_large;

/// The group that rows are added to.
#[derive(Debug)]
pub(super) struct OpenGroup<'q> {
    pub(super) groups: &'q Groups,
    pub(super) accumulators: Vec<Part>,
    /// Whether a row was added.
    pub(super) is_open: bool,
    /// Aggregates that have taken in the row that is being added, or the part of a shard that is being
    /// merged.
    done: usize,
    /// Whether the shown values need the first row.
    pub(super) keeps_first: bool,
    pub(super) first: FirstRow,
    /// Clustering of the first row, and the result of GROUP BY's function for it.
    pub(super) clustering: Vec<u8>,
    pub(super) output: Option<Vec<u8>>,
}

/// The state of an aggregate over the group so far.
#[derive(Debug, Clone)]
pub(super) enum Part {
    Native(Accumulator),
    /// The state of a user-defined aggregate.
    User(Option<Vec<u8>>),
}

impl Part {
    fn new(aggregate: &Aggregate) -> Self {
        match aggregate {
            Aggregate::Native { kind, ty, .. } => Self::Native(Accumulator::new(*kind, ty)),
            Aggregate::User { aggregate, .. } => Self::User(aggregate.first()),
        }
    }

    fn add(
        &mut self,
        aggregate: &Aggregate,
        input: &RowInput<'_>,
        binding: &Binding<'_>,
    ) -> Result<(), QueryError> {
        match (self, aggregate) {
            (Self::Native(accumulator), Aggregate::Native { argument: None, .. }) => {
                Ok(accumulator.add(None)?)
            }
            (Self::Native(accumulator), Aggregate::Native { argument: Some(argument), .. }) => {
                Ok(accumulator.add(evaluate(argument, input, &[], binding)?.as_deref())?)
            }
            (Self::User(state), Aggregate::User { aggregate, arguments }) => {
                let values = arguments
                    .iter()
                    .map(|argument| evaluate(argument, input, &[], binding))
                    .collect::<Result<SmallVec<[_; 4]>, _>>()?;
                let values: SmallVec<[Option<&[u8]>; 4]> =
                    values.iter().map(|value| value.as_deref()).collect();
                if aggregate.takes(&values) {
                    *state = aggregate.step(binding.calls()?, state.as_deref(), &values)?;
                }
                Ok(())
            }
            _ => Err(QueryError::Internal("the parts of an aggregate do not fit".to_owned())),
        }
    }

    fn held_bytes(&self) -> usize {
        match self {
            Self::Native(accumulator) => accumulator.held_bytes(),
            Self::User(state) => state.as_ref().map_or(0, Vec::len),
        }
    }

    fn result(&self, aggregate: &Aggregate, binding: &Binding<'_>) -> Result<Option<Vec<u8>>, QueryError> {
        match (self, aggregate) {
            (Self::User(state), Aggregate::User { aggregate, .. }) => {
                Ok(aggregate.finish(binding.calls()?, state.as_deref())?)
            }
            (Self::Native(accumulator), _) => Ok(accumulator.result()),
            _ => Err(QueryError::Internal("the parts of an aggregate do not fit".to_owned())),
        }
    }
}

/// A shard's state of a group that other shards have rows of too.
#[derive(Debug, Clone)]
pub(super) struct Partial {
    accumulators: Vec<Part>,
    first: Option<FirstRow>,
}

/// A copy of a group's first row.
#[derive(Debug, Clone, Default)]
pub(super) struct FirstRow {
    pub(super) key: Vec<u8>,
    pub(super) clustering: Vec<u8>,
    pub(super) static_row: Option<Vec<u8>>,
    pub(super) row: Option<Vec<u8>>,
}

/// A row as it comes, with its key still in one piece.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arriving<'r> {
    pub(super) key: &'r [u8],
    pub(super) clustering: &'r [u8],
    pub(super) input: RowInput<'r>,
}

impl Arriving<'_> {
    fn bytes(&self) -> usize {
        let of = |row: Option<RowView<'_>>| row.map_or(0, |row| row.as_bytes().len());
        self.key.len() + self.clustering.len() + of(self.input.row) + of(self.input.static_row)
    }
}

impl<'q> OpenGroup<'q> {
    /// Without rows.
    pub(super) fn new(groups: &'q Groups) -> Self {
        Self {
            accumulators: accumulators(groups),
            is_open: false,
            done: 0,
            keeps_first: groups.selectors.iter().any(|selector| selector.reads_row()),
            first: FirstRow::default(),
            clustering: Vec::new(),
            output: None,
            groups,
        }
    }

    /// The definition of groups; `None` if all rows are one group.
    pub(super) fn by(&self) -> Option<&'q GroupBy> {
        self.groups.by.as_ref()
    }

    /// Whether the group has rows.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether a row of the same partition belongs to it, and the result of GROUP BY's function for the row.
    ///
    /// # Errors
    /// Those of the function.
    pub(super) fn takes(
        &self,
        by: &'q GroupBy,
        table: &Table,
        row: &Arriving<'_>,
        binding: &Binding<'_>,
    ) -> Result<(bool, Option<Vec<u8>>), QueryError> {
        let output = match &by.function {
            Some(function) => evaluate(function, &row.input, &[], binding)?.map(|value| value.into_owned()),
            None => None,
        };
        if !self.is_open {
            return Ok((true, output));
        }
        let compared = by.clustering - usize::from(by.function.is_some());
        let mut pairs = Clustering(&self.clustering)
            .components()
            .zip(Clustering(row.clustering).components())
            .zip(table.clustering());
        let same = pairs.by_ref().take(compared).all(|((a, b), column)| match (a, b) {
            (Some(a), Some(b)) => compare(&column.ty, a, b).is_eq(),
            (a, b) => a == b,
        });
        Ok((same && output == self.output, output))
    }

    /// Adds a row; after a pause, adds it to the remaining aggregates.
    ///
    /// # Errors
    /// Those of functions over its columns.
    pub(super) fn add(
        &mut self,
        row: &Arriving<'_>,
        output: Option<Vec<u8>>,
        (binding, held_max): (&Binding<'_>, usize),
    ) -> Result<(), QueryError> {
        // Each aggregate may keep a value of the row, so the sum is checked if it could be large.
        let could_hold = self.accumulators.len().saturating_mul(row.bytes());
        let mut held = (could_hold > PAGE_BYTES_MAX).then_some(0);
        for (aggregate, accumulator) in
            self.groups.aggregates.iter().zip(&mut self.accumulators).skip(self.done)
        {
            accumulator.add(aggregate, &row.input, binding)?;
            self.done += 1;
            if let Some(held) = &mut held {
                *held += accumulator.held_bytes();
                if *held > held_max {
                    return Err(too_large(held_max));
                }
            }
            if let Some(calls) = binding.calls {
                calls.step();
            }
        }
        self.done = 0;
        if self.is_open {
            return Ok(());
        }
        self.is_open = true;
        self.output = output;
        self.clustering.clear();
        self.clustering.extend_from_slice(row.clustering);
        if self.keeps_first {
            let copy = |row: Option<RowView<'_>>| row.map(|row| row.as_bytes().to_vec());
            self.first = FirstRow {
                key: row.key.to_vec(),
                clustering: row.clustering.to_vec(),
                static_row: copy(row.input.static_row),
                row: copy(row.input.row),
            };
        }
        Ok(())
    }

    /// The state so far, without the parts that only GROUP BY needs.
    pub(super) fn partial(self) -> Partial {
        Partial { accumulators: self.accumulators, first: self.is_open.then_some(self.first) }
    }

    /// Adds the state of a shard whose rows come after those added so far; after a pause, the rest of it.
    ///
    /// # Errors
    /// [`QueryError::Internal`] if it belongs to another statement; those of REDUCEFUNC.
    pub(super) fn merge(&mut self, partial: &Partial, binding: &Binding<'_>) -> Result<(), QueryError> {
        if partial.accumulators.len() != self.accumulators.len() {
            return Err(QueryError::Internal("the parts of an aggregate do not fit".to_owned()));
        }
        let (here, there) = (self.is_open, partial.first.is_some());
        let aggregates = self.accumulators.iter_mut().zip(&self.groups.aggregates);
        for ((accumulator, aggregate), part) in aggregates.zip(&partial.accumulators).skip(self.done) {
            match (accumulator, part, aggregate) {
                (Part::Native(accumulator), Part::Native(part), _) => accumulator.merge(part.clone())?,
                // A state without rows is still the initial state, which counts only once.
                (Part::User(_), Part::User(_), _) if !there => {}
                (Part::User(state), Part::User(part), _) if !here => state.clone_from(part),
                (Part::User(state), Part::User(part), Aggregate::User { aggregate, .. }) => {
                    *state = aggregate.reduce(binding.calls()?, state.as_deref(), part.as_deref())?;
                }
                _ => return Err(QueryError::Internal("the parts of an aggregate do not fit".to_owned())),
            }
            self.done += 1;
            if let Some(calls) = binding.calls {
                calls.step();
            }
        }
        self.done = 0;
        if let Some(first) = partial.first.as_ref().filter(|_| !self.is_open) {
            self.first = first.clone();
            self.is_open = true;
        }
        Ok(())
    }

    /// Calls `show` with the values of the group, and begins a new one.
    ///
    /// # Errors
    /// Those of `show` and of final functions; the group is then unchanged.
    pub(super) fn close(
        &mut self,
        table: &Table,
        (now, binding): (model::deletion::LocalSeconds, &Binding<'_>),
        show: impl FnOnce(&RowInput<'_>, &[Option<Vec<u8>>]) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        let values = self
            .accumulators
            .iter()
            .zip(&self.groups.aggregates)
            .map(|(part, aggregate)| part.result(aggregate, binding))
            .collect::<Result<Vec<_>, _>>()?;
        let first = &self.first;
        let (is_open, view) = (self.is_open && self.keeps_first, RowView::trusted);
        let key = if is_open { keys::split(table, &first.key) } else { SmallVec::new() };
        let clustering: SmallVec<[Option<&[u8]>; 4]> = Clustering(&first.clustering).components().collect();
        show(
            &RowInput {
                key: &key,
                clustering: &clustering,
                static_row: first.static_row.as_deref().map(view),
                row: first.row.as_deref().map(view),
                now,
            },
            &values,
        )?;
        self.accumulators = accumulators(self.groups);
        self.is_open = false;
        if let Some(calls) = binding.calls {
            calls.step();
        }
        Ok(())
    }
}

fn accumulators(groups: &Groups) -> Vec<Part> {
    groups.aggregates.iter().map(Part::new).collect()
}
