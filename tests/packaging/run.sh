#!/usr/bin/env bash
# run.sh [TESTS]  The files in packaging/: the service manager is told how the node fares, the sample configuration starts a node,
# the container's entry and the package's scripts do what they say, manifests fit together. Needs Python 3 and nothing else;
# what systemd, dpkg or root alone can show is skipped without them, and says so.
#
# The files run side by side, since they wait more than they compute; each has ten ports of its own.
# Environment: CETO (the binary), PORT=8940 (and the 49 above it). A failed run keeps its folder in .cache/runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=../badinput:../admin
first=${PORT:-8940} failed=0 place=0
output=$(mktemp -d)
trap 'rm -rf "$output"' EXIT
declare -A running=()
for tests in test_*.py; do
  place=$((place + 1))
  [[ $# -eq 0 || " $* " == *" $tests "* ]] || continue
  PORT=$((first + 10 * (place - 1))) python3 "$tests" >"$output/$tests" 2>&1 &
  running[$tests]=$!
done
for tests in "${!running[@]}"; do
  wait "${running[$tests]}" || failed=1
  echo "--- $tests"
  cat "$output/$tests"
done
exit $failed
