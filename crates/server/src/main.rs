//! The `ceto` binary.
fn main() {}
