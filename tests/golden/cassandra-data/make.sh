#!/usr/bin/env bash
# make.sh: makes `5.0` again: what Cassandra 5.0.6 has in its data directory after the statements of `write.py` and
# `nodetool drain`, less the system tables that do not describe the schema. Not part of any test: ids, times and
# file numbers change from run to run, and `crates/storage/tests/takeover.rs` names some of them.
# Needs what tests/differential needs. Environment: HOST=127.0.31.1  JMX_PORT=7331
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../../.." && pwd)
export DATA=$repo/.cache/golden/cassandra-data PORT=9042 JMX_PORT=${JMX_PORT:-7331} HEAP=${HEAP:-1G}
host=${HOST:-127.0.31.1} python=$repo/.cache/python-cassandra/bin/python peer=$repo/perf/peers/cassandra
rm -rf "$DATA" "$here/5.0"
trap '"$peer/stop.sh" "$host" >/dev/null' EXIT
"$peer/start.sh" "$host"
"$python" "$here/write.py" "$host" first
"$peer/nodetool.sh" flush
"$python" "$here/write.py" "$host" then
"$peer/nodetool.sh" drain
mkdir -p "$here/5.0/system_schema"
cp -r "$DATA"/data/{shop,Mixed} "$here/5.0"
rm -rf "$here"/5.0/shop/*/.by_total
for table in keyspaces tables columns types dropped_columns views indexes functions aggregates; do
  cp -r "$DATA/data/system_schema/$table"-* "$here/5.0/system_schema"
done
