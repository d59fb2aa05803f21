//! A prepared statement as a shard keeps it: its meaning, and the statistics that its executions count in.

use std::cell::OnceCell;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use statement::prepare;

use crate::load::TableLoad;

/// A statement ready to be executed on this shard.
#[derive(Debug)]
pub struct Prepared {
    statement: prepare::Prepared,
    /// Statistics of its only table, once it was executed.
    pub(crate) load: OnceCell<Rc<TableLoad>>,
}

impl From<prepare::Prepared> for Prepared {
    fn from(statement: prepare::Prepared) -> Self {
        Self { statement, load: OnceCell::new() }
    }
}

impl Deref for Prepared {
    type Target = prepare::Prepared;

    #[inline]
    fn deref(&self) -> &prepare::Prepared {
        &self.statement
    }
}

impl DerefMut for Prepared {
    fn deref_mut(&mut self) -> &mut prepare::Prepared {
        &mut self.statement
    }
}
