#!/usr/bin/env bash
# Runs the suite of the Node.js driver; its modules are installed under <repo>/.cache.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
modules=$(cd "$here/../../.." && pwd)/.cache/node-compat
if ! cmp -s "$here/package-lock.json" "$modules/installed.json"; then
  mkdir -p "$modules"
  cp "$here/package.json" "$here/package-lock.json" "$modules"
  (cd "$modules" && npm ci --silent --no-audit --no-fund)
  cp "$here/package-lock.json" "$modules/installed.json"
fi
out=$(mktemp)
trap 'rm -f "$out"' EXIT
status=0
CETO_NODE_DRIVER=$modules/node_modules/cassandra-driver \
  node --test --test-force-exit --test-timeout=120000 --test-concurrency=1 --test-reporter=tap "$here/compat.test.js" >"$out" 2>&1 || status=$?
((status == 0)) || grep -vE '^ *(ok |# Subtest|duration_ms|type:|---|\.\.\.)' "$out" || true
count() { sed -nE "s/^# $1 ([0-9]+)$/\1/p" "$out" | tail -1; }
echo "result: $(count pass) passed, $(count fail) failed, $(count skipped) skipped"
exit "$status"
