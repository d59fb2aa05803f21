//! Tells the program the commit and the profile that it is built from, for `ceto --version`.
//!
//! Only this crate depends on them: a new commit rebuilds no other. Without git, or outside of a checkout of
//! this project, there is no commit, and the build goes on.
#![allow(clippy::disallowed_methods, reason = "a build script is not the program")]

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let profile = profile().unwrap_or_else(|| "unknown".to_owned());
    let root = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let commit = root.as_deref().and_then(|root| commit(root.ancestors().nth(2)?));
    let commit = commit.map(|commit| format!("commit {commit}, ")).unwrap_or_default();
    println!("cargo:rustc-env=CETO_BUILD={commit}profile {profile}");
}

/// The folder in the target directory: `PROFILE` has only `debug` and `release`.
fn profile() -> Option<String> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR")?);
    Some(out.ancestors().nth(3)?.file_name()?.to_str()?.to_owned())
}

fn commit(root: &Path) -> Option<String> {
    // Sources that were unpacked within a checkout of something else are not of its commit.
    let top = git(root, &["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    // HEAD changes when another branch is taken, the log of HEAD with each commit.
    for file in ["HEAD", "logs/HEAD"] {
        let path = root.join(git(root, &["rev-parse", "--git-path", file])?);
        if path.exists() {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
    git(root, &["rev-parse", "--short=12", "HEAD"])
}

fn git(root: &Path, words: &[&str]) -> Option<String> {
    let done = Command::new("git").arg("-C").arg(root).args(words).output().ok()?;
    let text = String::from_utf8(done.stdout).ok()?;
    (done.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
