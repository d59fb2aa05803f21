#!/usr/bin/env bash
# Runs the gocql suite and the application of gocqlx, a module of its own because that needs another gocql; the module cache of Go holds its dependencies.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
out=$(mktemp)
trap 'rm -f "$out"' EXIT
status=0
for module in . mapper; do
  (cd "$module" && GOFLAGS=-mod=readonly go test -count=1 -timeout 300s -v .) >>"$out" 2>&1 || status=$?
done
grep -vE "^(=== | *--- (PASS|SKIP))" "$out" || true
count() { grep -cE "^ *--- $1" "$out" || true; }
echo "result: $(count PASS) passed, $(count FAIL) failed, $(count SKIP) skipped"
exit "$status"
