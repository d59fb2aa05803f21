#!/usr/bin/env bash
# run.sh [SEED...]  the same random statements on ceto and on a real Cassandra 5; see differential.py.
#
# Environment: COUNT=600 (statements per seed)  SHARDS=2  REFERENCE_HOST=127.0.18.1 (a loopback address for Cassandra)  PEER, CETO, PORT as in compat/run.sh; PEER=cassandra compares
# Cassandra with itself, which proves that the statements have one answer only.
# Exit code 0 only if every difference is covered by allowed.txt.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../node.sh"
seeds=("$@")
((${#seeds[@]})) || seeds=(1 2 3)
reference_host=${REFERENCE_HOST:-127.0.18.1}
venv=$repo/.cache/python-cassandra
wanted=$here/../compat/python/requirements-cassandra.txt
if ! cmp -s "$wanted" "$venv/requirements.txt"; then
  rm -rf "$venv"
  python3 -m venv "$venv" && "$venv/bin/pip" install -q --disable-pip-version-check -r "$wanted" &&
    cp "$wanted" "$venv/requirements.txt" || exit 1
fi

work=$runs/differential reference=$runs/differential-reference
rm -rf "$work" "$reference"
reference_node() { DATA=$reference PORT=$node_port JMX_PORT=0 HEAP=${HEAP:-1G} KILL=1 "$repo/perf/peers/cassandra/$1" "$reference_host"; }
trap 'node_kill "$work" >/dev/null 2>&1; reference_node stop.sh >/dev/null 2>&1' EXIT
trap 'exit 130' INT TERM
reference_node start.sh || exit 1
node_start "$work" "${SHARDS:-2}" || exit 1

passed=0 failed=0
# What is recorded, with both: not what Cassandra has not, nor what takes another configuration.
data=$repo/crates/query/testdata
scripts=()
for script in "$data"/dml/*.cql "$repo"/crates/statement/testdata/ddl_{mistakes,random}.txt; do
  [[ $script == */select_extensions.cql || $script == */compact_dropped.cql ]] || scripts+=("$script")
done
if python3 "$here/recorded.py" "${scripts[@]}" --server "$node_host:$node_port" --other "$reference_host:$node_port" \
  --allow "$here/allowed.txt"; then
  passed=$((passed + 1))
else
  failed=$((failed + 1))
fi
for seed in "${seeds[@]}"; do
  if "$venv/bin/python" "$here/differential.py" --left "$node_host:$node_port" --right "$reference_host:$node_port" \
    --seed "$seed" --count "${COUNT:-600}" --allow "$here/allowed.txt"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
  fi
done
node_stop "$work" || failed=$((failed + 1))
echo "$passed passed, $failed failed, 0 skipped"
((failed == 0))
