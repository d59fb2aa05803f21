//! Tables of `system` that ScyllaDB has and Cassandra has not, with the columns of ScyllaDB's documentation.
//!
//! Tables with a partition per table or keyspace are filled one of them at a time. Columns without an
//! equivalent here are null: connections are not encrypted, tablets do not migrate, and settings have no
//! source.

use cluster::nodes::NodeRecord;
use model::partition_key::{self, compare_decorated};
use model::schema::Keyspace;
use model::token::murmur3_token;
use model::{Schema, Table, Token};
use replication::Replicator;
use storage::SnapshotInfo;

use super::node::{self, CQL_VERSION, NodeFacts};
use super::rows::Rows;
use super::views::ClientRow;

/// Fills `system.protocol_servers`: the protocols that clients can use.
pub(super) fn protocol_servers(rows: &mut Rows<'_>, node: &NodeFacts) {
    let address = format!("{}:{}", node.rpc_address, node.rpc_port);
    rows.row(|row| {
        row.text("name", "native");
        row.boolean("is_running", true);
        row.texts("listen_addresses", [address.as_str()]);
        row.text("protocol", "cql");
        row.text("protocol_version", CQL_VERSION);
    });
}

/// Fills `system.config`.
pub(super) fn config(rows: &mut Rows<'_>, node: &NodeFacts, settings: &[(String, String)]) {
    for (name, value) in node::all_settings(node, settings) {
        rows.row(|row| {
            row.text("name", &name);
            row.text("type", type_of(&value));
            row.text("value", &value);
        });
    }
}

/// The type of a setting, guessed from its value.
fn type_of(value: &str) -> &'static str {
    if matches!(value, "true" | "false") {
        "bool"
    } else if value.parse::<i64>().is_ok() {
        "integer"
    } else if value.parse::<f64>().is_ok() {
        "double"
    } else {
        "string"
    }
}

/// Fills `system.snapshots`.
pub(super) fn snapshots(rows: &mut Rows<'_>, snapshots: &[SnapshotInfo]) {
    let bigint = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    for snapshot in snapshots {
        rows.row(|row| {
            row.text("keyspace_name", &snapshot.keyspace);
            row.text("table_name", &snapshot.table);
            row.text("snapshot_name", &snapshot.tag);
            row.bigint("live", bigint(snapshot.true_bytes));
            row.bigint("total", bigint(snapshot.disk_bytes));
        });
    }
}

/// Adds the row of a client of a shard to `system.clients`.
pub(super) fn client(rows: &mut Rows<'_>, shard: usize, client: &ClientRow) {
    rows.row(|row| {
        row.inet("address", client.address);
        row.int("port", i32::from(client.port));
        row.text("client_type", "cql");
        row.text("connection_stage", &client.stage.to_uppercase());
        for (column, option) in [("driver_name", "DRIVER_NAME"), ("driver_version", "DRIVER_VERSION")] {
            if let Some(value) = client.options.get(option) {
                row.text(column, value);
            }
        }
        row.text("hostname", &client.address.to_string());
        row.int("protocol_version", i32::from(client.version));
        row.int("shard_id", i32::try_from(shard).unwrap_or(i32::MAX));
        row.boolean("ssl_enabled", false);
        row.text("username", &client.user);
    });
}

/// Fills `system.token_ring` for a keyspace: a row for each range and each node that has it.
pub(super) fn token_ring(rows: &mut Rows<'_>, keyspace: &Keyspace, nodes: &[NodeRecord], own: &NodeFacts) {
    for range in node::ring_of(keyspace, nodes, own) {
        let replicas = nodes.iter().filter(|node| range.replicas.contains(&node.number));
        for replica in replicas {
            rows.row(|row| {
                row.text("keyspace_name", &keyspace.name);
                row.text("start_token", &range.start.0.to_string());
                row.inet("endpoint", replica.native.ip());
                row.text("dc", &replica.data_center);
                row.text("end_token", &range.end.0.to_string());
                row.text("rack", &replica.rack);
            });
        }
    }
}

/// The tables of a schema in the order of their partitions in `system.tablets`.
pub(super) fn tables_by_token(schema: &Schema) -> Vec<&Table> {
    let mut tables: Vec<((Token, Vec<u8>), &Table)> = schema
        .keyspaces()
        .flat_map(|keyspace| keyspace.tables.values())
        .map(|table| {
            let mut key = Vec::new();
            for part in [table.keyspace().as_bytes(), &table.id().0] {
                partition_key::append_component(&mut key, 2, part).expect("names and ids fit a key");
            }
            ((murmur3_token(&key), key), &**table)
        })
        .collect();
    tables.sort_by(|((a, a_key), _), ((b, b_key), _)| compare_decorated((*a, a_key), (*b, b_key)));
    tables.into_iter().map(|(_, table)| table).collect()
}

/// Fills `system.tablets` for a table.
pub(super) fn tablets(rows: &mut Rows<'_>, table: &Table, replicator: &Replicator, node: &NodeFacts) {
    let routing = replicator.routing(table);
    let map = routing.tablets();
    for tablet in map.tablets() {
        let replicas = routing.whole(tablet).iter();
        rows.row(|row| {
            row.text("keyspace_name", table.keyspace());
            row.uuid("table_id", table.id().0);
            row.bigint("last_token", map.range(tablet).1.0);
            row.replicas(
                "replicas",
                replicas.map(|replica| {
                    let host_id = replicator.host_id_of(replica.node).unwrap_or(node.host_id);
                    (host_id, usize::from(replica.shard))
                }),
            );
            row.text("resize_type", "none");
            row.bigint("resize_seq_number", 0);
            row.text("table_name", table.name());
            row.int("tablet_count", i32::try_from(map.count()).unwrap_or(i32::MAX));
        });
    }
}
