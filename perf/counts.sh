#!/usr/bin/env bash
# perf/counts.sh [--hold]   instructions and allocations of prepared requests in process, and of rows of table files.
#
# Prints a line for each: kind, requests in flight, instructions, allocations. Instructions of a request are the difference of
# two callgrind runs of `ceto perf simple-query` over the difference of their requests; those of a row that is written,
# scanned or compacted (with - for in flight) are what callgrind counts while `ceto perf sstable` and `ceto perf compaction`
# measure, over their rows: files of 200-byte rows, what it takes to begin and end a file included. They repeat to a per cent
# whatever else the machine does.
# --hold fails where a figure is above what perf/counts.txt keeps, by more than SLACK_PERCENT of instructions.
# Environment: CETO (target/release/ceto; built when it is not there), SLACK_PERCENT (4), KEEP (a directory for the
# callgrind files: perf/costs.py reads them).
set -euo pipefail
cd "$(dirname "$0")/.."
hold=''
case ${1:-} in
  '') ;;
  --hold) hold=1 ;;
  *) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 2 ;;
esac
slack=${SLACK_PERCENT:-4}
command -v valgrind >/dev/null || { echo 'perf/counts.sh: valgrind is missing; install it' >&2; exit 1; }
ceto=${CETO:-target/release/ceto}
if [[ ! -x $ceto ]]; then
  cargo build --release --locked --bin ceto >&2
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
keep=${KEEP:-$scratch}
mkdir -p "$keep"

# The command line of one run: KIND IN_FLIGHT COUNT NAME.
bench() {
  local kind=() name=$4 rows seconds=1
  case $1 in
    file-write) rows=(sstable --mode write --partitions 20000) ;;
    # It ends where its time does, in the middle of what it read ahead: the more rows the less that shows.
    file-scan) rows=(sstable --mode full-scan --partitions 20000) seconds=3 ;;
    compaction) rows=(compaction --partitions 5000) ;;
  esac
  if [[ -v rows ]]; then
    words=("$ceto" perf "${rows[@]}" --driver poll --duration "$seconds" --workdir "$scratch/$name.dir"
      --json-result "$scratch/$name.json")
    return
  fi
  [[ $1 == read ]] || kind=("--$1")
  words=("$ceto" perf simple-query "${kind[@]}" --partitions 1000 --concurrency "$2" --operations-per-shard "$3"
    --memory 256M --driver poll --workdir "$scratch/$name.dir" --json-result "$scratch/$name.json")
}

# Instructions of one run, all threads.
instructions() {
  local file=$keep/$1.$2.$3
  bench "$1" "$2" "$3" "$1.$2.$3"
  valgrind --tool=callgrind --callgrind-out-file="$file" "${words[@]}" >"$scratch/valgrind.log" 2>&1 ||
    { tail -20 "$scratch/valgrind.log" >&2; return 1; }
  awk '/^(summary|totals):/ { count = $2 } END { print count }' "$file"
}

# Instructions of one row of a table file.
instructions_per_row() {
  local file=$keep/$1
  bench "$1" - - "$1.rows"
  valgrind --tool=callgrind --callgrind-out-file="$file" --toggle-collect='*Measured*poll*' "${words[@]}" \
    >"$scratch/valgrind.log" 2>&1 || { tail -20 "$scratch/valgrind.log" >&2; return 1; }
  awk -v rows="$(sed -n 's/^    "operations": \([0-9]*\),*/\1/p' "$scratch/$1.rows.json")" \
    '/^(summary|totals):/ { count = $2 } END { printf "%.0f\n", count / rows }' "$file"
}

grew=''
while read -r kind in_flight kept_instructions kept_allocations; do
  [[ -n $kind && $kind != '#'* ]] || continue
  bench "$kind" "$in_flight" 20000 "$kind.$in_flight"
  "${words[@]}" >/dev/null
  allocations=$(sed -n 's/^    "allocs_per_op": \([0-9.e-]*\),*/\1/p' "$scratch/$kind.$in_flight.json")
  allocations=$(awk -v each="$allocations" 'BEGIN { printf "%.3f", each }')
  if [[ $in_flight == - ]]; then
    counted=$(instructions_per_row "$kind")
    what="a row, $kind,"
  else
    few=$(instructions "$kind" "$in_flight" 2000)
    many=$(instructions "$kind" "$in_flight" 12000)
    counted=$(((many - few) / 10000))
    what="a $kind, $in_flight in flight,"
  fi
  echo "$kind $in_flight $counted $allocations"
  if ((counted * 100 > kept_instructions * (100 + slack))); then
    grew+="$what takes $counted instructions, $kept_instructions are kept"$'\n'
  elif ((counted * (100 + slack) < kept_instructions * 100)); then
    echo "perf/counts.sh: $what takes fewer than are kept: lower perf/counts.txt to $counted" >&2
  fi
  if ! awk -v now="$allocations" -v kept="$kept_allocations" 'BEGIN { exit now > kept + 0.01 }'; then
    grew+="$what allocates $allocations times, $kept_allocations are kept"$'\n'
  fi
done <perf/counts.txt
if [[ -n $hold && -n $grew ]]; then
  printf 'perf/counts.sh: %s' "$grew" >&2
  echo 'Find out what it is (perf/README.md, "In process"), or say in perf/counts.txt why more is right.' >&2
  exit 1
fi
