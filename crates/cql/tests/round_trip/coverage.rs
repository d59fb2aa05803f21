//! Whether the generators make every variant of every enum of the syntax tree.
//!
//! The variants are read from the source, so that a new variant that no generator makes fails here.

use std::collections::BTreeSet;

use cql::ast::Statement;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::{roles, schema, selects, writes};

const SOURCES: [&str; 9] = [
    include_str!("../../src/ast/auth.rs"),
    include_str!("../../src/ast/ddl.rs"),
    include_str!("../../src/ast/modify.rs"),
    include_str!("../../src/ast/names.rs"),
    include_str!("../../src/ast/relation.rs"),
    include_str!("../../src/ast/select.rs"),
    include_str!("../../src/ast/statement.rs"),
    include_str!("../../src/ast/term.rs"),
    include_str!("../../src/ast/types.rs"),
];

/// Variants of enums as `Enum::Variant`.
fn variants() -> BTreeSet<(String, String)> {
    let mut variants = BTreeSet::new();
    for source in SOURCES {
        let mut inside: Option<&str> = None;
        for line in source.lines() {
            if let Some(name) = line.strip_prefix("pub enum ") {
                inside = name.split([' ', '<']).next();
            } else if line == "}" {
                inside = None;
            } else if let (Some(name), Some(rest)) = (inside, line.strip_prefix("    "))
                && rest.starts_with(|first: char| first.is_ascii_uppercase())
            {
                let variant = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap();
                variants.insert((name.to_owned(), variant.to_owned()));
            }
        }
    }
    variants
}

#[test]
fn every_variant_of_the_tree_is_generated() {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let mut words = BTreeSet::new();
    // Always the same statements; of a family as many as it takes to meet its rarest variant.
    let families = [
        (selects::select().prop_map(Statement::Select).boxed(), 300),
        (writes::write(), 300),
        (schema::schema_change(), 1_200),
        (roles::role_change(), 1_200),
    ];
    for (family, count) in families {
        for _ in 0..count {
            let statement = family.new_tree(&mut runner).unwrap().current();
            let text = format!("{statement:?}");
            for word in text.split(|c: char| !c.is_alphanumeric()) {
                if word.starts_with(|first: char| first.is_ascii_uppercase()) && !words.contains(word) {
                    words.insert(word.to_owned());
                }
            }
        }
    }
    let variants = variants();
    let missing: Vec<_> = variants.iter().filter(|(_, variant)| !words.contains(variant)).collect();
    assert!(missing.is_empty(), "{} of {} are not generated: {missing:?}", missing.len(), variants.len());
    println!("{} variants", variants.len());
    assert!(variants.len() > 200, "only {} variants were found", variants.len());
}
