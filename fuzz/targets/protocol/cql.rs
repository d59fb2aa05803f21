//! Fuzzes the CQL lexer and parser; what parses has to print to text that parses to the same tree.

pub(crate) fn run(data: &[u8]) {
    cql::fuzzing::fuzz_parse(data);
}
