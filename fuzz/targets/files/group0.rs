//! Fuzzes the files, commands and messages of group 0.

pub(crate) fn run(data: &[u8]) {
    cluster::fuzzing::group0(data);
}
