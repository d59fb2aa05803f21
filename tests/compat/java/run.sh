#!/usr/bin/env bash
# Runs the suite of the Java driver with Maven; classes and reports land under <repo>/.cache.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(cd "$here/../../.." && pwd)/.cache/java-compat
rm -rf "$build/surefire-reports"
mkdir -p "$build"
status=0
(cd "$here" && mvn -q -B -Dstyle.color=never -Dceto.build="$build" test) || status=$?
count() { # count ATTRIBUTE: summed over the report files
  { cat "$build"/surefire-reports/TEST-*.xml 2>/dev/null || true; } |
    grep -oE '<testsuite [^>]*' | grep -oE " $1=\"[0-9]+\"" | tr -cd '0-9\n' | awk '{ n += $1 } END { print n + 0 }'
}
failed=$(($(count failures) + $(count errors))) skipped=$(count skipped)
echo "result: $(($(count tests) - failed - skipped)) passed, $failed failed, $skipped skipped"
exit "$status"
