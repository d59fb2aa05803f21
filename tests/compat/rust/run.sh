#!/usr/bin/env bash
# Runs the suite of the Rust driver, built under <repo>/.cache.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
target=$(cd ../../.. && pwd)/.cache/rust-compat
out=$(mktemp)
trap 'rm -f "$out"' EXIT
status=0
CARGO_TARGET_DIR=$target cargo test --locked -j "${CARGO_JOBS:-3}" -- --test-threads=1 --nocapture >"$out" 2>&1 || status=$?
((status == 0)) || cat "$out"
counted=$(grep -oE 'test result: .* [0-9]+ passed; [0-9]+ failed' "$out" | tail -1)
passed=$(grep -oE '[0-9]+ passed' <<<"$counted" | tr -cd 0-9 || true)
failed=$(grep -oE '[0-9]+ failed' <<<"$counted" | tr -cd 0-9 || true)
skipped=$(grep -c 'SKIPPED PART' "$out" || true)
echo "result: $((${passed:-0} - skipped)) passed, ${failed:-0} failed, $skipped skipped"
exit "$status"
