#!/usr/bin/env bash
# make.sh [latest]: makes `5.0` again, or with `latest`, which is Cassandra's profile of that name with table files of the format
# bti, `5.0-latest`: what Cassandra 5.0.6 has in its data directory after the statements of `write.py` and `nodetool drain`,
# less the system tables that do not describe the schema. Not part of any test: ids, times and
# file numbers change from run to run, and `crates/storage/tests/takeover.rs` names some of them.
# Needs what tests/differential needs. Environment: HOST=127.0.31.1  JMX_PORT=7331
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../../.." && pwd)
export DATA=$repo/.cache/golden/cassandra-data PORT=9042 JMX_PORT=${JMX_PORT:-7331} HEAP=${HEAP:-1G}
export PROFILE=${1:-stock}
to=$here/5.0 && [[ $PROFILE == latest ]] && to=$here/5.0-latest
host=${HOST:-127.0.31.1} python=$repo/.cache/python-cassandra/bin/python peer=$repo/perf/peers/cassandra
rm -rf "$DATA" "$to"
trap '"$peer/stop.sh" "$host" >/dev/null' EXIT
"$peer/start.sh" "$host"
"$python" "$here/write.py" "$host" first
"$peer/nodetool.sh" flush
"$python" "$here/write.py" "$host" then
"$peer/nodetool.sh" drain
mkdir -p "$to/system_schema"
cp -r "$DATA"/data/{shop,Mixed} "$to"
rm -rf "$to"/shop/*/.by_total
for table in keyspaces tables columns types dropped_columns views indexes functions aggregates; do
  cp -r "$DATA/data/system_schema/$table"-* "$to/system_schema"
done
