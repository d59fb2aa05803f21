#!/usr/bin/env bash
# run.sh  a Cassandra node takes the table files of a ceto node by `nodetool import` and answers with the same rows; see
# exchange.py. The ceto node is stopped in between, so that everything is in table files.
#
# Environment: SHARDS=2  REFERENCE_HOST=127.0.32.1 (a loopback address for Cassandra)  REFERENCE_JMX=7332
# CETO, PORT as in compat/run.sh.
# Needs the collected Cassandra and its Python driver, as tests/differential does; takes under a minute besides.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PEER=ceto
source "$here/../node.sh"
reference_host=${REFERENCE_HOST:-127.0.32.1} reference_jmx=${REFERENCE_JMX:-7332}
venv=$repo/.cache/python-cassandra
wanted=$here/../compat/python/requirements-cassandra.txt
if ! cmp -s "$wanted" "$venv/requirements.txt"; then
  rm -rf "$venv"
  python3 -m venv "$venv" && "$venv/bin/pip" install -q --disable-pip-version-check -r "$wanted" &&
    cp "$wanted" "$venv/requirements.txt" || exit 1
fi

work=$runs/exchange reference=$runs/exchange-reference
rm -rf "$work" "$reference"
reference_node() {
  DATA=$reference PORT=$node_port JMX_PORT=$reference_jmx HEAP=${HEAP:-1G} KILL=1 \
    "$repo/perf/peers/cassandra/$1" "$reference_host"
}
trap 'node_kill "$work" >/dev/null 2>&1; reference_node stop.sh >/dev/null 2>&1' EXIT
trap 'exit 130' INT TERM
reference_node start.sh || exit 1
node_start "$work" "${SHARDS:-2}" || exit 1
"$venv/bin/python" "$here/exchange.py" write "$node_host:$node_port" "$work/rows" || exit 1
node_stop "$work" || exit 1
"$venv/bin/python" "$here/exchange.py" schema "$reference_host:$node_port" "$work/rows" || exit 1

failed=0 tables=0
for folder in "$work"/data/data/exchange/*-*/; do
  name=$(basename "$folder")
  name=${name%-*}
  ls "$folder"/*-Data.db >/dev/null 2>&1 || { echo "$name: no table file" >&2; failed=$((failed + 1)); continue; }
  # Cassandra tells keyspace and table by the folders' names.
  copy=$work/import/exchange/$(basename "$folder")
  mkdir -p "$work/import/exchange"
  cp -r "$folder" "$copy"
  if ! JMX_PORT=$reference_jmx "$repo/perf/peers/cassandra/nodetool.sh" import --extended-verify --copy-data \
    exchange "$name" "$copy"; then
    echo "$name: not imported" >&2
    failed=$((failed + 1))
  fi
  tables=$((tables + 1))
done
"$venv/bin/python" "$here/exchange.py" compare "$reference_host:$node_port" "$work/rows" || failed=$((failed + 1))
echo "$tables tables, $failed failed"
((failed == 0 && tables > 0))
