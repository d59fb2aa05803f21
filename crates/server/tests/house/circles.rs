//! Circles of files: sets of one crate's files in which each leads to each other by the paths that they name.
//! A circle can be understood, tested and moved as a whole only, so it stays small.

use std::collections::{BTreeMap, BTreeSet};

use super::crates;
use super::tidy::{check, sources};

/// Files that a circle may have without an exception.
const CIRCLE_FILES_MAX: usize = 5;

type Module = Vec<String>;

/// The module of a file below `src`.
fn module_of(inside: &str) -> Module {
    let mut parts: Module = inside.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if parts.last().is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main")) {
        parts.pop();
    }
    parts
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The paths that a text which begins with a path names: braces stand for several. Returns the rest too.
fn paths<'t>(mut text: &'t str, prefix: &[String], found: &mut Vec<Module>) -> &'t str {
    let mut path = prefix.to_vec();
    loop {
        text = text.trim_start();
        if let Some(mut inside) = text.strip_prefix('{') {
            loop {
                inside = paths(inside, &path, found).trim_start();
                // `as other`
                inside = inside.trim_start_matches(|c: char| is_name(c) || c.is_whitespace());
                match inside.strip_prefix(',') {
                    Some(next) if !next.trim_start().starts_with('}') => inside = next,
                    Some(next) => return next.trim_start().strip_prefix('}').unwrap_or(next),
                    None => return inside.strip_prefix('}').unwrap_or(inside),
                }
            }
        }
        let end = text.find(|c: char| !is_name(c)).unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        if name == "super" {
            path.pop();
        } else if name != "self" && name != "crate" && !name.is_empty() {
            path.push(name.to_owned());
        }
        match rest.strip_prefix("::") {
            Some(next) => text = next,
            None => {
                found.push(path);
                return rest;
            }
        }
    }
}

/// The files that each file of a crate names by paths of `crate` and `super`.
fn graph(krate: &str, sources: &[(String, String)]) -> BTreeMap<String, BTreeSet<String>> {
    let prefix = format!("crates/{krate}/src/");
    let files: BTreeMap<Module, &str> = sources
        .iter()
        .filter_map(|(name, text)| Some((module_of(name.strip_prefix(&prefix)?), (name, text))))
        .filter(|(_, (name, _))| !name.contains("/tests"))
        .map(|(module, (name, _))| (module, name.as_str()))
        .collect();
    let mut uses = BTreeMap::new();
    for (name, text) in sources {
        let Some(inside) = name.strip_prefix(&prefix).filter(|_| !name.contains("/tests")) else { continue };
        let module = module_of(inside);
        let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap();
        let code: String = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .flat_map(|line| [line, "\n"])
            .collect();
        let mut named = Vec::new();
        for (at, _) in code.match_indices("crate::") {
            paths(&code[at..], &[], &mut named);
        }
        for (at, _) in code.match_indices("super::") {
            if !code[..at].ends_with("super::") {
                paths(&code[at..], &module, &mut named);
            }
        }
        let to = named.iter().filter_map(|path| {
            (0..path.len())
                .rev()
                .find_map(|length| files.get(&path[..=length]))
                .map(|file| (*file).to_owned())
        });
        uses.insert(name.clone(), to.filter(|file| file != name).collect());
    }
    uses
}

/// All files that can be reached from one.
fn reached(from: &str, uses: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let (mut seen, mut left) = (BTreeSet::new(), vec![from.to_owned()]);
    while let Some(file) = left.pop() {
        for next in uses.get(&file).into_iter().flatten() {
            if seen.insert(next.clone()) {
                left.push(next.clone());
            }
        }
    }
    seen
}

/// The numbers of files of each large circle, with the first file of each.
fn large_circles(uses: &BTreeMap<String, BTreeSet<String>>) -> BTreeMap<String, usize> {
    let reach: BTreeMap<&str, BTreeSet<String>> =
        uses.keys().map(|file| (file.as_str(), reached(file, uses))).collect();
    let mut counted: BTreeSet<&str> = BTreeSet::new();
    let mut circles = BTreeMap::new();
    for (file, to) in &reach {
        if counted.contains(file) || !to.contains(*file) {
            continue;
        }
        let members = reach.iter().filter(|(other, back)| to.contains(**other) && back.contains(*file));
        let members: Vec<&str> = members.map(|(other, _)| *other).collect();
        counted.extend(&members);
        if members.len() > CIRCLE_FILES_MAX {
            circles.insert((*file).to_owned(), members.len());
        }
    }
    circles
}

#[test]
fn circles_of_files_are_small() {
    let sources = sources();
    let found = crates().into_iter().flat_map(|krate| large_circles(&graph(&krate, &sources)));
    check(include_str!("circles.txt"), found.collect());
}

#[test]
fn a_circle_through_braces_and_super_is_found() {
    let file = |name: &str, text: &str| (format!("crates/x/src/{name}.rs"), text.to_owned());
    let sources = [
        file("lib", "mod a; mod b;"),
        file("a", "use crate::{b::{c::C, D}, e};"),
        file("b/mod", ""),
        file("b/c", "use super::f;\n"),
        file("b/f", "// crate::e\nfn f() { crate::a::A::new() }\n#[cfg(test)]\nmod tests { use crate::e; }"),
        file("e", "use crate::a;"),
    ];
    let uses = graph("x", &sources);
    let names = |name: &str| uses[&format!("crates/x/src/{name}.rs")].len();
    assert_eq!([names("a"), names("b/c"), names("b/f"), names("e")], [3, 1, 1, 1]);
    let circle = reached("crates/x/src/a.rs", &uses);
    assert_eq!(circle.len(), 5, "all but lib: {circle:?}");
}
