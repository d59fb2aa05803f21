//! Entry points of fuzz targets: each accepts any bytes and must return. Not for other crates.

/// A file of hints.
///
/// # Panics
/// When what was read is not written as it was read: that is the bug the fuzzer looks for.
pub fn hints(bytes: &[u8]) {
    crate::hints::fuzzing::hints(bytes);
}
