//! Conditional writes and serial reads by several nodes with a storage each, in simulation: messages are
//! lost, late or come twice, and nodes lose power.
#![allow(clippy::expect_used, reason = "a test that cannot go on ends")]

mod competing;
mod nodes;
mod post;
mod requests;
mod rules;

#[path = "../../../sim/src/register/mod.rs"]
#[allow(dead_code, reason = "this test uses its part")]
mod register;
