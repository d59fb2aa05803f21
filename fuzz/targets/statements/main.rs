//! Statements that are prepared, and what else the query engine decodes.
#![no_main]

mod literal;
mod paging_state;
mod statement_work;

fuzz::targets!(literal, paging_state, statement_work);
