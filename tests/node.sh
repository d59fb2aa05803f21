#!/usr/bin/env bash
# Starts, stops, kills and restarts one node under test: ceto, or Apache Cassandra with PEER=cassandra.
#
# Sourced by the runners (functions node_start, node_stop, node_kill), or called:
#   node.sh start|stop|kill|restart WORK [SHARDS]
# WORK is the node's folder: its data, its log (node.log) and its pid. `start` on a folder that holds data is a
# restart with the data kept. `stop` sends SIGTERM and fails unless the node exits with code 0; `kill` sends SIGKILL.
#
# Environment: PEER, CETO, CETO_ARGS, PORT as in compat/run.sh; NODE_MEMORY=256M; PEER_HOST=127.0.18.2 (a loopback
# address for Cassandra).
# Invariant: only a pid that start wrote, and that still runs what was started, is ever signalled.

node_here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$node_here/.." && pwd)
export PEER=${PEER:-ceto}
case $PEER in
  ceto) node_host=127.0.0.1 node_port=${PORT:-9142} ;;
  cassandra) node_host=${PEER_HOST:-127.0.18.2} node_port=${PORT:-9142} ;;
  *)
    echo "PEER must be ceto or cassandra, not $PEER" >&2
    exit 2
    ;;
esac
runs=$repo/.cache/runs/$PEER-$node_port # two runs at once need two ports, and so have two folders
node_binary=${CETO:-$repo/target/release/ceto}
node_start_seconds=60
node_stop_seconds=60
mkdir -p "$runs"

cassandra() { # cassandra start.sh|stop.sh WORK
  DATA=$2 PORT=$node_port JMX_PORT=0 HEAP=${HEAP:-1G} KILL=${KILL:-0} \
    "$repo/perf/peers/cassandra/$1" "$node_host"
}

node_start() { # node_start WORK SHARDS
  local work=$1 shards=$2
  mkdir -p "$work"
  if [[ $PEER == cassandra ]]; then
    cassandra start.sh "$work"
    return
  fi
  [[ -x $node_binary ]] || { echo "no binary at $node_binary: build it with cargo build --release" >&2; return 1; }
  local ready deadline=$((SECONDS + node_start_seconds))
  ready=$(grep -c '^ceto ready' "$work/node.log" 2>/dev/null)
  # The keeper outlives this script, so that the exit code of the node is known to whoever stops it.
  rm -f "$work/exit" "$work/pid"
  # shellcheck disable=SC2086  # CETO_ARGS is a list of arguments
  setsid bash -c '
    work=$1; shift
    "$@" >>"$work/node.log" 2>&1 </dev/null &
    echo $! >"$work/pid"
    code=0; wait $! || code=$?
    echo $code >"$work/exit.new" && mv "$work/exit.new" "$work/exit"
  ' keeper "$work" "$node_binary" server --workdir "$work/data" --listen "$node_host" --port "$node_port" \
    --shard-aware-port $((node_port + 1)) --api-port $((node_port + 2)) --prometheus-port $((node_port + 3)) --smp "$shards" --memory "${NODE_MEMORY:-256M}" --developer-mode \
    ${CETO_ARGS:-} >/dev/null 2>&1 &
  while ((SECONDS < deadline)); do
    [[ $(grep -c '^ceto ready' "$work/node.log" 2>/dev/null) -gt ${ready:-0} ]] && return 0
    if [[ -f $work/exit ]]; then
      echo "the node ended with code $(<"$work/exit") before it was ready:" >&2
      tail -n 20 "$work/node.log" >&2
      return 1
    fi
    sleep 0.02
  done
  echo "the node was not ready within $node_start_seconds s" >&2
  node_signal "$work" KILL
  return 1
}

node_signal() { # node_signal WORK SIGNAL
  local pid runs
  pid=$(cat "$1/pid" 2>/dev/null) || return 0
  [[ ! -f $1/exit && -e /proc/$pid ]] || return 0
  # A program that was built anew meanwhile runs on as a deleted one.
  runs=$(readlink "/proc/$pid/exe")
  [[ ${runs% (deleted)} == "$(readlink -f "$node_binary")" ]] || return 0
  kill -"$2" "$pid" 2>/dev/null
}

node_ended() { # node_ended WORK: waits for the exit code of the node and prints it
  local deadline=$((SECONDS + node_stop_seconds))
  while ((SECONDS < deadline)); do
    [[ -f $1/exit ]] && { cat "$1/exit"; return 0; }
    sleep 0.02
  done
  return 1
}

node_stop() { # node_stop WORK
  local work=$1 code
  if [[ $PEER == cassandra ]]; then
    cassandra stop.sh "$work"
    return
  fi
  node_signal "$work" TERM
  if ! code=$(node_ended "$work"); then
    echo "the node still ran $node_stop_seconds s after SIGTERM" >&2
    node_signal "$work" KILL
    return 1
  fi
  ((code == 0)) || { echo "the node ended with code $code" >&2; tail -n 20 "$work/node.log" >&2; return 1; }
}

node_kill() { # node_kill WORK
  if [[ $PEER == cassandra ]]; then
    KILL=1 cassandra stop.sh "$1"
    return
  fi
  node_signal "$1" KILL
  node_ended "$1" >/dev/null
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  set -uo pipefail
  action=${1:?usage: node.sh start|stop|kill|restart WORK [SHARDS]} work=${2:?which folder?} shards=${3:-1}
  case $action in
    start) node_start "$work" "$shards" ;;
    stop) node_stop "$work" ;;
    kill) node_kill "$work" ;;
    restart) node_stop "$work" && node_start "$work" "$shards" ;;
    *)
      echo "unknown action $action" >&2
      exit 2
      ;;
  esac
fi
