//! Settings of published command lines, in every spelling.

use std::time::Duration;

use wire::Consistency;

use super::*;
use crate::stress::settings_of;

fn refused(line: &str) -> String {
    match settings_of(line) {
        Ok(_) => panic!("taken: {line}"),
        Err(StressError::Help { text, message }) => {
            assert!(text.contains("Usage:"), "{line}: {text}");
            message
        }
        Err(error) => error.to_string(),
    }
}

/// Command lines as they stand in benchmarks that people published, of several versions of cassandra-stress.
#[test]
fn published_command_lines_are_taken_as_they_are() {
    let nodes = "172.31.1.79,172.31.4.45,172.31.7.248";
    let check =
        |line: &str| settings_of(&line.replace("$NODES", nodes)).unwrap_or_else(|e| panic!("{line}: {e}"));
    let settings = check(
        "write no-warmup cl=QUORUM n=1 -schema replication(factor=3) keyspace=keyspace2 -mode cql3 native \
         -errors ignore -node $NODES",
    );
    assert_eq!(settings.schema.keyspace.as_deref(), Some("keyspace2"));
    assert!(settings.schema.create_keyspace().contains("'replication_factor' : '3'"));
    assert_eq!(settings.command.consistency, Consistency::Quorum);
    assert!(settings.errors.ignore && settings.command.no_warmup && settings.mode.is_prepared);
    assert_eq!(settings.nodes.list.len(), 3);

    let settings = check(
        "write no-warmup cl=QUORUM n=1000000000 -schema replication(factor=3) keyspace=k -mode cql3 native -rate \
         threads=200 -pop seq=1..1000000000 -node $NODES -errors ignore",
    );
    assert_eq!(settings.command.count(), Some(1_000_000_000));
    assert_eq!(settings.rate.threads, Threads::Count(200));
    let sequence = Seeds::Sequence { first: 1, last: 1_000_000_000, wrap: true, lookback: None };
    assert_eq!(settings.population.seeds, sequence);

    for command in ["read", "write"] {
        let settings = check(&format!(
            "{command} no-warmup cl=QUORUM duration=180m -schema keyspace=k replication(factor=3) -mode cql3 native \
             -rate threads=200 limit=20000/s -errors ignore -pop dist=gauss(1..1000000000,500000000,5000000) -node $NODES"
        ));
        assert_eq!((settings.rate.per_second, settings.rate.is_fixed), (20_000, false));
        let End::Duration { time, .. } = settings.command.end else { panic!("{:?}", settings.command.end) };
        assert_eq!(time, Duration::from_secs(180 * 60));
    }

    let settings = check(
        "write no-warmup CL=ALL n=55000000 -pop seq=55000001..110000000 -col size=FIXED(1024) n=FIXED(1) -schema \
         replication(factor=3) -mode cql3 native -errors ignore -node $NODES -rate threads=250",
    );
    assert_eq!(settings.columns.names, ["C0"]);
    assert_eq!(settings.columns.size.build(0).max(), 1024);
    check(
        "read no-warmup CL=ONE duration=1h -pop dist=uniform(1..220000000) -col size=FIXED(1024) n=FIXED(1) -schema \
         replication(factor=3) -mode cql3 native -errors ignore -node $NODES -rate threads=500 limit=5000/s",
    );
    let settings = check(
        "write n=580000000 cl=QUORUM -schema replication(factor=3) -mode native cql3 -pop seq=4060000001..4640000000 \
         -node $NODES -rate threads=500 -log file=testwrite_scylla16_halfsize_feb242017.data",
    );
    assert_eq!(settings.log.file.as_deref(), Some("testwrite_scylla16_halfsize_feb242017.data"));
    for spread in ["966666666", "100"] {
        check(&format!(
            "read duration=60m cl=QUORUM -mode native cql3 -pop dist=gaussian(1..5800000000,2900000000,{spread}) -node \
             $NODES -rate threads=500 -log file=x"
        ));
    }
    let settings = check(
        "mixed ratio(read=1) duration=15min -pop dist=gauss(1..10000000,5000000,500000) -mode native cql3 -rate \
         threads=700 -node $NODES",
    );
    let Work::Mixed { ratios, .. } = &settings.command.work else { panic!() };
    assert_eq!(ratios[..], [(Predefined::Read, 1.0)]);
    let settings = check("write duration=15min -mode native cql3 -rate threads=700 -node $NODES");
    assert_eq!(settings.mode.deprecated, ["native", "cql3"]);
    assert!(matches!(settings.command.end, End::Duration { number: 15, unit: "MINUTES", .. }));
}

#[test]
fn what_is_left_out_has_the_defaults_of_the_original() {
    let settings = settings_of("write").unwrap();
    assert_eq!(settings.command.end, End::Uncertainty { target: 0.02, min: 30, max: 200 });
    assert_eq!(settings.rate.threads, Threads::Range { min: 4, max: 1000 });
    assert!(settings.rate.auto);
    let settings = settings_of("counter_write n=10k").unwrap();
    assert_eq!(settings.rate.threads, Threads::Count(200));
    let all = Seeds::Sequence { first: 1, last: 10_000, wrap: true, lookback: None };
    assert_eq!(settings.population.seeds, all);
    let settings = settings_of("read n=10k -rate threads=1").unwrap();
    let Seeds::Distribution(distribution) = &settings.population.seeds else { panic!() };
    assert_eq!(distribution.describe(), "Gaussian:  min=1,max=10000,mean=5000.500000,stdev=1666.500000");
    assert_eq!((settings.errors.tries, settings.errors.ignore), (10, false));
    assert_eq!((settings.ports.native, settings.mode.connections_per_host), (9042, 8));
    assert_eq!(settings.command.consistency, Consistency::LocalOne);
}

/// The settings printed by cassandra-stress 5 for this command line.
#[test]
fn settings_are_printed_as_the_original_prints_them() {
    let expected = "\
******************** Stress Settings ********************
Command:
  Type: write
  Count: 10,000
  No Warmup: false
  Consistency Level: LOCAL_ONE
  Target Uncertainty: not applicable
  Key Size (bytes): 10
  Counter Increment Distibution: add=fixed(1)
Rate:
  Auto: false
  Thread Count: 50
  OpsPer Sec: 0
Population:
  Sequence: 1..10000
  Order: ARBITRARY
  Wrap: true
Insert:
  Revisits: Uniform:  min=1,max=1000000
  Visits: Fixed:  key=1
  Row Population Ratio: Ratio: divisor=1.000000;delegate=Fixed:  key=1
  Batch Type: not batching
Columns:
  Max Columns Per Key: 5
  Column Names: [C0, C1, C2, C3, C4]
  Comparator: AsciiType
  Timestamp: null
  Variable Column Count: false
  Slice: false
  Size Distribution: Fixed:  key=34
  Count Distribution: Fixed:  key=5
Errors:
  Ignore: false
  Tries: 10
Log:
  No Summary: false
  No Settings: false
  File: null
  Interval Millis: 1000
  Level: NORMAL
Mode:
  API: JAVA_DRIVER_NATIVE
  Connection Style: CQL_PREPARED
  Protocol Version: V5
  Username: null
  Password: null
  Auth Provide Class: null
  Max Pending Per Connection: 128
  Connections Per Host: 8
  Compression: NONE
Node:
  Nodes: [localhost]
  Is White List: false
  Datacenter: null
Schema:
  Keyspace: keyspace1
  Replication Strategy: org.apache.cassandra.locator.SimpleStrategy
  Replication Strategy Options: {replication_factor=1}
  Table Compression: null
  Table Compaction Strategy: null
  Table Compaction Strategy Options: {}
Transport:
  Truststore: null
  Truststore Password: null
  Keystore: null
  Keystore Password: null
  SSL Protocol: TLS
  SSL Algorithm: null
  SSL Ciphers: TLS_RSA_WITH_AES_128_CBC_SHA,TLS_RSA_WITH_AES_256_CBC_SHA
Port:
  Native Port: 9042
  JMX Port: 7199
JMX:
  Username: null
  Password: *not set*
Graph:
  File: null
  Revision: unknown
  Title: null
  Operation: WRITE
TokenRange:
  Wrap: false
  Split Factor: 1
Credentials file:
  File: *not set*
  CQL username: *not set*
  CQL password: *not set*
  JMX username: *not set*
  JMX password: *not set*
  Transport truststore password: *not set*
  Transport keystore password: *not set*
Reporting:
  Output frequency: 1s
  Header frequency: *not set*";
    let settings = settings_of("write n=10000 -rate threads=50").unwrap();
    assert_eq!(settings.describe().join("\n"), expected);
}

#[test]
fn tables_are_made_as_the_original_makes_them() {
    let settings = settings_of(
        "write n=1 -col n=FIXED(2) -schema keyspace=ks replication(strategy=NetworkTopologyStrategy,dc1=3) \
         compression=LZ4Compressor compaction(strategy=LeveledCompactionStrategy,sstable_size_in_mb=10)",
    )
    .unwrap();
    assert_eq!(
        settings.schema.create_keyspace(),
        "CREATE KEYSPACE IF NOT EXISTS \"ks\" WITH replication = {'class': \
         'org.apache.cassandra.locator.NetworkTopologyStrategy', 'dc1' : '3'} AND durable_writes = true;\n"
    );
    assert_eq!(
        settings.schema.create_standard(&settings.columns.names),
        "CREATE TABLE IF NOT EXISTS standard1 (key blob PRIMARY KEY \n, \"C0\" blob\n, \"C1\" blob) WITH compression \
         = {'class' : 'LZ4Compressor'} AND compaction = { 'class' : 'LeveledCompactionStrategy', \
         'sstable_size_in_mb' : '10'};\n"
    );
    let plain = settings_of("counter_write n=1").unwrap();
    let table = plain.schema.create_counter(&plain.columns.names[..1]);
    assert_eq!(
        table,
        "CREATE TABLE IF NOT EXISTS counter1 (key blob PRIMARY KEY\n, \"C0\" counter) WITH compression = {};\n"
    );
}

#[test]
fn what_makes_no_sense_is_refused_in_the_words_of_the_original() {
    let check = |line: &str, expected: &str| assert_eq!(refused(line), expected, "{line}");
    check("wrote n=1", "No command specified");
    check("write x=1", "Invalid parameter x=1");
    check("write n=abc", "Invalid value abc; must match pattern [0-9]+[bmk]?");
    check("write duration=5x", "Invalid value 5x; must match pattern [0-9]+[smh]");
    check("write n=1 duration=5s", "Invalid WRITE options provided, see output for valid options");
    check(
        "write n=1 -rate threads=1 limit=5/s fixed=6/s",
        "can't have both fixed and throttle set, choose one.",
    );
    check("write n=1 -rate limit=5/s", "Invalid -rate options provided, see output for valid options");
    check(
        "write n=1 -pop seq=1..2 dist=fixed(1)",
        "Invalid -pop options provided, see output for valid options",
    );
    check("write n=1 -col n=uniform(1..5)", "Variable column counts are not implemented for CQL");
    check("write n=1 -schema replication(strategy=No)", "Invalid replication strategy: No");
    check("mixed ratio(read=0) n=1", "Must specify at least one command with a non-zero ratio");
    check(
        "write n=1 -rates threads=1 -x",
        "Error processing command line arguments. The following were ignored:\n-rates threads=1\n-x",
    );
    check(
        "user profile=/nonexistent ops(insert=1) n=1 -schema keyspace=a",
        "-schema can only be provided with predefined operations insert, read, etc.; the 'user' command requires a \
         schema yaml instead",
    );
    assert!(refused("write n=1 -sendto host").starts_with("not supported: -sendto"));
    assert!(refused("write n=1 -transport truststore=x").starts_with("not supported: -transport"));
    assert!(refused("write n=1 -mode thrift").contains("thrift"));
}

#[test]
fn help_tells_of_every_command_and_option() {
    let text = general_help();
    for (names, _) in COMMANDS {
        assert!(text.contains(&format!("\n{:<20} : ", names[0])), "{names:?}");
        assert!(help_for(names[0]).is_some());
    }
    for (name, _, groups) in OPTIONS {
        let help = help_for(&format!("-{name}")).unwrap();
        assert!(groups().is_empty() || help.contains(&format!("Usage: -{name} ")), "{help}");
    }
    assert_eq!(help_for("nothing"), None);
    let rate = help_for("-rate").unwrap();
    assert!(rate.contains("Usage: -rate threads=? [throttle=?] [fixed=?]"), "{rate}");
}
