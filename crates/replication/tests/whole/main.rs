//! Whole nodes over the simulated network count and truncate, and lose power and messages meanwhile.

mod counters;
mod nodes;
mod truncations;
