#!/usr/bin/env bash
# perf/counts.sh [--hold]   instructions and allocations of one prepared point read and one single-row write, in process.
#
# Prints a line for each: kind, instructions, allocations. Instructions are the difference of two callgrind runs over
# the difference of their requests, so they repeat to a per cent whatever else the machine does.
# --hold fails where a figure is above what perf/counts.txt keeps, by more than SLACK_PERCENT of instructions.
# Environment: INPROC (the server's example of that name; built when not given), SLACK_PERCENT (4).
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
if [[ -z ${INPROC:-} ]]; then
  cargo build --release --locked -p server --example inproc >&2
  INPROC=target/release/examples/inproc
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Instructions of `inproc KIND COUNT`, all threads.
instructions() {
  valgrind --tool=callgrind --callgrind-out-file="$scratch/$1.$2" "$INPROC" "$1" "$2" "$scratch/node.$1.$2" \
    >"$scratch/valgrind.log" 2>&1 || { tail -20 "$scratch/valgrind.log" >&2; return 1; }
  awk '/^(summary|totals):/ { count = $2 } END { print count }' "$scratch/$1.$2"
}

grew=''
while read -r kind kept_instructions kept_allocations; do
  [[ -n $kind && $kind != '#'* ]] || continue
  printed=$("$INPROC" "$kind" 20000 "$scratch/node.$kind")
  allocations=$(sed -n '$s/.*, \(.*\) allocations each/\1/p' <<<"$printed")
  few=$(instructions "$kind" 2000)
  many=$(instructions "$kind" 12000)
  counted=$(((many - few) / 10000))
  echo "$kind $counted $allocations"
  if ((counted * 100 > kept_instructions * (100 + slack))); then
    grew+="a $kind takes $counted instructions, $kept_instructions are kept"$'\n'
  elif ((counted * (100 + slack) < kept_instructions * 100)); then
    echo "perf/counts.sh: a $kind takes fewer than are kept: lower perf/counts.txt to $counted" >&2
  fi
  if ! awk -v now="$allocations" -v kept="$kept_allocations" 'BEGIN { exit now > kept + 0.01 }'; then
    grew+="a $kind allocates $allocations times, $kept_allocations are kept"$'\n'
  fi
done <perf/counts.txt
if [[ -n $hold && -n $grew ]]; then
  printf 'perf/counts.sh: %s' "$grew" >&2
  echo 'Find out what it is (perf/README.md, "In process"), or say in perf/counts.txt why more is right.' >&2
  exit 1
fi
