//! User profiles: the parts that are read, and errors with their places for the parts that are refused.

use super::*;
use crate::stress::random::JavaRandom;
use crate::stress::seeds::SeedManager;
use crate::stress::settings_of;

const PROFILE: &str = "
keyspace: perftesting
keyspace_definition: |
  CREATE KEYSPACE perftesting WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
table: users
table_definition: |
  CREATE TABLE users (username text, n int, first text, PRIMARY KEY (username, n));
extra_definitions:
  - CREATE MATERIALIZED VIEW v AS SELECT 1;
columnspec:
  - name: username
    size: uniform(10..30)
    population: uniform(1..100k)
  - {Name: n, cluster: fixed(5)}
insert:
  partitions: fixed(2)
  select: fixed(1)/2
  batchtype: UNLOGGED
queries:
  Simple1:
    cql: select * from users where username = ? LIMIT 10
    fields: samerow
token_range_queries:
  all_columns:
    columns: '*'
    page_size: 100
";

fn refused(text: &str) -> String {
    Profile::parse("p.yaml", text).err().expect("refused").to_string()
}

#[test]
fn a_profile_is_read_whole() {
    let profile = Profile::parse("p.yaml", PROFILE).unwrap();
    assert_eq!(profile.table_name(), "perftesting.users");
    assert_eq!(profile.queries["simple1"].fields.as_deref(), Some("samerow"));
    assert_eq!(profile.token_range_queries["all_columns"].page_size, Some(100));
    let (spread, _) = &profile.spreads["username"];
    assert_eq!(spread.size.as_ref().unwrap().build(0).max(), 30);
    assert_eq!(profile.spreads["n"].0.cluster.as_ref().unwrap().build(0).max(), 5);
    assert_eq!(profile.insert_distribution(&None, "partitions", "fixed(1)").unwrap(), Factory::fixed(2));
    let lines = profile.describe().join("\n");
    assert!(lines.contains("  Keyspace Name: perftesting\n"));
    assert!(
        lines.contains("    username: Size Distribution: Uniform:  min=10,max=30; Population"),
        "{lines}"
    );
}

#[test]
fn what_is_no_profile_is_refused_with_its_reason() {
    assert!(refused("table: t").contains("keyspace name is required in yaml file"));
    assert!(refused("keyspace: t").contains("table name is required in yaml file"));
    assert!(refused("keyspace: a\ntable: b\nfoo: 1").contains("foo"));
    let spec = "keyspace: a\ntable: b\ncolumnspec:\n  - name: c\n    sice: fixed(1)";
    assert!(
        refused(spec).contains("Unrecognised option(s) in column spec: {sice=fixed(1)}"),
        "{}",
        refused(spec)
    );
    let spec = "keyspace: a\ntable: b\ncolumnspec:\n  - size: fixed(1)";
    assert!(refused(spec).contains("Missing name argument in column spec"));
    let twice = "keyspace: a\ntable: b\nqueries:\n  q: {cql: x}\ntoken_range_queries:\n  q: {columns: '*'}";
    assert!(refused(twice).contains("Found q in both queries and token_range_queries"));
    assert!(refused("[1, 2").contains("p.yaml"));
}

#[test]
fn a_tables_columns_become_generators_and_a_statement() {
    let mut profile = Profile::parse("p.yaml", PROFILE).unwrap();
    let column = |name: &str, ty: CqlType| (name.to_owned(), ty);
    profile.loaded = Some(Table {
        keys: vec![column("username", CqlType::Text)],
        clustering: vec![column("n", CqlType::Int)],
        values: vec![column("first", CqlType::Text)],
    });
    let mut generator = profile.generator(Order::Arbitrary).unwrap();
    assert_eq!(generator.place("username"), Some(Place::Key(0)));
    assert_eq!(generator.place("first"), Some(Place::Row(1)));
    assert_eq!(generator.row_counts(), (5.0, 5.0));
    let mut seeds = SeedManager::new(&settings_of("write n=1").unwrap(), 1).unwrap();
    let seed = seeds.next(true).unwrap();
    let share = crate::stress::partition::Share::Chance(1.0);
    let mut random = JavaRandom::new(1);
    let visit = crate::stress::partition::Partition::visit(
        &mut generator,
        &mut seeds,
        seed,
        share,
        1.0,
        true,
        &mut random,
    );
    let visit = visit.unwrap();
    assert!((10..=30).contains(&visit.key[0].len()));
    profile.loaded.as_mut().unwrap().values.push(column("d", CqlType::Duration));
    let reason = profile.generator(Order::Arbitrary).unwrap_err().to_string();
    assert!(reason.contains("column d"), "{reason}");
}

#[test]
fn routing_keys_are_those_that_tokens_are_made_of() {
    assert_eq!(routing_key(&[b"abc".to_vec()]), b"abc");
    assert_eq!(routing_key(&[b"a".to_vec(), b"bc".to_vec()]), b"\0\x01a\0\0\x02bc\0");
}
