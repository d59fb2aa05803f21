//! Copies that agree: write and read plans.
