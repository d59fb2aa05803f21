//! Keys have their meaning in Cassandra and ScyllaDB; invalid values are refused with their position.

use super::*;

fn parse(text: &str) -> Result<(Config, Vec<String>), String> {
    let (config, remarks) = Config::from_yaml(Path::new("c.yaml"), text).map_err(|e| e.to_string())?;
    Ok((config, remarks.warnings.into_iter().chain(remarks.without_effect).collect()))
}

#[test]
fn guardrails_are_set_by_cassandras_keys() {
    let (config, warnings) = parse(
        "tables_warn_threshold: 10\ntables_fail_threshold: 20\nkeyspaces_warn_threshold: -1\n\
         batch_size_warn_threshold: 64KiB\nbatch_size_fail_threshold_in_kb: 640\n\
         unlogged_batch_across_partitions_warn_threshold: -1\n\
         table_properties_disallowed:\n  - cdc\n  - comment\ndrop_keyspace_enabled: false\n\
         user_defined_functions_enabled: false\n",
    )
    .unwrap();
    assert_eq!(config.guardrails.tables.warn, Some(10));
    assert_eq!(config.guardrails.tables.fail, Some(20));
    assert_eq!(config.guardrails.keyspaces.warn, None);
    let bytes = config.guardrails.batch_bytes;
    assert_eq!((bytes.warn, bytes.fail), (Some(64 << 10), Some(640 << 10)));
    assert_eq!(config.guardrails.unlogged_batch_partitions, None);
    assert!(config.guardrails.table_properties.disallowed.iter().eq(["cdc", "comment"]));
    assert!(!config.guardrails.drop_keyspace && !config.user_functions);
    assert_eq!(warnings, Vec::<String>::new());
    assert!(parse("tables_warn_threshold: many\n").is_err());
    for (text, expected) in [
        (
            "tables_fail_threshold: 10\ntables_warn_threshold: 20\n",
            "c.yaml:2:24: tables_warn_threshold: The warn threshold 20 for tables_warn_threshold should be lower than \
             the fail threshold 10",
        ),
        (
            "minimum_replication_factor_warn_threshold: 2\nminimum_replication_factor_fail_threshold: 3\n",
            "c.yaml:1:44: minimum_replication_factor_warn_threshold: The warn threshold 2 for \
             minimum_replication_factor_warn_threshold should be greater than the fail threshold 3",
        ),
        (
            "maximum_replication_factor_fail_threshold: 2\ndefault_keyspace_rf: 3\n",
            "c.yaml:1:44: maximum_replication_factor_fail_threshold: maximum_replication_factor_fail_threshold to be \
             set (2) cannot be lesser than default_keyspace_rf (3)",
        ),
        (
            "minimum_replication_factor_fail_threshold: 2\n",
            "c.yaml:1:44: minimum_replication_factor_fail_threshold: minimum_replication_factor_fail_threshold to be \
             set (2) cannot be greater than default_keyspace_rf (1)",
        ),
        (
            "default_keyspace_rf: 0\n",
            "c.yaml:1:22: default_keyspace_rf: default_keyspace_rf cannot be less than 1",
        ),
        (
            "partition_size_warn_threshold: 2MiB\npartition_size_fail_threshold: 1024KiB\n",
            "c.yaml:1:32: partition_size_warn_threshold: The warn threshold 2MiB for partition_size_warn_threshold \
             should be lower than the fail threshold 1MiB",
        ),
        (
            "partition_tombstones_fail_threshold: 0\n",
            "c.yaml:1:38: partition_tombstones_fail_threshold: Invalid value for \
             partition_tombstones_fail_threshold: 0 is not allowed; if attempting to disable use -1",
        ),
    ] {
        assert_eq!(parse(text).unwrap_err(), expected);
    }
    let (config, warnings) = parse(
        "partition_size_warn_threshold: 1MiB\npartition_tombstones_warn_threshold: 5\n\
         partition_tombstones_fail_threshold: 5\n",
    )
    .unwrap();
    assert!(warnings.is_empty());
    assert_eq!(config.guardrails.partition_bytes.warn, Some(1 << 20));
    assert_eq!(config.guardrails.partition_tombstones.fail, Some(5));
    assert!(parse("data_disk_usage_percentage_warn_threshold: 101\n").is_err());
    let (config, warnings) = parse(
        "compaction_large_partition_warning_threshold_mb: 500\ncompaction_large_row_warning_threshold_mb: 5\n\
         compaction_large_cell_warning_threshold_mb: 2\ncompaction_rows_count_warning_threshold: 7\n\
         compaction_collection_elements_count_warning_threshold: 8\ncompaction_large_data_records_per_sstable: 9\n\
         compaction_large_partition_warning_threshold: 3MiB\ncompaction_tombstone_warning_threshold: 4\n",
    )
    .unwrap();
    assert!(warnings.is_empty());
    let expected = LargeLimits {
        partition_bytes: 500 << 20,
        rows: 7,
        row_bytes: 5 << 20,
        cell_bytes: 2 << 20,
        elements: 8,
        records_max: 9,
    };
    assert_eq!(config.large_limits, expected);
    assert_eq!(config.guardrails.partition_bytes.warn, Some(3 << 20));
    assert_eq!(config.guardrails.partition_tombstones.warn, Some(4));
    assert!(parse("compaction_large_row_warning_threshold_mb: -1\n").is_err());
    let (config, warnings) = parse(
        "keyspace_count_warn_threshold: 40\ndata_disk_usage_percentage_fail_threshold: 90\n\
         use_statements_enabled: false\nsecondary_indexes_per_table_warn_threshold: 3\n",
    )
    .unwrap();
    assert_eq!(config.guardrails.keyspaces.warn, Some(35));
    assert_eq!(config.guardrails.writes.unwrap().disk_percent.fail, Some(90));
    assert!(!config.guardrails.use_statements);
    assert_eq!(
        warnings,
        [
            "c.yaml:4: 'secondary_indexes_per_table_warn_threshold' has no effect yet: secondary indexes are not \
          supported"
        ]
    );
    assert!(parse("table_properties_warned: 5\n").is_err());
    let (config, _) =
        parse("replication_strategy_fail_list: [org.apache.cassandra.locator.SimpleStrategy]\n").unwrap();
    assert!(config.guardrails.replication_strategies.disallowed.contains("SimpleStrategy"));
}

#[test]
fn administration_has_its_ports_and_policies() {
    let (config, warnings) = parse(
        "api_address: 127.0.0.9\napi_port: 10001\nprometheus_port: 0\nauto_snapshot: false\n\
         critical_disk_utilization_level: 0.9\ndisk_failure_policy: die\ncommit_failure_policy: ignore\n",
    )
    .unwrap();
    assert!(warnings.is_empty());
    let admin = &config.admin;
    assert_eq!(admin.api_address, Some(IpAddr::from([127, 0, 0, 9])));
    assert_eq!((admin.api_port, admin.prometheus_port), (Port::Given(10_001), Port::Given(0)));
    assert!(!admin.auto_snapshot);
    assert_eq!(admin.critical_disk_utilization, Some(0.9));
    let policies = (admin.disk_failure_policy, admin.commit_failure_policy);
    assert_eq!(policies, (storage::FailurePolicy::Die, storage::FailurePolicy::Ignore));
    assert!(parse("critical_disk_utilization_level: 2\n").is_err());
    assert!(parse("disk_failure_policy: stop_commit\n").is_err());
    assert!(parse("api_port: 70000\n").is_err());
}

#[test]
fn guardrails_of_reads_and_writes_have_cassandras_keys() {
    let (config, warnings) = parse(
        "tombstone_warn_threshold: -1\ntombstone_failure_threshold: 7\nquery_tombstone_page_limit: 0\n\
         cas_contention_timeout: 5s\nitems_per_collection_fail_threshold: 3\n\
         column_value_size_warn_threshold: 1KiB\nmaximum_timestamp_warn_threshold: 1d\n\
         write_consistency_levels_disallowed: ALL, any\nread_consistency_levels_warned: QUORUM\n\
         user_timestamps_enabled: false\nsimplestrategy_enabled: false\n\
         user_defined_functions_warn_timeout: 20ms\nuser_defined_function_fail_timeout: 2000\n",
    )
    .unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(config.cas_contention_timeout, Duration::from_secs(5));
    let times = config.user_function_times;
    assert_eq!((times.warn, times.fail), (Duration::from_millis(20), Duration::from_secs(2)));
    assert!(parse("user_defined_functions_fail_timeout: 100ms\n").is_err());
    let guardrails = &config.guardrails;
    assert_eq!((guardrails.tombstones.warn, guardrails.tombstones.fail), (None, Some(7)));
    assert_eq!(guardrails.tombstones_of_page, None);
    assert!(!guardrails.simple_strategy);
    assert_eq!(guardrails.read_levels.warned, [wire::consistency::Consistency::Quorum]);
    let writes = guardrails.writes.as_ref().unwrap();
    assert_eq!(writes.items_per_collection.fail, Some(3));
    assert_eq!(writes.column_value_bytes.warn, Some(1024));
    assert_eq!(writes.maximum_timestamp_us.warn, Some(24 * 3600 * 1_000_000));
    let levels = [wire::consistency::Consistency::Any, wire::consistency::Consistency::All];
    assert_eq!(writes.levels.disallowed, levels);
    assert!(!writes.user_timestamps && writes.read_before_write_lists);
    assert_eq!(Config::default().guardrails.writes, None);
    assert!(parse("read_consistency_levels_warned: MOST\n").is_err());
}

#[test]
fn hints_have_cassandras_keys() {
    let (config, warnings) = parse(
        "hints_directory: /h\nhinted_handoff_enabled: false\nhinted_handoff_disabled_datacenters: [a, b]\n\
         max_hint_window: 2h\nmax_hints_size_per_host: 1GiB\nmax_hints_file_size: 8MiB\nhints_flush_period: 5s\n\
         hinted_handoff_throttle: 512KiB\nmax_hints_delivery_threads: 4\nbatchlog_replay_throttle_in_kb: 3\n",
    )
    .unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    let expected = super::HintsConfig {
        folder: Some("/h".into()),
        is_on: false,
        data_centers_without: vec!["a".to_owned(), "b".to_owned()],
        window: Duration::from_secs(7200),
        host_bytes_max: 1 << 30,
        file_bytes_max: 8 << 20,
        sync_every: Duration::from_secs(5),
        bytes_per_second: 512 << 10,
        hosts_at_once: 4,
        batch_bytes_per_second: 3 << 10,
    };
    assert_eq!(config.hints, expected);
    let (config, _) = parse("max_hints_size_per_host: 0B\nhinted_handoff_throttle: 0KiB\n").unwrap();
    assert_eq!((config.hints.host_bytes_max, config.hints.bytes_per_second), (0, 0));
    for wrong in ["max_hints_file_size: 1KiB", "max_hints_delivery_threads: 0", "max_hint_window: long"] {
        assert!(parse(&format!("{wrong}\n")).is_err(), "{wrong}");
    }
}

#[test]
fn keys_of_both_worlds_are_understood() {
    let (config, warnings) = parse(
        "cluster_name: 'x y'\nnative_transport_port: 9999\ncommitlog_sync: batch\ncommitlog_segment_size_in_mb: 8\n\
         read_request_timeout: 250ms\nwrite_request_timeout_in_ms: 3000\nnative_transport_max_frame_size: 1MiB\n\
         data_file_directories:\n  - /d\ndeveloper_mode: yes\nmemory: 512M\nnum_tokens: 16\n\
         sstable_summary_ratio: 0.05\ncolumn_index_size: 16KiB\nmax_mutation_size: 4MiB\n\
         components_memory_reclaim_threshold: 0.1\n",
    )
    .unwrap();
    assert_eq!(config.cluster_name, "x y");
    assert_eq!(config.native_port, 9999);
    assert!(config.commitlog_batch && config.developer_mode);
    assert_eq!((config.commitlog_segment_bytes, config.mutation_bytes_max), (8 << 20, Some(4 << 20)));
    assert_eq!(config.read_timeout, Duration::from_millis(250));
    assert_eq!(config.write_timeout, Duration::from_secs(3));
    assert_eq!(config.frame_bytes_max, 1 << 20);
    assert_eq!((config.sstable_summary_ratio, config.column_index_bytes), (0.05, 16 << 10));
    assert_eq!(config.components_share, 0.1);
    assert!(parse("sstable_summary_ratio: 2\n").is_err() && parse("column_index_size: 1\n").is_err());
    assert_eq!(config.data_dir.as_deref(), Some(Path::new("/d")));
    assert_eq!(config.memory_bytes, Some(512 << 20));
    assert_eq!(warnings, ["c.yaml: keys without effect here: num_tokens"]);
}

/// The keys that are set in the `cassandra.yaml` that Cassandra 5.0 comes with, and their values.
const STOCK_CASSANDRA: &str = "\
cluster_name: 'Test Cluster'\nnum_tokens: 16\nallocate_tokens_for_local_replication_factor: 3\n\
hinted_handoff_enabled: true\nmax_hint_window: 3h\nhinted_handoff_throttle: 1024KiB\nmax_hints_delivery_threads: 2\n\
hints_flush_period: 10000ms\nmax_hints_file_size: 128MiB\nauto_hints_cleanup_enabled: false\n\
batchlog_replay_throttle: 1024KiB\nauthenticator:\n  class_name: AllowAllAuthenticator\n\
authorizer:\n  class_name: AllowAllAuthorizer\nrole_manager:\n  class_name: CassandraRoleManager\n  parameters:\n\
network_authorizer:\n  class_name: AllowAllNetworkAuthorizer\ncidr_authorizer:\n  class_name: AllowAllCIDRAuthorizer\n\
roles_validity: 2000ms\npermissions_validity: 2000ms\ncredentials_validity: 2000ms\n\
partitioner: org.apache.cassandra.dht.Murmur3Partitioner\ncdc_enabled: false\ndisk_failure_policy: stop\n\
commit_failure_policy: stop\nprepared_statements_cache_size:\nkey_cache_size:\nkey_cache_save_period: 4h\n\
row_cache_size: 0MiB\nrow_cache_save_period: 0s\ncounter_cache_size:\ncounter_cache_save_period: 7200s\n\
commitlog_sync: periodic\ncommitlog_sync_period: 10000ms\ncommitlog_segment_size: 32MiB\n\
commitlog_disk_access_mode: legacy\nseed_provider:\n  - class_name: org.apache.cassandra.locator.SimpleSeedProvider\n    \
parameters:\n      - seeds: \"127.0.0.1:7000\"\nconcurrent_reads: 32\nconcurrent_writes: 32\n\
concurrent_counter_writes: 32\nconcurrent_materialized_view_writes: 32\nmemtable_allocation_type: heap_buffers\n\
index_summary_capacity:\nindex_summary_resize_interval: 60m\ntrickle_fsync: false\ntrickle_fsync_interval: 10240KiB\n\
storage_port: 7000\nssl_storage_port: 7001\nlisten_address: localhost\nstart_native_transport: true\n\
native_transport_port: 9042\nnative_transport_allow_older_protocols: true\nrpc_address: localhost\n\
rpc_keepalive: true\nincremental_backups: false\nsnapshot_before_compaction: false\nauto_snapshot: true\n\
snapshot_links_per_second: 0\ncolumn_index_cache_size: 2KiB\nconcurrent_materialized_view_builders: 1\n\
compaction_throughput: 64MiB/s\nsstable_preemptive_open_interval: 50MiB\nuuid_sstable_identifiers_enabled: false\n\
read_request_timeout: 5000ms\nrange_request_timeout: 10000ms\nwrite_request_timeout: 2000ms\n\
counter_write_request_timeout: 5000ms\ncas_contention_timeout: 1000ms\ntruncate_request_timeout: 60000ms\n\
request_timeout: 10000ms\nslow_query_log_timeout: 500ms\nendpoint_snitch: SimpleSnitch\n\
dynamic_snitch_update_interval: 100ms\ndynamic_snitch_reset_interval: 600000ms\n\
dynamic_snitch_badness_threshold: 1.0\ncrypto_provider:\n  - class_name: \
org.apache.cassandra.security.DefaultCryptoProvider\n    parameters:\n      - fail_on_missing_provider: \"false\"\n\
server_encryption_options:\n  internode_encryption: none\n  legacy_ssl_storage_port_enabled: false\n\
client_encryption_options:\n  enabled: false\n  keystore: conf/.keystore\ninternode_compression: dc\n\
inter_dc_tcp_nodelay: false\ntrace_type_query_ttl: 1d\ntrace_type_repair_ttl: 7d\n\
user_defined_functions_enabled: false\ntransparent_data_encryption_options:\n  enabled: false\n\
tombstone_warn_threshold: 1000\ntombstone_failure_threshold: 100000\nreplica_filtering_protection:\n  \
cached_rows_warn_threshold: 2000\n  cached_rows_fail_threshold: 32000\nbatch_size_warn_threshold: 5KiB\n\
batch_size_fail_threshold: 50KiB\nunlogged_batch_across_partitions_warn_threshold: 10\n\
audit_logging_options:\n  enabled: false\n  logger:\n    - class_name: BinAuditLogger\n\
diagnostic_events_enabled: false\nrepaired_data_tracking_for_range_reads_enabled: false\n\
repaired_data_tracking_for_partition_reads_enabled: false\nreport_unconfirmed_repaired_data_mismatches: false\n\
materialized_views_enabled: false\nsasi_indexes_enabled: false\ntransient_replication_enabled: false\n\
drop_compact_storage_enabled: false\ndefault_secondary_index: legacy_local_table\n\
default_secondary_index_enabled: true\nstorage_compatibility_mode: CASSANDRA_4\n";

/// As [`STOCK_CASSANDRA`], of ScyllaDB's documented defaults.
const STOCK_SCYLLA: &str = "\
num_tokens: 256\ncommitlog_sync: periodic\ncommitlog_sync_period_in_ms: 10000\ncommitlog_segment_size_in_mb: 32\n\
schema_commitlog_segment_size_in_mb: 128\nseed_provider:\n  - class_name: \
org.apache.cassandra.locator.SimpleSeedProvider\n    parameters:\n      - seeds: \"127.0.0.1\"\n\
listen_address: localhost\nnative_transport_port: 9042\nnative_shard_aware_transport_port: 19042\n\
read_request_timeout_in_ms: 5000\nwrite_request_timeout_in_ms: 2000\ncas_contention_timeout_in_ms: 1000\n\
endpoint_snitch: SimpleSnitch\nrpc_address: localhost\napi_port: 10000\napi_address: 127.0.0.1\n\
batch_size_warn_threshold_in_kb: 128\nbatch_size_fail_threshold_in_kb: 1024\n\
partitioner: org.apache.cassandra.dht.Murmur3Partitioner\ncommitlog_total_space_in_mb: -1\n\
murmur3_partitioner_ignore_msb_bits: 12\nforce_schema_commit_log: true\nconsistent_cluster_management: true\n\
tablets_mode_for_new_keyspaces: enabled\nauto_adjust_flush_quota: false\nstrict_is_not_null_in_views: true\n\
maintenance_socket: ignore\nenable_create_table_with_compact_storage: false\n\
rf_rack_valid_keyspaces: false\n";

#[test]
fn a_stock_file_gives_one_line_and_no_warning() {
    for (name, text) in [("cassandra.yaml", STOCK_CASSANDRA), ("scylla.yaml", STOCK_SCYLLA)] {
        let (_, remarks) = Config::from_yaml(Path::new(name), text).unwrap();
        assert_eq!(remarks.warnings, [""; 0], "{name}");
        let line = remarks.without_effect.unwrap();
        assert!(line.starts_with(&format!("{name}: keys without effect here: num_tokens, ")), "{line}");
    }
    let (_, said) =
        parse("materialized_views_enabled: true\nnum_tokens: 16\nread_thresholds_enabled: true\n").unwrap();
    assert_eq!(
        said,
        [
            "c.yaml:1: 'materialized_views_enabled' has no effect yet: materialized views are not supported",
            "c.yaml:3: 'read_thresholds_enabled' has no effect yet: limits on what a read takes in memory are not supported",
            "c.yaml: keys without effect here: num_tokens",
        ]
    );
}

#[test]
fn what_has_no_effect_says_what_follows() {
    let (_, warnings) = parse(
        "partitioner: org.apache.cassandra.dht.Murmur3Partitioner\nauthenticator: AllowAllAuthenticator\n\
         authorizer:\n  class_name: CassandraAuthorizer\nclient_encryption_options:\n  enabled: true\n\
         ignore_authentication: true\nignore_encryption: true\n",
    )
    .unwrap();
    assert_eq!(
        warnings,
        [
            "c.yaml:3: 'authorizer' has no effect yet: clients may do everything",
            "c.yaml:5: 'client_encryption_options' has no effect yet: connections of clients are not encrypted",
        ]
    );
    assert_eq!(parse("authenticator:\nauthorizer:\n").unwrap().1, Vec::<String>::new());
    let (_, warnings) = parse(
        "authenticator: PasswordAuthenticator\nclient_encryption_options: {enabled: false}\n\
         ignore_authentication: true\n",
    )
    .unwrap();
    assert_eq!(warnings, ["c.yaml:1: 'authenticator' has no effect yet: clients need no password"]);
}

#[test]
fn a_node_that_would_be_open_is_refused() {
    let check = |text: &str, expected: &str| assert_eq!(parse(text).unwrap_err(), expected);
    check(
        "rack: r\nauthenticator: PasswordAuthenticator\n",
        "c.yaml:2:16: authenticator: not there yet, so clients need no password; a node that is to start \
         all the same has ignore_authentication: true",
    );
    check(
        "authorizer: CassandraAuthorizer\nignore_authentication: false\n",
        "c.yaml:1:13: authorizer: not there yet, so clients may do everything; a node that is to start \
         all the same has ignore_authentication: true",
    );
}

#[test]
fn no_key_of_security_is_taken_and_ignored() {
    // The key, the consequence that stops the start, and the `ignore_` key that accepts it.
    for (text, consequence, accepted) in [
        ("authenticator: {class_name: MutualTlsAuthenticator}", "clients need no password", "authentication"),
        ("role_manager: com.scylladb.auth.LDAPRoleManager", "there are no roles", "authentication"),
        ("network_authorizer: CassandraNetworkAuthorizer", "every data center", "authentication"),
        ("cidr_authorizer: {class_name: CassandraCIDRAuthorizer}", "from every address", "authentication"),
        ("maintenance_mode: true", "clients may connect", "authentication"),
        ("client_encryption_options: {enabled: true, optional: false}", "not encrypted", "encryption"),
        ("client_encryption_options: {enabled: true}", "not encrypted", "encryption"),
        ("client_encryption_options: {enabled: 'True', certificate: c}", "not encrypted", "encryption"),
        ("server_encryption_options: {internode_encryption: dc}", "between nodes are not", "encryption"),
        ("internode_authenticator: X", "other nodes need no password", "authentication"),
        ("native_transport_port_ssl: 9142", "no port for encrypted", "encryption"),
        ("native_shard_aware_transport_port_ssl: 19142", "no port for encrypted", "encryption"),
        ("transparent_data_encryption_options: {enabled: true}", "commit log is not encrypted", "encryption"),
        ("system_info_encryption: {enabled: true}", "commit log is not encrypted", "encryption"),
        ("user_info_encryption: {enabled: yes}", "files are not encrypted", "encryption"),
        ("config_encryption_active: true", "cannot be read", "encryption"),
        ("audit: table", "not recorded", "audit"),
        (
            "audit_logging_options: {enabled: true, logger: [{class_name: BinAuditLogger}]}",
            "not recorded",
            "audit",
        ),
    ] {
        let error = parse(&format!("{text}\n")).unwrap_err();
        assert!(error.contains(consequence) && error.contains("not there yet, so "), "{text}: {error}");
        assert!(error.ends_with(&format!("has ignore_{accepted}: true")), "{text}: {error}");
        let (_, warnings) = parse(&format!("{text}\nignore_{accepted}: true\n")).unwrap();
        assert!(warnings.len() == 1 && warnings[0].contains(consequence), "{text}: {warnings:?}");
    }
    // Two missing features need two `ignore_` keys.
    assert!(parse("audit: table\nauthorizer: X\nignore_audit: true\n").unwrap_err().contains("authorizer"));
    // Keys whose lack makes nothing less secure only give a warning.
    for text in [
        "client_encryption_options: {enabled: true, optional: true}",
        "alternator_enforce_authorization: true",
        "auth_superuser_name: admin",
        "audit_categories: DML",
    ] {
        assert_eq!(parse(&format!("{text}\n")).map(|(_, warnings)| warnings.len()), Ok(1), "{text}");
    }
    // The files shipped with Cassandra and ScyllaDB ask for no security feature.
    let (_, warnings) = parse(
        "authenticator:\n  class_name: AllowAllAuthenticator\nauthorizer: AllowAllAuthorizer\n\
         role_manager: CassandraRoleManager\nnetwork_authorizer: AllowAllNetworkAuthorizer\n\
         cidr_authorizer:\n  class_name: AllowAllCIDRAuthorizer\nroles_validity: 2000ms\npermissions_validity: 2000ms\n\
         credentials_validity: 2000ms\nserver_encryption_options:\n  internode_encryption: none\n\
         client_encryption_options:\n  enabled: false\ntransparent_data_encryption_options:\n  enabled: false\n\
         audit_logging_options:\n  enabled: false\naudit: none\nssl_storage_port: 7001\n\
         traverse_auth_from_root: false\nmaintenance_socket: ignore\n",
    )
    .unwrap();
    assert_eq!(warnings, Vec::<String>::new());
}

#[test]
fn a_name_of_the_node_has_no_port() {
    let hosts = |text: &str| parse(text).map(|(config, _)| config.admin.allowed_hosts);
    assert_eq!(hosts("api_allowed_hosts: db1.example.org\n").unwrap(), ["db1.example.org"]);
    assert_eq!(hosts("api_allowed_hosts: [a.b, c.d]\n").unwrap(), ["a.b", "c.d"]);
    assert!(hosts("api_allowed_hosts: ['db1:10000']\n").unwrap_err().contains("without a port"));
}

#[test]
fn changed_keys_are_told_apart_from_those_that_are_followed() {
    let written = |text: &str| {
        let entries = Document::parse(Path::new("c.yaml"), text).unwrap().entries.into_iter();
        Written(entries.map(|entry| (entry.key, entry.value)).collect())
    };
    let before = written("rack: a\nsmp: 2\ndefault_log_level: info\n");
    let after = written("rack: b\nmemory: 1G\ndefault_log_level: warn\nshutdown_timeout: 5s\n");
    assert_eq!(after.changed(&before), ["memory", "rack", "smp"]);
    assert_eq!(before.changed(&before), Vec::<String>::new());
}

#[test]
fn mistakes_name_file_line_and_what_to_write() {
    let check = |text: &str, expected: &str| assert_eq!(parse(text).unwrap_err(), expected);
    check(
        "partitioner: RandomPartitioner\n",
        "c.yaml:1:14: partitioner: expected org.apache.cassandra.dht.Murmur3Partitioner, found 'RandomPartitioner'",
    );
    check(
        "rack: r\nnative_transport_prot: 1\n",
        "c.yaml:2:1: unknown key 'native_transport_prot'; did you mean 'native_transport_port'?",
    );
    check("zzzzzzzzzzzzzzzz: 1\n", "c.yaml:1:1: unknown key 'zzzzzzzzzzzzzzzz'");
    check(
        "native_transport_port: many\n",
        "c.yaml:1:24: native_transport_port: expected a port, 1 to 65535, found 'many'",
    );
    check(
        "commitlog_sync: sometimes\n",
        "c.yaml:1:17: commitlog_sync: expected 'periodic' or 'batch', found 'sometimes'",
    );
    check(
        "commitlog_segment_size: 5 apples\n",
        "c.yaml:1:25: commitlog_segment_size: expected a size such as 32MiB, found '5 apples'",
    );
    check(
        "rpc_address: here\n",
        "c.yaml:1:14: rpc_address: expected an IP address or localhost, found 'here'",
    );
}

#[test]
fn an_empty_file_is_the_defaults() {
    assert_eq!(parse("# nothing\n").unwrap(), (Config::default(), vec![]));
}

#[test]
fn what_is_not_a_map_is_refused_with_its_place() {
    assert!(parse("- a\n").unwrap_err().starts_with("c.yaml:1:"));
    assert!(parse("a: [1\nb: 2").unwrap_err().starts_with("c.yaml:"));
}

#[test]
fn slow_requests_have_a_limit_or_none_and_lines_a_format() {
    let limit = |text: &str| parse(text).map(|(config, _)| config.admin.slow_query_log_timeout);
    let millis = |ms| Ok(Some(Duration::from_millis(ms)));
    assert_eq!(limit(""), millis(500));
    assert_eq!(limit("slow_query_log_timeout: 20ms\n"), millis(20));
    assert_eq!(limit("slow_query_log_timeout: 0ms\n"), Ok(None));
    assert_eq!(limit("slow_query_log_timeout_in_ms: 250\n"), millis(250));
    assert_eq!(limit("slow_query_log_timeout_in_ms: 0\n"), Ok(None));
    assert!(limit("slow_query_log_timeout: soon\n").is_err());
    assert!(!parse("log_format: text\n").unwrap().0.admin.log_is_json);
    assert!(parse("log_format: json\n").unwrap().0.admin.log_is_json);
    assert!(parse("log_format: xml\n").is_err());
}
