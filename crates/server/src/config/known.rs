//! All keys of `cassandra.yaml` and `scylla.yaml`, so that an existing file starts a node here too.

use super::keys;
use super::security::{self, Follows, Lack};
use super::value::Value;

/// Keys by name, sorted.
#[rustfmt::skip]
pub(super) const KEYS: &[&str] = &[
    "abort_on_internal_error", "abort_on_lsa_bad_alloc", "allocate_tokens_for_keyspace",
    "allocate_tokens_for_local_replication_factor", "allow_extra_insecure_udfs",
    "allow_filtering_enabled", "allow_insecure_udfs", "allowed_repair_based_node_ops",
    "alter_table_enabled", "alternator_address", "alternator_allow_system_table_write",
    "alternator_describe_endpoints", "alternator_enforce_authorization", "alternator_https_port",
    "alternator_max_items_in_batch_write", "alternator_port", "alternator_streams_time_window_s",
    "alternator_timeout_in_ms", "alternator_ttl_period_in_seconds", "alternator_write_isolation",
    "api_address", "api_doc_dir", "api_port", "api_ui_dir", "audit", "audit_categories",
    "audit_keyspaces", "audit_logging_options", "audit_syslog_write_buffer_size", "audit_tables",
    "audit_unix_socket_path", "auth_cache_warming_enabled", "auth_certificate_role_queries",
    "auth_read_consistency_level", "auth_superuser_name", "auth_superuser_salted_password",
    "auth_write_consistency_level", "authenticator", "authenticator_password", "authenticator_user",
    "authorizer", "auto_adjust_flush_quota", "auto_bootstrap", "auto_hints_cleanup_enabled",
    "auto_optimise_full_repair_streams", "auto_optimise_inc_repair_streams",
    "auto_optimise_preview_repair_streams", "auto_snapshot", "auto_snapshot_ttl",
    "autocompaction_on_startup_enabled", "automatic_sstable_upgrade", "available_processors",
    "azure_hosts", "back_pressure_enabled", "back_pressure_strategy",
    "background_writer_scheduling_quota", "batch_size_fail_threshold", "batch_size_fail_threshold_in_kb",
    "batch_size_warn_threshold", "batch_size_warn_threshold_in_kb", "batchlog_endpoint_strategy",
    "batchlog_replay_throttle", "batchlog_replay_throttle_in_kb", "block_for_peers_in_remote_dcs",
    "block_for_peers_timeout_in_secs", "blocked_reactor_notify_ms", "broadcast_address",
    "broadcast_rpc_address", "buffer_pool_use_heap_if_exhausted", "cache_hit_rate_read_balancing",
    "cache_index_pages", "cache_load_timeout", "cache_load_timeout_seconds", "cas_contention_timeout",
    "cas_contention_timeout_in_ms", "cdc_block_writes", "cdc_dont_rewrite_streams", "cdc_enabled",
    "cdc_free_space_check_interval", "cdc_free_space_check_interval_ms", "cdc_on_repair_enabled",
    "cdc_raw_directory", "cdc_total_space", "cdc_total_space_in_mb",
    "check_for_duplicate_rows_during_compaction", "check_for_duplicate_rows_during_reads",
    "cidr_authorizer", "client_encryption_options", "client_error_reporting_exclusions",
    "client_request_size_metrics_enabled", "cluster_name", "collection_size_fail_threshold",
    "collection_size_warn_threshold", "column_index_auto_scale_threshold_in_kb",
    "column_index_cache_size", "column_index_cache_size_in_kb", "column_index_size",
    "column_index_size_in_kb", "column_value_size_fail_threshold", "column_value_size_warn_threshold",
    "columns_per_table_fail_threshold", "columns_per_table_warn_threshold", "commit_failure_policy",
    "commitlog_compression", "commitlog_directory", "commitlog_disk_access_mode",
    "commitlog_flush_threshold_in_mb", "commitlog_max_compression_buffers_in_pool",
    "commitlog_max_data_lifetime_in_seconds", "commitlog_reuse_segments", "commitlog_segment_size",
    "commitlog_segment_size_in_mb", "commitlog_sync", "commitlog_sync_batch_window_in_ms",
    "commitlog_sync_group_window", "commitlog_sync_group_window_in_ms", "commitlog_sync_period",
    "commitlog_sync_period_in_ms", "commitlog_total_space", "commitlog_total_space_in_mb",
    "commitlog_use_hard_size_limit", "commitlog_use_o_dsync", "compact_tables_enabled",
    "compaction_collection_elements_count_warning_threshold", "compaction_enforce_min_threshold",
    "compaction_large_cell_warning_threshold_mb", "compaction_large_data_records_per_sstable",
    "compaction_large_partition_warning_threshold", "compaction_large_partition_warning_threshold_mb",
    "compaction_large_row_warning_threshold_mb", "compaction_rows_count_warning_threshold",
    "compaction_static_shares", "compaction_throughput", "compaction_throughput_mb_per_sec",
    "compaction_tombstone_warning_threshold", "components_memory_reclaim_threshold",
    "compressed_read_ahead_buffer_size", "concurrent_compactors", "concurrent_counter_writes",
    "concurrent_index_builders", "concurrent_materialized_view_builders",
    "concurrent_materialized_view_writes", "concurrent_merkle_tree_requests", "concurrent_reads",
    "concurrent_validations", "concurrent_writes", "config_encryption_active",
    "config_encryption_key_name", "configurations", "consecutive_message_errors_threshold",
    "consistent_cluster_management", "consistent_rangemovement", "coordinator_read_size_fail_threshold",
    "coordinator_read_size_warn_threshold", "corrupted_tombstone_strategy", "counter_cache_keys_to_save",
    "counter_cache_save_period", "counter_cache_size", "counter_cache_size_in_mb",
    "counter_write_request_timeout", "counter_write_request_timeout_in_ms", "cpu_scheduler",
    "cql_duplicate_bind_variable_names_refer_to_same_variable",
    "cql_in_bind_variable_name_uses_uppercase_operator", "cql_start_time", "credentials_cache_active_update", "credentials_cache_max_entries",
    "credentials_update_interval", "credentials_update_interval_in_ms", "credentials_validity",
    "credentials_validity_in_ms", "critical_disk_utilization_level", "cross_node_timeout",
    "crypto_provider", "data_disk_usage_max_disk_size", "data_disk_usage_percentage_fail_threshold",
    "data_disk_usage_percentage_warn_threshold", "data_file_directories", "default_compaction",
    "default_keyspace_rf", "default_log_level", "default_secondary_index",
    "default_secondary_index_enabled", "defragment_memory_on_idle", "denylist_consistency_level",
    "denylist_initial_load_retry", "denylist_max_keys_per_table", "denylist_max_keys_total",
    "denylist_range_reads_enabled", "denylist_reads_enabled", "denylist_refresh",
    "denylist_writes_enabled", "developer_mode", "diagnostic_events_enabled",
    "direct_failure_detector_ping_timeout_in_ms", "disk_access_mode", "disk_failure_policy",
    "disk_optimization_estimate_percentile", "disk_optimization_page_cross_chance",
    "disk_optimization_strategy", "drop_compact_storage_enabled", "drop_keyspace_enabled",
    "drop_truncate_table_enabled", "dump_heap_on_uncaught_exception", "dynamic_data_masking_enabled",
    "dynamic_snitch", "dynamic_snitch_badness_threshold", "dynamic_snitch_reset_interval",
    "dynamic_snitch_reset_interval_in_ms", "dynamic_snitch_update_interval",
    "dynamic_snitch_update_interval_in_ms", "enable_3_1_0_compatibility_mode", "enable_cache",
    "enable_commitlog", "enable_compacting_data_for_streaming_and_repair",
    "enable_create_table_with_compact_storage", "enable_dangerous_direct_import_of_cassandra_counters",
    "enable_deprecated_partitioners", "enable_drop_compact_storage", "enable_in_memory_data_store",
    "enable_materialized_views", "enable_node_aggregated_table_metrics",
    "enable_optimized_reversed_reads", "enable_parallelized_aggregation", "enable_repair_based_node_ops",
    "enable_sasi_indexes", "enable_scripted_user_defined_functions", "enable_shard_aware_drivers",
    "enable_small_table_optimization_for_rbno", "enable_sstable_data_integrity_check",
    "enable_sstable_key_validation", "enable_tablets", "enable_tombstone_gc_for_streaming_and_repair",
    "enable_transient_replication", "enable_user_defined_functions",
    "enable_user_defined_functions_threads", "endpoint_snitch", "enforce_native_deadline_for_hints",
    "entire_sstable_inter_dc_stream_throughput_outbound", "entire_sstable_stream_throughput_outbound",
    "error_injections_at_startup", "experimental", "experimental_features", "failure_detector",
    "failure_detector_timeout_in_ms", "fd_initial_value_ms", "fd_max_interval_ms",
    "fields_per_udt_fail_threshold", "fields_per_udt_warn_threshold", "file_cache_enabled",
    "file_cache_round_up", "file_cache_size", "file_cache_size_in_mb", "flush_compression",
    "flush_schema_tables_after_modification", "force_gossip_generation",
    "force_new_prepared_statement_behaviour", "force_schema_commit_log", "format",
    "full_query_logging_options", "gc_log_threshold", "gc_log_threshold_in_ms", "gc_warn_threshold",
    "gc_warn_threshold_in_ms", "gcp_hosts", "group0_raft_op_timeout_in_ms", "group_by_enabled",
    "heap_dump_path", "hint_window_persistent_enabled", "hinted_handoff_disabled_datacenters",
    "hinted_handoff_enabled", "hinted_handoff_throttle", "hinted_handoff_throttle_in_kb",
    "hints_compression", "hints_directory", "hints_flush_period", "hints_flush_period_in_ms",
    "host_id_overrides", "ideal_consistency_level", "ignore_dead_nodes_for_replace",
    "in_select_cartesian_product_fail_threshold", "in_select_cartesian_product_warn_threshold",
    "incremental_backups", "index_cache_fraction", "index_summary_capacity",
    "index_summary_capacity_in_mb", "index_summary_resize_interval",
    "index_summary_resize_interval_in_minutes", "initial_range_tombstone_list_allocation_size",
    "initial_token", "inter_dc_stream_throughput_outbound",
    "inter_dc_stream_throughput_outbound_megabits_per_sec", "inter_dc_tcp_nodelay",
    "internode_application_receive_queue_capacity",
    "internode_application_receive_queue_capacity_in_bytes",
    "internode_application_receive_queue_reserve_endpoint_capacity",
    "internode_application_receive_queue_reserve_endpoint_capacity_in_bytes",
    "internode_application_receive_queue_reserve_global_capacity",
    "internode_application_receive_queue_reserve_global_capacity_in_bytes",
    "internode_application_send_queue_capacity", "internode_application_send_queue_capacity_in_bytes",
    "internode_application_send_queue_reserve_endpoint_capacity",
    "internode_application_send_queue_reserve_endpoint_capacity_in_bytes",
    "internode_application_send_queue_reserve_global_capacity",
    "internode_application_send_queue_reserve_global_capacity_in_bytes", "internode_authenticator",
    "internode_compression", "internode_compression_enable_advanced",
    "internode_compression_zstd_max_cpu_fraction", "internode_error_reporting_exclusions",
    "internode_max_message_size", "internode_max_message_size_in_bytes",
    "internode_recv_buff_size_in_bytes", "internode_send_buff_size_in_bytes",
    "internode_socket_receive_buffer_size", "internode_socket_receive_buffer_size_in_bytes",
    "internode_socket_send_buffer_size", "internode_socket_send_buffer_size_in_bytes",
    "internode_streaming_tcp_user_timeout", "internode_streaming_tcp_user_timeout_in_ms",
    "internode_tcp_connect_timeout", "internode_tcp_connect_timeout_in_ms", "internode_tcp_user_timeout",
    "internode_tcp_user_timeout_in_ms", "internode_timeout", "intersect_filtering_query_enabled",
    "intersect_filtering_query_warned", "invalid_legacy_protocol_magic_no_spam_enabled",
    "items_per_collection_fail_threshold", "items_per_collection_warn_threshold", "join_ring",
    "key_cache_invalidate_after_sstable_deletion", "key_cache_keys_to_save",
    "key_cache_migrate_during_compaction", "key_cache_save_period", "key_cache_size",
    "key_cache_size_in_mb", "keyspace_count_warn_threshold", "keyspaces_fail_threshold",
    "keyspaces_warn_threshold", "kmip_hosts", "kms_hosts", "large_memory_allocation_warning_threshold",
    "ldap_attr_role", "ldap_bind_dn", "ldap_bind_passwd", "ldap_hosts", "ldap_url_template",
    "listen_address", "listen_interface", "listen_interface_prefer_ipv6", "listen_on_broadcast_address",
    "live_updatable_config_params_changeable_via_cql", "load_balance", "load_ring_state",
    "local_read_size_fail_threshold", "local_read_size_warn_threshold",
    "local_system_data_file_directory", "log_out_of_token_range_requests", "log_to_stdout",
    "log_to_syslog", "logger_log_level", "lsa_reclamation_step", "maintenance_mode",
    "maintenance_reader_concurrency_semaphore_count_limit", "maintenance_socket",
    "maintenance_socket_group", "materialized_views_enabled",
    "materialized_views_per_table_fail_threshold", "materialized_views_per_table_warn_threshold",
    "max_clustering_key_restrictions_per_query", "max_concurrent_automatic_sstable_upgrades",
    "max_concurrent_requests_per_shard", "max_hint_window", "max_hint_window_in_ms",
    "max_hints_delivery_threads", "max_hints_file_size", "max_hints_file_size_in_mb",
    "max_hints_size_per_host", "max_memory_for_unlimited_query_hard_limit",
    "max_memory_for_unlimited_query_soft_limit", "max_mutation_size", "max_mutation_size_in_kb",
    "max_partition_key_restrictions_per_query", "max_space_usable_for_compactions_in_percentage",
    "max_streaming_retries", "max_top_size_partition_count", "max_top_tombstone_partition_count",
    "max_value_size", "max_value_size_in_mb", "maximum_replication_factor_fail_threshold",
    "maximum_replication_factor_warn_threshold", "maximum_timestamp_fail_threshold",
    "maximum_timestamp_warn_threshold", "memory", "memtable", "memtable_allocation_type",
    "memtable_cleanup_threshold", "memtable_flush_static_shares", "memtable_flush_writers",
    "memtable_heap_space", "memtable_heap_space_in_mb", "memtable_offheap_space",
    "memtable_offheap_space_in_mb", "memtable_total_space_in_mb", "min_free_space_per_drive",
    "min_free_space_per_drive_in_mb", "min_tracked_partition_size",
    "min_tracked_partition_tombstone_count", "minimum_replication_factor_fail_threshold",
    "minimum_replication_factor_warn_threshold", "minimum_timestamp_fail_threshold",
    "minimum_timestamp_warn_threshold", "murmur3_partitioner_ignore_msb_bits",
    "native_shard_aware_transport_port", "native_shard_aware_transport_port_proxy_protocol",
    "native_shard_aware_transport_port_ssl", "native_transport_allow_older_protocols",
    "native_transport_flush_in_batches_legacy", "native_transport_idle_timeout",
    "native_transport_idle_timeout_in_ms", "native_transport_max_auth_threads",
    "native_transport_max_backoff_on_queue_overload", "native_transport_max_concurrent_connections",
    "native_transport_max_concurrent_connections_per_ip",
    "native_transport_max_concurrent_requests_in_bytes",
    "native_transport_max_concurrent_requests_in_bytes_per_ip", "native_transport_max_frame_size",
    "native_transport_max_frame_size_in_mb", "native_transport_max_message_size",
    "native_transport_max_request_data_in_flight", "native_transport_max_request_data_in_flight_per_ip",
    "native_transport_max_requests_per_second", "native_transport_max_threads",
    "native_transport_min_backoff_on_queue_overload", "native_transport_port",
    "native_transport_port_proxy_protocol", "native_transport_port_ssl",
    "native_transport_queue_max_item_age_threshold", "native_transport_rate_limiting_enabled",
    "native_transport_receive_queue_capacity", "native_transport_receive_queue_capacity_in_bytes",
    "native_transport_throw_on_overload", "native_transport_timeout", "network_authorizer",
    "networking_cache_size", "networking_cache_size_in_mb", "nodeops_heartbeat_interval_seconds",
    "nodeops_watchdog_timeout_seconds", "non_partition_restricted_index_query_enabled", "num_tokens",
    "object_storage_config_file", "object_storage_endpoints", "otc_backlog_expiration_interval_ms",
    "otc_backlog_expiration_interval_ms_default", "otc_coalescing_enough_coalesced_messages",
    "otc_coalescing_strategy", "otc_coalescing_window_us", "otc_coalescing_window_us_default",
    "overprovisioned", "override_decommission", "page_size_fail_threshold", "page_size_warn_threshold",
    "partition_denylist_enabled", "partition_keys_in_select_fail_threshold",
    "partition_keys_in_select_warn_threshold", "partition_size_fail_threshold",
    "partition_size_warn_threshold", "partition_tombstones_fail_threshold",
    "partition_tombstones_warn_threshold", "partitioner", "paxos_cache_size", "paxos_contention_max_wait",
    "paxos_contention_min_delta", "paxos_contention_min_wait", "paxos_contention_wait_randomizer",
    "paxos_on_linearizability_violations", "paxos_purge_grace_period", "paxos_repair_enabled",
    "paxos_repair_parallelism", "paxos_repair_race_wait", "paxos_state_purging",
    "paxos_topology_repair_no_dc_checks", "paxos_topology_repair_strict_each_quorum", "paxos_variant",
    "periodic_commitlog_sync_lag_block", "periodic_commitlog_sync_lag_block_in_ms",
    "permissions_cache_active_update", "permissions_cache_max_entries", "permissions_update_interval",
    "permissions_update_interval_in_ms", "permissions_validity", "permissions_validity_in_ms",
    "phi_convict_threshold", "prepared_statements_cache_size", "prepared_statements_cache_size_mb",
    "prometheus_address", "prometheus_allow_protobuf", "prometheus_port", "prometheus_prefix",
    "query_page_size_in_bytes", "query_tombstone_page_limit", "range_request_timeout",
    "range_request_timeout_in_ms", "range_tombstone_list_growth_factor",
    "read_before_write_list_operations_enabled", "read_consistency_levels_disallowed",
    "read_consistency_levels_warned", "read_request_timeout", "read_request_timeout_in_ms",
    "read_thresholds_enabled", "reader_concurrency_semaphore_cpu_concurrency",
    "reader_concurrency_semaphore_kill_limit_multiplier",
    "reader_concurrency_semaphore_serialize_limit_multiplier", "reject_out_of_token_range_requests",
    "reject_repair_compaction_threshold", "relabel_config_file", "repair",
    "repair_command_pool_full_strategy", "repair_command_pool_size",
    "repair_hints_batchlog_flush_cache_time_in_ms", "repair_multishard_reader_buffer_hint_size",
    "repair_partition_count_estimation_ratio", "repair_request_timeout", "repair_request_timeout_in_ms",
    "repair_session_max_tree_depth", "repair_session_space", "repair_session_space_in_mb",
    "repair_state_expires", "repair_state_size", "repaired_data_tracking_for_partition_reads_enabled",
    "repaired_data_tracking_for_range_reads_enabled", "replace_address", "replace_address_first_boot",
    "replace_node_first_boot", "replica_filtering_protection", "replication_strategy_fail_list",
    "replication_strategy_warn_list", "report_unconfirmed_repaired_data_mismatches", "request_timeout",
    "request_timeout_in_ms", "request_timeout_on_shutdown_in_seconds", "restrict_dtcs",
    "restrict_future_timestamp", "restrict_replication_simplestrategy", "restrict_twcs_default_ttl",
    "restrict_twcs_without_default_ttl", "reversed_reads_auto_bypass_cache", "rf_rack_valid_keyspaces",
    "ring_delay_ms", "role_manager", "roles_cache_active_update", "roles_cache_max_entries",
    "roles_update_interval", "roles_update_interval_in_ms", "roles_validity", "roles_validity_in_ms",
    "row_cache_class_name", "row_cache_keys_to_save", "row_cache_save_period", "row_cache_size",
    "row_cache_size_in_mb", "row_index_read_size_fail_threshold", "row_index_read_size_warn_threshold",
    "rpc_address", "rpc_dict_training_when", "rpc_interface", "rpc_interface_prefer_ipv6",
    "rpc_keepalive", "sai_frozen_term_size_fail_threshold", "sai_frozen_term_size_warn_threshold",
    "sai_options", "sai_sstable_indexes_per_query_fail_threshold",
    "sai_sstable_indexes_per_query_warn_threshold", "sai_string_term_size_fail_threshold",
    "sai_string_term_size_warn_threshold", "sai_vector_term_size_fail_threshold",
    "sai_vector_term_size_warn_threshold", "sanitizer_report_backtrace", "sasi_indexes_enabled",
    "saslauthd_socket_path", "saved_caches_directory", "schema_commitlog_directory",
    "schema_commitlog_segment_size_in_mb", "schema_registry_grace_period",
    "scripted_user_defined_functions_enabled", "secondary_indexes_enabled",
    "secondary_indexes_per_table_fail_threshold", "secondary_indexes_per_table_warn_threshold",
    "seed_provider", "seeds", "selected_format", "server_encryption_options",
    "severity_during_decommission", "shutdown_announce_in_ms", "simplestrategy_enabled",
    "skip_paxos_repair_on_topology_change", "skip_paxos_repair_on_topology_change_keyspaces",
    "skip_stream_disk_space_check", "skip_wait_for_gossip_to_settle", "slow_query_log_timeout",
    "slow_query_log_timeout_in_ms", "smp", "snapshot_before_compaction", "snapshot_links_per_second",
    "snapshot_on_duplicate_row_detection", "snapshot_on_repaired_data_mismatch", "ssl_storage_port",
    "sstable", "sstable_compression_user_table_options", "sstable_format",
    "sstable_preemptive_open_interval", "sstable_preemptive_open_interval_in_mb",
    "sstable_read_rate_persistence_enabled", "sstable_summary_max_partitions_per_page",
    "sstable_summary_ratio", "start_native_transport", "startup_checks", "storage_compatibility_mode",
    "storage_port", "stream_entire_sstables", "stream_io_throughput_mb_per_sec",
    "stream_plan_ranges_fraction", "stream_throughput_outbound",
    "stream_throughput_outbound_megabits_per_sec", "stream_transfer_task_timeout",
    "streaming_connections_per_host", "streaming_keep_alive_period",
    "streaming_keep_alive_period_in_secs", "streaming_slow_events_log_timeout", "streaming_state_expires",
    "streaming_state_size", "streaming_stats_enabled", "strict_allow_filtering",
    "strict_is_not_null_in_views", "system_info_encryption", "system_key_directory",
    "table_count_warn_threshold", "table_digest_insensitive_to_expiry", "table_properties_disallowed",
    "table_properties_ignored", "table_properties_warned", "tables_fail_threshold",
    "tables_warn_threshold", "tablet_load_stats_refresh_interval_in_seconds",
    "tablets_initial_scale_factor", "tablets_mode_for_new_keyspaces", "tablets_per_shard_goal",
    "target_tablet_size_in_bytes", "task_ttl_in_seconds", "tombstone_failure_threshold",
    "tombstone_warn_threshold", "top_partitions_enabled", "trace_type_query_ttl", "trace_type_repair_ttl",
    "tracetype_query_ttl", "tracetype_repair_ttl", "transfer_hints_on_decommission",
    "transient_replication_enabled", "transparent_data_encryption_options", "traverse_auth_from_root",
    "trickle_fsync", "trickle_fsync_interval", "trickle_fsync_interval_in_kb", "truncate_request_timeout",
    "truncate_request_timeout_in_ms", "twcs_max_window_count", "uncompressed_tables_enabled",
    "unlogged_batch_across_partitions_warn_threshold", "unsafe_bootstrap", "unspooled_dirty_soft_limit",
    "use_creation_time_for_hint_ttl", "use_deterministic_table_id", "use_offheap_merkle_trees",
    "use_statements_enabled", "user_defined_function_allocation_limit_bytes",
    "user_defined_function_contiguous_allocation_limit_bytes", "user_defined_function_fail_timeout",
    "user_defined_function_time_limit_ms", "user_defined_function_warn_timeout",
    "user_defined_functions_enabled", "user_defined_functions_fail_timeout",
    "user_defined_functions_threads_enabled", "user_defined_functions_warn_timeout",
    "user_function_timeout_policy", "user_info_encryption", "user_task_ttl_in_seconds",
    "user_timestamps_enabled", "uuid_sstable_identifiers_enabled", "validation_preview_purge_head_start",
    "validation_preview_purge_head_start_in_sec", "vector_dimensions_fail_threshold",
    "vector_dimensions_warn_threshold", "vector_store_encryption_options", "vector_store_primary_uri",
    "vector_store_secondary_uri", "vector_type_enabled", "view_flow_control_delay_limit_in_ms",
    "view_hints_directory", "virtual_dirty_soft_limit", "volatile_system_keyspace_for_testing",
    "wasm_cache_instance_size_limit", "wasm_cache_memory_fraction", "wasm_cache_timeout_in_ms",
    "wasm_udf_memory_limit", "wasm_udf_total_fuel", "wasm_udf_yield_fuel", "windows_timer_interval",
    "workdir", "write_consistency_levels_disallowed", "write_consistency_levels_warned",
    "write_request_timeout", "write_request_timeout_in_ms", "x_log2_compaction_groups",
    "zero_ttl_on_twcs_enabled", "zero_ttl_on_twcs_warned",
];

/// Prefixes of keys whose feature is missing, and the name of the feature: such a key cannot have an effect.
const ABSENT: &[(&str, &str)] = &[
    ("coordinator_read_size", "limits on what a read takes in memory are"),
    ("denylist_", "a list of denied partitions is"),
    ("intersect_filtering_query", "storage-attached indexes are"),
    ("local_read_size", "limits on what a read takes in memory are"),
    ("materialized_views", "materialized views are"),
    ("non_partition_restricted_index_query", "secondary indexes are"),
    ("partition_denylist", "a list of denied partitions is"),
    ("read_thresholds_enabled", "limits on what a read takes in memory are"),
    ("row_index_read_size", "limits on what a read takes in memory are"),
    ("sai_", "storage-attached indexes are"),
    ("sasi_", "secondary indexes are"),
    ("secondary_indexes", "secondary indexes are"),
];

/// The effect of a known key that no setter handles, for its value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The node does what the key says.
    Kept,
    /// The key has no effect; the text states the consequence, if there is one.
    NoEffect(Option<&'static str>),
    /// The start stops: the node could not do what was asked.
    Refused(&'static str),
    /// The start stops unless the configuration accepts the lack: the node would be less secure.
    Open(Lack, &'static str),
}

/// The effect of a key of [`KEYS`] with this value.
pub(super) fn meaning(key: &str, value: &Value) -> Meaning {
    if let Some(follows) = security::follows(key, value) {
        return match follows {
            Follows::Stops(lack, consequence) => Meaning::Open(lack, consequence),
            Follows::Warns(consequence) => Meaning::NoEffect(Some(consequence)),
            Follows::Nothing => Meaning::Kept,
        };
    }
    match (key, value) {
        ("partitioner", Value::Null) => Meaning::Kept,
        ("partitioner", Value::Text(class)) if class.rsplit('.').next() == Some("Murmur3Partitioner") => {
            Meaning::Kept
        }
        ("partitioner", _) => Meaning::Refused("expected org.apache.cassandra.dht.Murmur3Partitioner"),
        _ => Meaning::NoEffect(None),
    }
}

/// The missing feature because of which a known key has no effect; `None` if no such feature is listed, or
/// the value does not ask for it.
pub(super) fn absent(key: &str, value: &Value) -> Option<&'static str> {
    // Which kind of index is made where none is named: the statement that makes one is refused.
    if matches!(value, Value::Null | Value::Bool(false)) || key.starts_with("default_secondary_index") {
        return None;
    }
    ABSENT.iter().find(|(beginning, _)| key.starts_with(beginning)).map(|(_, what)| *what)
}

/// The known key with the smallest edit distance to `key`, if that is at most a third of its length.
pub(super) fn nearest(key: &str) -> Option<&'static str> {
    let names = keys::names().chain(KEYS.iter().copied());
    let (distance, name) =
        names.map(|name| (edits(key, name), name)).min_by_key(|(distance, _)| *distance)?;
    (distance <= key.len() / 3).then_some(name)
}

/// The edit distance in bytes; a swap of neighbours counts as one edit.
fn edits(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let changed = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = changed.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sorted_for_the_search() {
        assert!(KEYS.is_sorted());
    }

    #[test]
    fn edits_count_swaps_once() {
        assert_eq!(
            (edits("port", "prot"), edits("abc", "abc"), edits("", "ab"), edits("kitten", "sitting")),
            (1, 0, 2, 3)
        );
    }
}
