#!/usr/bin/env bash
# perf/run.sh [--peer cassandra] [--only counts|statements|loopback|start|storage|bench]...   measures and prints one report (make bench).
#
#   counts     instructions and allocations of one prepared point read and one single-row write, in process
#   statements instructions and allocations of parsing and planning ten typical statements nobody prepared
#   loopback   point reads of one shard over loopback beside a bare echo on the same reactor, at depth 1 and 32
#   start      start to first answer, idle processor time
#   storage    reads that memory does not answer, files written and compacted, amplification (perf/storage.sh); with --only alone
#   bench      the smoke form of every scenario of perf/bench: seconds each, to see that they run; with --only alone
# With --peer the loopback part also loads the peer in the same turns, on the same core.
#
# The report goes to standard output and to perf/results/latest.md; perf/README.md says how to read it.
# Environment: CETO (target/release/ceto; built when not given), CETO_PERF (the program with `perf`, CETO),
# ROUNDS (3), SECONDS_EACH (5), WARM_UP (1), PEER_WARM_UP (20), CONNECTIONS (64), DEPTHS ("1 32"),
# PARTITIONS (100000), ROW_BYTES (100), SERVER_CPU, CLIENT_CPU.
set -euo pipefail
cd "$(dirname "$0")/.."

peer='' only=()
while (($#)); do
  case $1 in
    --peer) peer=${2:?--peer needs a name}; shift 2 ;;
    --only) only+=("${2:?--only needs a part}"); shift 2 ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) echo "perf/run.sh: no such option: $1" >&2; exit 2 ;;
  esac
done
[[ -z $peer || $peer == cassandra ]] || { echo "perf/run.sh: no such peer: $peer" >&2; exit 2; }
for part in "${only[@]}"; do
  [[ " counts statements loopback start storage bench " == *" $part "* ]] || { echo "perf/run.sh: no such part: $part" >&2; exit 2; }
done
wants() { ((${#only[@]} == 0)) || [[ " ${only[*]} " == *" $1 "* ]]; }

rounds=${ROUNDS:-3} seconds=${SECONDS_EACH:-5} warm_up=${WARM_UP:-1} peer_warm_up=${PEER_WARM_UP:-20}
connections=${CONNECTIONS:-64} depths=${DEPTHS:-1 32} partitions=${PARTITIONS:-100000} row_bytes=${ROW_BYTES:-100}
ceto_port=19842 echo_port=19843 peer_ip=127.0.0.9

scratch=$(mktemp -d)
pids=() peer_started=''
finish() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  [[ -z $peer_started ]] || DATA=$scratch/peer perf/peers/cassandra/stop.sh "$peer_ip" >&2 || true
  rm -rf "$scratch"
}
trap finish EXIT

mkdir -p perf/results
report=perf/results/latest.md
: >"$report"
say() { printf '%s\n' "$*" | tee -a "$report"; }
para() { say "$*"; say; }

if [[ -z ${CETO:-} ]]; then
  cargo build --release --locked --bin ceto >&2
fi
ceto=${CETO:-target/release/ceto}
perf=${CETO_PERF:-$ceto}

# Server and client each on a core of their own, where there are two.
mapfile -t cpus < <(python3 -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep="\n")')
server_cpu=${SERVER_CPU:-} client_cpu=${CLIENT_CPU:-}
if ((${#cpus[@]} >= 2)); then
  server_cpu=${server_cpu:-${cpus[0]}}
  client_cpu=${client_cpu:-${cpus[1]}}
fi

# Runs in a session of its own with all the weight that is allowed: with autogroups `nice` counts inside one only.
alone() {
  local cpu=$1
  shift
  local pin=()
  [[ -z $cpu ]] || pin=(taskset -c "$cpu")
  exec setsid --wait bash -c 'echo -20 2>/dev/null >/proc/self/autogroup || true; exec "$@"' alone "${pin[@]}" "$@"
}

# Starts a server whose log will have a line that begins with $2; its pid goes to `pids`.
serve() {
  local log=$scratch/$1.log ready=$2
  shift 2
  local pin=()
  [[ -z $server_cpu ]] || pin=(taskset -c "$server_cpu")
  setsid bash -c 'echo -20 2>/dev/null >/proc/self/autogroup || true; exec "$@"' serve "${pin[@]}" "$@" >"$log" 2>&1 &
  local pid=$!
  pids+=("$pid")
  for _ in $(seq 600); do
    grep -q "^$ready" "$log" && return
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.05
  done
  echo "perf/run.sh: no line '$ready' from: $*" >&2
  tail -20 "$log" >&2
  return 1
}

measure() { (alone "$client_cpu" "$perf" perf "$@" --json); }

# --- counts -----------------------------------------------------------------------------------------------------------

counts() {
  para '## In process: one prepared request, frame bytes in, frame bytes out'
  printf '| request | in flight | instructions | allocations |\n|---|---|---|---|\n' | tee -a "$report"
  CETO=$perf perf/counts.sh | while read -r kind in_flight counted allocations; do
    say "| $kind | $in_flight | $counted | $allocations |"
  done
  say
}

# --- statements -------------------------------------------------------------------------------------------------------

statements() {
  para '## In process: ten statements parsed and planned, unprepared'
  printf '| statement | instructions | allocations |\n|---|---|---|\n' | tee -a "$report"
  perf/statements.sh | while read -r name counted allocations; do say "| $name | $counted | $allocations |"; done
  say
}

# --- loopback ---------------------------------------------------------------------------------------------------------

loopback() {
  # What the frames of a point read take: EXECUTE with one key, and one row of one value (native_protocol_v4.spec).
  local request=$((9 + 2 + 16 + 2 + 1 + 2 + 4 + 8)) response=$((9 + 4 + 4 + 4 + 4 + 4 + row_bytes))
  local load=(--connections "$connections" --partitions "$partitions" --row-bytes "$row_bytes")
  local fill=(load --connections 1 --requests 1 --warm-up-seconds 0 --partitions "$partitions" --row-bytes "$row_bytes")
  serve ceto 'ceto ready' "$ceto" server --workdir "$scratch/ceto" --port "$ceto_port" --shard-aware-port 0 \
    --smp 1 --memory 1G --developer-mode
  serve echo 'echo ready' "$perf" perf echo-server --port "$echo_port" \
    --request-bytes "$request" --response-bytes "$response" --seconds 7200
  measure "${fill[@]}" --port "$ceto_port" >/dev/null
  if [[ $peer == cassandra ]]; then
    perf/peers/cassandra/setup.sh >&2
    peer_started=1
    DATA=$scratch/peer JMX_PORT=0 perf/peers/cassandra/start.sh "$peer_ip" "$server_cpu" >&2
    measure "${fill[@]}" --host "$peer_ip" >/dev/null
    # A JIT compiler measures itself while it is cold.
    measure load --host "$peer_ip" --no-preload "${load[@]}" --depth 8 \
      --seconds "$peer_warm_up" --warm-up-seconds 0 >/dev/null
  fi
  local results=$scratch/loopback.jsonl depth round
  for depth in $depths; do
    for round in $(seq "$rounds"); do
      echo "depth $depth, round $round of $rounds" >&2
      echo "echo $(measure echo-load --port "$echo_port" --request-bytes "$request" --response-bytes "$response" \
        --connections "$connections" --depth "$depth" --seconds "$seconds" --warm-up-seconds "$warm_up")"
      echo "ceto $(measure load --port "$ceto_port" --no-preload "${load[@]}" \
        --depth "$depth" --seconds "$seconds" --warm-up-seconds "$warm_up")"
      [[ -z $peer ]] || echo "$peer $(measure load --host "$peer_ip" --no-preload "${load[@]}" \
        --depth "$depth" --seconds "$seconds" --warm-up-seconds "$warm_up")"
    done
  done >"$results"
  para "## Loopback, one shard: point reads of $row_bytes bytes, $connections connections"
  para "Server on core ${server_cpu:-any}, client on core ${client_cpu:-any}; medians of $rounds rounds of $seconds s," \
    'servers in turns; least and greatest rate in parentheses.'
  python3 - "$results" <<'PY' | tee -a "$report"
import json, statistics, sys

runs = {}
for line in open(sys.argv[1]):
    who, text = line.split(" ", 1)
    run = json.loads(text)
    runs.setdefault((run["depth"], who), []).append(run)
print("| depth | server | requests/s | to echo | p50 us | p99 us | p99.9 us | max us | errors | client busy |")
print("|---|---|---|---|---|---|---|---|---|---|")


def median(of, name):
    return statistics.median(run[name] for run in of)


for (depth, who), of in runs.items():
    rate, rates = median(of, "requests_per_second"), [run["requests_per_second"] for run in of]
    floor = median(runs[depth, "echo"], "requests_per_second")
    print(f"| {depth} | {who} | {rate:.0f} ({min(rates):.0f}-{max(rates):.0f}) | {rate / floor:.2f} | "
          f"{median(of, 'p50_us'):.0f} | {median(of, 'p99_us'):.0f} | {median(of, 'p999_us'):.0f} | "
          f"{max(run['max_us'] for run in of):.0f} | {sum(run['errors'] for run in of)} | "
          f"{median(of, 'client_busy'):.2f} |")
for depth in sorted({depth for depth, _ in runs}):
    for who in sorted({who for at, who in runs if at == depth} - {"echo", "ceto"}):
        ours = median(runs[depth, "ceto"], "requests_per_second")
        theirs = median(runs[depth, who], "requests_per_second")
        print(f"\nDepth {depth}: ceto answers {ours / theirs:.1f} times as many requests as {who}.")
PY
  say
}

# --- start ------------------------------------------------------------------------------------------------------------

start() {
  para '## Start and idle'
  if [[ ! -f perf/start.py ]]; then
    para 'Not measured: there is no perf/start.py.'
    return
  fi
  python3 perf/start.py --ceto "$ceto" | sed 's/^/- /' | tee -a "$report"
  say
}

# --- bench ------------------------------------------------------------------------------------------------------------

smoke() {
  para '## Scenarios, smoke form'
  python3 perf/bench --smoke --ceto "$ceto" --out "$scratch/bench" >&2
  sed '1d; s/^## /### /' "$scratch/bench/report.md" | tee -a "$report"
  say
}

para "# ceto, $("$ceto" --version), $(date -u +%Y-%m-%d)"
para "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), ${#cpus[@]} cores allowed, Linux $(uname -r)," \
  "load average $(cut -d' ' -f1-3 /proc/loadavg) before."
if wants counts; then counts; fi
if wants statements; then statements; fi
if wants loopback; then loopback; fi
if wants start; then start; fi
if [[ " ${only[*]} " == *' storage '* ]]; then
  CETO=$ceto perf/storage.sh | sed 's/^## /### /' | tee -a "$report"
fi
if [[ " ${only[*]} " == *' bench '* ]]; then smoke; fi
say "Load average $(cut -d' ' -f1-3 /proc/loadavg) after."
