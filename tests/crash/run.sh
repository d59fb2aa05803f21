#!/usr/bin/env bash
# run.sh [periodic|batch ...]  `kill -9` in a loop under load: no acknowledged write may be missing afterwards.
# Runs with both commit-log modes unless told otherwise; see main.go for what is written and checked.
#
# Environment: ROUNDS=5 (kills per mode)  SEED=n (default: the date)  SHARDS=2  PEER, CETO, PORT as in compat/run.sh
# Exit code 0 only if nothing was lost and the nodes stopped cleanly at the end. A failed run keeps its folder.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../node.sh"
modes=("$@")
((${#modes[@]})) || modes=(periodic batch)
seed=${SEED:-$(date +%s)}
shards=${SHARDS:-2}
program=$repo/.cache/crash-load
(cd "$here" && GOFLAGS=-mod=readonly go build -o "$program" .) || exit 1

work=
trap '[[ -z $work ]] || node_kill "$work" >/dev/null 2>&1' EXIT
trap 'exit 130' INT TERM
passed=0 failed=0
for mode in "${modes[@]}"; do
  work=$runs/crash-$mode
  rm -rf "$work"
  mkdir -p "$work"
  echo "== commitlog_sync: $mode, $PEER, seed $seed"
  printf 'commitlog_sync: %s\n' "$mode" >"$work/config.yaml"
  [[ $mode == periodic ]] && echo 'commitlog_sync_period: 10000ms' >>"$work/config.yaml"
  export CETO_ARGS="--config $work/config.yaml" COMMITLOG_SYNC=$mode
  if node_start "$work" "$shards" &&
    "$program" -host "$node_host" -port "$node_port" -node "$here/../node.sh" -work "$work" -shards "$shards" \
      -rounds "${ROUNDS:-5}" -seed "$seed" &&
    node_stop "$work"; then
    passed=$((passed + 1))
    rm -rf "$work"
  else
    failed=$((failed + 1))
    node_kill "$work"
    echo "   the node's folder is kept: ${work#"$repo"/}"
  fi
done
echo "$passed passed, $failed failed, 0 skipped"
((failed == 0))
