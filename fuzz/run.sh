#!/usr/bin/env bash
# Builds every target under fuzz/targets and runs each for SECONDS from its kept corpus.
#   fuzz/run.sh [SECONDS] [TARGET...]
# A crash leaves its input in fuzz/artifacts/TARGET and ends the run with an error. Inputs that reach new code stay in
# fuzz/.found (not in git); `fuzz/run.sh --keep` folds them, minimised, into fuzz/corpus.
set -euo pipefail
cd "$(dirname "$0")"
seconds=5
keep=false
if [ "${1:-}" = --keep ]; then keep=true; shift; fi
if [[ "${1:-}" =~ ^[0-9]+$ ]]; then seconds=$1; shift; fi
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  for file in targets/*.rs; do targets+=("$(basename "$file" .rs)"); done
fi
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
  -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing"
# A target triple keeps the flags away from build scripts.
triple=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS="$coverage" cargo build --release --locked --target "$triple" "${targets[@]/#/--bin=}"
for target in "${targets[@]}"; do
  mkdir -p "corpus/$target" ".found/$target" "artifacts/$target"
  binary="target/$triple/release/$target"
  if $keep; then
    "$binary" -merge=1 -rss_limit_mb=1024 "corpus/$target" ".found/$target" 2>&1 | tail -1
    continue
  fi
  printf '%-24s' "$target"
  log=$(mktemp)
  if ! "$binary" -max_total_time="$seconds" -timeout=5 -rss_limit_mb=1024 -malloc_limit_mb=256 -max_len=65536 \
    -print_final_stats=1 -artifact_prefix="artifacts/$target/" ".found/$target" "corpus/$target" >"$log" 2>&1; then
    tail -40 "$log"
    rm -f "$log"
    echo "$target failed: the input is in fuzz/artifacts/$target" >&2
    exit 1
  fi
  sed -n 's/^stat::number_of_executed_units: */runs: /p' "$log"
  rm -f "$log"
done
