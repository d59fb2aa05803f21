//! Keys of CQL clients, of their statements, and of copies on other nodes.

use super::{Section, set, unset};

pub(super) const SECTIONS: &[Section] = &[
    Section {
        title: "CQL clients",
        entries: &[
            set(
                &[("rpc_address", "127.0.0.1")],
                "The address for CQL clients; 0.0.0.0 for every address of the machine.",
            ),
            unset(
                &[("broadcast_rpc_address", "127.0.0.1")],
                "rpc_address",
                "The address that drivers are told, if it differs from the one listened on; needed with 0.0.0.0.",
            ),
            set(&[("native_transport_port", "9042")], "The port for CQL clients."),
            set(
                &[("native_shard_aware_transport_port", "19042")],
                "The port on which a client's source port picks the shard. `--shard-aware-port 0` is for none.",
            ),
            set(
                &[("native_transport_max_frame_size", "16MiB")],
                "Longest request of a client; from 1KiB to 256MiB.",
            )
            .or(&[("native_transport_max_frame_size_in_mb", "16")]),
            set(
                &[
                    ("native_transport_max_concurrent_connections", "-1"),
                    ("native_transport_max_concurrent_connections_per_ip", "-1"),
                ],
                "Most connections of clients: all, and those from one address; -1 for no limit.",
            ),
            set(
                &[("native_transport_max_requests_per_connection", "2048")],
                "Most requests in flight of one connection; further ones are refused as overload. -1 for no limit.",
            ),
            set(
                &[("max_concurrent_requests_per_shard", "16384")],
                "Most requests in flight of one shard; further ones are refused as overload. -1 for no limit.",
            ),
            set(
                &[("native_transport_max_request_data_in_flight", "64MiB")],
                "Most bytes of requests in flight of one shard. Connections with further ones wait, or are refused as \
                 overload if their client asked for that (THROW_ON_OVERLOAD).",
            )
            .or(&[("native_transport_max_concurrent_requests_in_bytes", "67108864")]),
            set(
                &[("native_transport_timeout", "12s")],
                "A request that could not be started for so long is refused as overload.",
            ),
        ],
    },
    Section {
        title: "Time limits of requests",
        entries: &[
            set(&[("read_request_timeout", "5000ms")], "A read of one partition or of several that are named.")
                .or(&[("read_request_timeout_in_ms", "5000")]),
            set(&[("range_request_timeout", "10000ms")], "A read of a range of partitions, per page.")
                .or(&[("range_request_timeout_in_ms", "10000")]),
            set(&[("write_request_timeout", "2000ms")], "A write.")
                .or(&[("write_request_timeout_in_ms", "2000")]),
            set(
                &[("cas_contention_timeout", "1800ms")],
                "How long a conditional write may try anew because others write the same partition.",
            )
            .or(&[("cas_contention_timeout_in_ms", "1800")]),
            set(&[("truncate_request_timeout", "60000ms")], "A TRUNCATE.")
                .or(&[("truncate_request_timeout_in_ms", "60000")]),
            set(
                &[("request_timeout", "10000ms")],
                "The general limit that the REST API and system_views.settings show to tools. Requests go by the \
                 limits above.",
            )
            .or(&[("request_timeout_in_ms", "10000")]),
            set(
                &[("slow_query_log_timeout", "500ms")],
                "A request that takes longer gets a line in the log, at most one a second and shard; 0ms for no lines.",
            )
            .or(&[("slow_query_log_timeout_in_ms", "500")]),
        ],
    },
    Section {
        title: "Statements",
        entries: &[
            set(
                &[("user_defined_functions_enabled", "true")],
                "Whether functions and aggregates of users may be made and called.",
            ),
            set(
                &[("user_defined_functions_warn_timeout", "500ms")],
                "A call of a user's function that takes longer gives a warning; 0s for none.",
            )
            .or(&[("user_defined_function_warn_timeout", "500")]),
            set(
                &[("user_defined_functions_fail_timeout", "1500ms")],
                "A call of a user's function that takes longer fails.",
            )
            .or(&[("user_defined_function_fail_timeout", "1500")]),
            set(
                &[("cql_duplicate_bind_variable_names_refer_to_same_variable", "false")],
                "Whether bind markers with the same name are one marker with one value, as in ScyllaDB.",
            ),
            set(
                &[("cql_in_bind_variable_name_uses_uppercase_operator", "false")],
                "Whether the bind marker of `c IN ?` is named IN(c) instead of in(c), as in ScyllaDB.",
            ),
            set(
                &[("alternator_ttl_period_in_seconds", "86400")],
                "Interval at which rows are looked for that are over by the TTL column of their table, in seconds; \
                 0 for never.",
            ),
        ],
    },
    Section {
        title: "Hints and batches",
        entries: &[
            set(
                &[("hinted_handoff_enabled", "true")],
                "Whether writes that another node misses are kept for it.",
            ),
            set(
                &[("hinted_handoff_disabled_datacenters", "[]")],
                "Data centers for whose nodes no hints are kept.",
            ),
            set(&[("max_hint_window", "3h")], "A node that is down for longer gets no further hints.")
                .or(&[("max_hint_window_in_ms", "10800000")]),
            set(
                &[("max_hints_size_per_host", "0B")],
                "Most bytes of hints for one other node; with 0B only a tenth of the free space limits them.",
            ),
            set(&[("max_hints_file_size", "128MiB")], "Size of a file of hints; from 1MiB to 2047MiB.")
                .or(&[("max_hints_file_size_in_mb", "128")]),
            set(&[("hints_flush_period", "10s")], "Interval at which hints are made durable.")
                .or(&[("hints_flush_period_in_ms", "10000")]),
            set(
                &[("hinted_handoff_throttle", "1024KiB")],
                "Bytes of hints that a node gets each second, shared out among those that may send some; 0KiB for no \
                 limit.",
            )
            .or(&[("hinted_handoff_throttle_in_kb", "1024")]),
            set(&[("max_hints_delivery_threads", "2")], "Most nodes to which a shard sends hints at the same time."),
            set(
                &[("batchlog_replay_throttle", "1024KiB")],
                "Bytes of interrupted batches that a shard finishes each second, shared out in the same way; 0KiB for no \
                 limit.",
            )
            .or(&[("batchlog_replay_throttle_in_kb", "1024")]),
        ],
    },
];
