#!/usr/bin/env bash
# perf/statements.sh [--hold]   instructions and allocations of parsing and planning ten typical statements, unprepared.
#
# Prints a line for each: name, instructions, allocations. Counted as in perf/counts.sh.
# --hold fails where a figure is above what perf/statements.txt keeps, by more than SLACK_PERCENT of instructions.
# Environment: STATEMENTS (the example of the crate `query` of that name; built when not given), SLACK_PERCENT (5).
set -euo pipefail
cd "$(dirname "$0")/.."
hold=''
case ${1:-} in
  '') ;;
  --hold) hold=1 ;;
  *) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 2 ;;
esac
slack=${SLACK_PERCENT:-5}
command -v valgrind >/dev/null || { echo 'perf/statements.sh: valgrind is missing; install it' >&2; exit 1; }
if [[ -z ${STATEMENTS:-} ]]; then
  cargo build --release --locked --workspace --example statements >&2
  STATEMENTS=target/release/examples/statements
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Instructions of `statements NAME COUNT`, all threads.
instructions() {
  valgrind --tool=callgrind --callgrind-out-file="$scratch/$1.$2" "$STATEMENTS" "$1" "$2" >"$scratch/valgrind.log" 2>&1 ||
    { tail -20 "$scratch/valgrind.log" >&2; return 1; }
  awk '/^(summary|totals):/ { count = $2 } END { print count }' "$scratch/$1.$2"
}

grew=''
for name in $("$STATEMENTS"); do
  allocations=$("$STATEMENTS" "$name" 1000 | sed -n 's/.*, \(.*\) allocations each/\1/p')
  few=$(instructions "$name" 100)
  many=$(instructions "$name" 1100)
  counted=$(((many - few) / 1000))
  echo "$name $counted $allocations"
  read -r kept_instructions kept_allocations < <(awk -v name="$name" '$1 == name { print $2, $3 }' perf/statements.txt) ||
    { echo "perf/statements.sh: perf/statements.txt has no $name" >&2; continue; }
  if ((kept_instructions > 0 && counted * 100 > kept_instructions * (100 + slack))); then
    grew+="$name takes $counted instructions, $kept_instructions are kept"$'\n'
  fi
  if ! awk -v now="$allocations" -v kept="$kept_allocations" 'BEGIN { exit now > kept + 0.01 }'; then
    grew+="$name allocates $allocations times, $kept_allocations are kept"$'\n'
  fi
done
if [[ -n $hold && -n $grew ]]; then
  printf 'perf/statements.sh: %s' "$grew" >&2
  exit 1
fi
