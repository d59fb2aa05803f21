//! Keys of the node, its cluster, its machine and its administration.

use super::{Section, set, unset};

pub(super) const SECTIONS: &[Section] = &[
    Section {
        title: "The node and its cluster",
        entries: &[
            set(
                &[("cluster_name", "Test Cluster")],
                "The cluster's name. Nodes with different names do not form a cluster.",
            ),
            set(
                &[("data_center", "datacenter1"), ("rack", "rack1")],
                "Where this node is. Copies of a row are placed by data center and rack.",
            ),
            set(
                &[("endpoint_snitch", "SimpleSnitch")],
                "Where data center and rack are read: SimpleSnitch takes the keys above, \
                 GossipingPropertyFileSnitch the file cassandra-rackdc.properties beside this one.",
            ),
            set(
                &[("seeds", "''")],
                "Addresses of nodes that are asked for the cluster, with commas between, each with a port if it is \
                 not storage_port. All nodes have the same list. The first of them founds the cluster; a node \
                 without seeds stays alone.",
            ),
            set(
                &[("seed_provider", "[{class_name: SimpleSeedProvider, parameters: [{seeds: ''}]}]")],
                "The seeds as cassandra.yaml writes them.",
            ),
            unset(
                &[("listen_address", "127.0.0.1")],
                "rpc_address, or 127.0.0.1 if that is every address of the machine",
                "The address on which other nodes reach this one.",
            ),
            unset(
                &[("broadcast_address", "127.0.0.1")],
                "listen_address",
                "The address that is told to other nodes, if it differs from the one listened on.",
            ),
            set(&[("storage_port", "7000")], "The port for other nodes."),
            set(
                &[("internode_compression", "dc")],
                "Connections between nodes that are compressed: none, dc (those to other data centers), or all.",
            ),
        ],
    },
    Section {
        title: "Directories",
        entries: &[
            set(
                &[("workdir", "ceto-data")],
                "The directory of everything that the node keeps. A relative path starts at the directory in which \
                 the node was started.",
            ),
            unset(
                &[("data_file_directories", "[ceto-data/data]")],
                "data in the work directory",
                "The directory of table files; there can be one.",
            ),
            unset(
                &[("commitlog_directory", "ceto-data/commitlog")],
                "commitlog in the work directory",
                "The directory of the commit log. On a disk of its own it does not compete with reads.",
            ),
            unset(
                &[("hints_directory", "ceto-data/hints")],
                "hints in the work directory",
                "The directory of hints: writes that other nodes missed.",
            ),
            unset(
                &[("saved_caches_directory", "ceto-data/saved_caches")],
                "saved_caches in the work directory",
                "The directory of lists of the row cache's contents.",
            ),
            unset(
                &[("io_properties_file", "ceto-data/io_properties.yaml")],
                "io_properties.yaml in the work directory, if it is there; else the node measures for itself",
                "What the disks can do, as `ceto io-setup` writes it. A file that is named has to be there. Read \
                 again at SIGHUP.",
            ),
        ],
    },
    Section {
        title: "The machine",
        entries: &[
            unset(
                &[("smp", "1")],
                "one per processor",
                "Shards, each a thread on a processor of its own; from 1 to 1024.",
            ),
            unset(
                &[("memory", "1GiB")],
                "half of what the machine or its cgroup has",
                "Memory of the whole node, divided equally among the shards.",
            ),
            set(
                &[("overprovisioned", "false")],
                "Share the processors: threads are not pinned, and there may be more shards than processors.",
            ),
            set(
                &[("developer_mode", "false")],
                "Share the machine: as overprovisioned, and besides the disk is not measured, may fill up, and a \
                 memory that the machine does not have is only warned of.",
            ),
            set(
                &[("reactor_driver", "auto")],
                "How shards talk to the kernel: uring (io_uring), poll (epoll and a thread for files), or auto, \
                 which is uring if the kernel allows it.",
            ),
            set(
                &[("reactor_spin_us", "0")],
                "How long an idle shard looks for work before it sleeps, in microseconds. More shortens answers a \
                 little and keeps idle processors busy.",
            ),
            set(
                &[("blocked_reactor_notify_ms", "5")],
                "A task that holds its shard for longer is reported in the log, in milliseconds; 0 for never.",
            ),
            set(&[("blocked_reactor_reports_per_minute", "5")], "Most such reports of a shard in a minute."),
        ],
    },
    Section {
        title: "Administration",
        entries: &[
            unset(
                &[("api_address", "127.0.0.1")],
                "rpc_address if that is a loopback address, else 127.0.0.1",
                "The address of the REST API, which `ceto ctl` asks. The API has no users: whoever reaches it may \
                 do everything.",
            ),
            unset(
                &[("api_port", "10000")],
                "10000, or no API if that port is taken",
                "The port of the REST API; 0 for none.",
            ),
            unset(
                &[("prometheus_address", "127.0.0.1")],
                "as api_address",
                "The address at which Prometheus finds /metrics.",
            ),
            unset(
                &[("prometheus_port", "9180")],
                "9180, or no metrics if that port is taken",
                "The port at which Prometheus finds /metrics; 0 for none.",
            ),
            set(
                &[("api_allowed_hosts", "[]")],
                "Names by which clients may address both ports, besides addresses, localhost and the machine's own \
                 name. Protects against web pages that a browser on the machine shows.",
            ),
            set(
                &[("default_log_level", "info")],
                "Lines in the log: error, warn, info or debug, each with those before it. Read again at SIGHUP.",
            ),
            set(
                &[("log_format", "text")],
                "text, or json for an object of JSON in each line of the log, for programs that collect logs.",
            ),
            set(
                &[("shutdown_timeout", "60s")],
                "How long a node that was told to end may take to drain. After that it ends without, and the next \
                 start recovers from the commit log; 0s for no limit. Read again at SIGHUP.",
            ),
            set(
                &[("auto_snapshot", "true")],
                "Whether a table is snapshotted before it is truncated or dropped.",
            ),
        ],
    },
    Section {
        title: "Security",
        entries: &[set(
            &[("ignore_authentication", "false"), ("ignore_encryption", "false"), ("ignore_audit", "false")],
            "ceto has no passwords and permissions, no encryption and no audit yet. A configuration that asks \
             for one of them stops the start unless the key for it here is true.",
        )],
    },
];
