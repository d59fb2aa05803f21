//! The version of the program: of the release, and the commit and the profile that it was built from.

/// As `ceto --version` prints it behind the name, and the log at the start.
pub const TEXT: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("CETO_BUILD"), ")");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_names_the_profile_and_in_a_checkout_the_commit() {
        assert!(TEXT.starts_with(env!("CARGO_PKG_VERSION")), "{TEXT}");
        let build = TEXT.split_once(" (").and_then(|(_, build)| build.strip_suffix(')')).unwrap();
        assert!(build.contains("profile "), "{TEXT}");
        if let Some((commit, _)) = build.strip_prefix("commit ").and_then(|build| build.split_once(", ")) {
            assert!(commit.len() >= 12 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()), "{TEXT}");
        }
    }
}
