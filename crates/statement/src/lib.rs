//! The meaning of a statement: names are resolved, types checked, values bound, schema changes planned.
//!
//! Everything here follows from a text, a schema and values. Nothing is read, written or sent: `query` runs
//! what is prepared here.

pub mod ambient;
pub mod ddl;
pub mod error;
pub mod functions;
pub mod fuzzing;
pub mod guardrails;
pub mod names;
pub mod prepare;
pub mod restrictions;
pub mod results;
pub mod schema_events;
pub mod session;
pub mod sized;
pub mod steps;
pub mod system;
pub mod terms;

pub use error::StatementError;
