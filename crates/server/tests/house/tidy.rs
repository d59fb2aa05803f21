//! Sizes and shapes of the tree. Exceptions are listed beside this file with what they have now, and the
//! lists may only shrink: an entry that is no longer true fails like a new one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{crates, root, rust_files};

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
const FOLDER_FILES_MAX: usize = 20;
const COMMENT_COLUMNS_MAX: usize = 110;

/// All Rust files below `crates`, by their paths from the root.
pub(super) fn sources() -> Vec<(String, String)> {
    let mut files = Vec::new();
    rust_files(&root().join("crates"), &mut files);
    files.into_iter().map(|path| (named(&path), std::fs::read_to_string(&path).unwrap())).collect()
}

fn named(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

/// The entries of a list of exceptions, `number name` in each line.
fn exceptions(list: &'static str) -> BTreeMap<String, usize> {
    let entries = list.lines().filter(|line| !line.starts_with('#'));
    entries
        .map(|line| line.split_once(' ').expect("a number and a name"))
        .map(|(number, name)| (name.to_owned(), number.parse().expect("a number")))
        .collect()
}

/// Compares what there is with a list of exceptions.
pub(super) fn check(list: &'static str, found: BTreeMap<String, usize>) {
    let known = exceptions(list);
    let mut wrong = Vec::new();
    for (name, number) in &found {
        match known.get(name) {
            Some(most) if number <= most => {}
            Some(most) => wrong.push(format!("{name} has {number}, and had {most}")),
            None => wrong.push(format!("{name} has {number}")),
        }
    }
    for (name, most) in &known {
        let now = found.get(name).copied().unwrap_or(0);
        if now < *most {
            wrong.push(format!("{name} has {now}, and its exception is {most}: shrink the list"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn files_are_short() {
    let long: Vec<_> = sources()
        .into_iter()
        .map(|(name, text)| (name, text.lines().count()))
        .filter(|(_, lines)| *lines > FILE_LINES_MAX)
        .collect();
    assert!(long.is_empty(), "longer than {FILE_LINES_MAX} lines: {long:?}");
}

/// The name of the function that a formatted line begins, and its indentation.
fn function(line: &str) -> Option<(&str, &str)> {
    let indent = &line[..line.len() - line.trim_start().len()];
    let mut rest = line.trim_start();
    loop {
        let (word, behind) = rest.split_once(' ')?;
        match word {
            "fn" => {
                let name = behind.split(['(', '<']).next()?;
                return Some((indent, name));
            }
            "pub" | "async" | "const" | "unsafe" | "extern" | "\"C\"" => rest = behind,
            _ if word.starts_with("pub(") || word.ends_with(')') => rest = behind,
            _ => return None,
        }
    }
}

#[test]
fn functions_fit_a_screen() {
    let mut long = BTreeMap::new();
    for (name, text) in sources() {
        if !name.contains("/src/") || name.contains("/tests") {
            continue;
        }
        // Unit tests stand at the end of a file.
        let lines: Vec<&str> = text.lines().take_while(|line| *line != "mod tests {").collect();
        for (at, line) in lines.iter().enumerate() {
            let Some((indent, function)) = function(line) else { continue };
            if line.ends_with(';') || line.ends_with('}') {
                continue;
            }
            // Formatted code closes a body where it began.
            let end = lines[at..]
                .iter()
                .position(|line| line.strip_prefix(indent).is_some_and(|line| line == "}" || line == ");"));
            let length = end.map_or(1, |end| end + 1);
            if length > FUNCTION_LINES_MAX {
                long.insert(format!("{name} {function}"), length);
            }
        }
    }
    check(include_str!("long_functions.txt"), long);
}

#[test]
fn folders_are_few_files() {
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    for (name, _) in sources() {
        *count.entry(name.rsplit_once('/').unwrap().0.to_owned()).or_default() += 1;
    }
    count.retain(|_, files| *files > FOLDER_FILES_MAX);
    check(include_str!("full_folders.txt"), count);
}

#[test]
fn comments_are_narrow() {
    let mut wide = Vec::new();
    for (name, text) in sources() {
        for (at, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("//") && line.chars().count() > COMMENT_COLUMNS_MAX {
                wide.push(format!("{name}:{}", at + 1));
            }
        }
    }
    assert!(wide.is_empty(), "comments beyond column {COMMENT_COLUMNS_MAX}: {wide:#?}");
}

/// Whether a path of ARCHITECTURE.md, such as `storage/read/merge`, names a file or folder of a crate, or is
/// not one of theirs.
fn is_there(path: &str, crates: &[String]) -> bool {
    let Some((krate, inside)) = path.split_once('/') else { return true };
    if !crates.iter().any(|name| name == krate) {
        return true;
    }
    // `memory::Thing` and `file::Type` name an item in a file.
    let inside = inside.split("::").next().unwrap();
    let base = root().join("crates").join(krate).join("src").join(inside);
    base.is_dir() || base.with_extension("rs").is_file()
}

#[test]
fn paths_of_the_map_exist() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let crates = crates();
    let quoted: BTreeSet<&str> =
        text.split('`').skip(1).step_by(2).filter(|path| !path.contains(' ')).collect();
    let gone: Vec<_> = quoted.into_iter().filter(|path| !is_there(path, &crates)).collect();
    assert!(gone.is_empty(), "ARCHITECTURE.md names what is not there: {gone:?}");
}

/// The first part of each path into its own crate that a file names, as `read` of `crate::read::merge`.
fn named_modules(text: &str) -> BTreeSet<&str> {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    text.split("crate::")
        .skip(1)
        .map(|behind| behind.split(|c| !is_name(c)).next().unwrap())
        .filter(|name| !name.is_empty())
        .collect()
}

/// Pairs of a crate's top modules of which each names the other.
fn mutual_pairs(krate: &str, sources: &[(String, String)]) -> usize {
    let prefix = format!("crates/{krate}/src/");
    let mut uses: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, text) in sources {
        let Some(inside) = name.strip_prefix(&prefix) else { continue };
        let module = inside.split(['/', '.']).next().unwrap();
        if !name.contains("/tests") && !matches!(module, "lib" | "main") {
            uses.entry(module).or_default().extend(named_modules(text));
        }
    }
    let pairs = uses.iter().flat_map(|(a, named)| named.iter().map(move |b| (*a, *b)));
    pairs.filter(|(a, b)| a < b && uses.get(b).is_some_and(|named| named.contains(a))).count()
}

#[test]
fn modules_name_each_other_less_and_less() {
    let sources = sources();
    let found = crates().into_iter().map(|krate| (krate.clone(), mutual_pairs(&krate, &sources)));
    check(include_str!("mutual_modules.txt"), found.filter(|(_, pairs)| *pairs > 0).collect());
}
