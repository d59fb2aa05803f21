#!/usr/bin/env bash
# run.sh  Command lines of cassandra-stress, as people published them, run with `ceto stress` against a fresh node with
# 1 and with 2 shards; see main.py for what is checked.
#
# Environment: SHARDS="1 2"  CETO, PEER as in compat/run.sh  PORT=9942
# Exit code 0 only if every line did what it should. A failed run keeps its folder.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PORT=${PORT:-9942} PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$here/../badinput
source "$here/../node.sh"

work=
trap '[[ -z $work ]] || node_kill "$work" >/dev/null 2>&1' EXIT
trap 'exit 130' INT TERM
status=0
for shards in ${SHARDS:-1 2}; do
  work=$runs/stress-$shards
  rm -rf "$work"
  mkdir -p "$work"
  echo "== $PEER, $shards shard(s)"
  if node_start "$work" "$shards" &&
    python3 "$here/main.py" "$node_binary" "$node_host" "$node_port" "$work" && node_stop "$work"; then
    rm -rf "$work"
  else
    status=1
    node_kill "$work"
    echo "   the node's folder is kept: ${work#"$repo"/}"
  fi
done
exit $status
