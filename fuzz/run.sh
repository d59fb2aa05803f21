#!/usr/bin/env bash
# Builds the targets (crates/fuzz_targets) with coverage counters and runs each for SECONDS from its kept corpus, JOBS at a time.
#   fuzz/run.sh [SECONDS] [TARGET...]
# A crash leaves its input in fuzz/artifacts/TARGET and ends the run with an error. Inputs that reach new code stay in
# fuzz/.found (not in git); `fuzz/run.sh --keep` folds them, minimised, into fuzz/corpus.
# Environment: JOBS (default: processors, at most 4).
set -euo pipefail
cd "$(dirname "$0")"
# Largest input that --keep takes into the corpus: what is in git stays small.
keep_bytes_max=400
keep=false

names() {
  sed -n 's/^ *("\([a-z0-9_]*\)", .*/\1/p' ../crates/fuzz_targets/src/lib.rs | sort | paste -sd ' '
}

if [ "${1:-}" = --one ]; then
  target=$2 seconds=$3 binary=$4
  log=artifacts/$target/log
  if FUZZ_TARGET=$target "$binary" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -malloc_limit_mb=256 -max_len=65536 \
    -print_final_stats=1 -artifact_prefix="artifacts/$target/" ".found/$target" "corpus/$target" >"$log" 2>&1; then
    printf '%-24s%s\n' "$target" "$(sed -n 's/^stat::number_of_executed_units: */runs: /p' "$log")"
  else
    tail -40 "$log"
    echo "$target failed: the input is in fuzz/artifacts/$target" >&2
    exit 255 # xargs starts nothing more
  fi
  exit 0
fi
if [ "${1:-}" = --keep ]; then keep=true; shift; fi
seconds=5
if [[ "${1:-}" =~ ^[0-9]+$ ]]; then seconds=$1; shift; fi
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  read -ra targets <<<"$(names)"
fi
for target in "${targets[@]}"; do
  [[ " $(names) " == *" $target "* ]] || { echo "fuzz/run.sh: no target '$target'; there are: $(names)" >&2; exit 1; }
done
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
  -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing"
# A target triple keeps the flags away from build scripts.
triple=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS="$coverage" cargo build --release --locked --target-dir target --target "$triple"
binary=$PWD/target/$triple/release/fuzz
for target in "${targets[@]}"; do mkdir -p "corpus/$target" ".found/$target" "artifacts/$target"; done
if $keep; then
  for target in "${targets[@]}"; do
    small=$(mktemp -d)
    find ".found/$target" -type f -size -"$((keep_bytes_max + 1))"c -exec cp -t "$small" {} +
    FUZZ_TARGET=$target "$binary" -set_cover_merge=1 -rss_limit_mb=1024 "corpus/$target" "$small" 2>&1 | tail -1
    rm -rf "$small"
  done
  exit 0
fi
processors=$(nproc)
jobs=${JOBS:-$((processors < 4 ? processors : 4))}
printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I{} "$PWD/run.sh" --one {} "$seconds" "$binary"
echo "${#targets[@]} passed, 0 failed"
