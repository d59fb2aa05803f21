#!/usr/bin/env bash
# run.sh [TESTS]  Administration from outside: REST, metrics and `ceto ctl` against a node in release, signals, and the dashboards
# over its metrics, in some seconds. Needs Python 3 and nothing else; with promtool on the machine, the rules are checked by it too.
#
# Environment: CETO (the binary), PORT=9842 (and those up to 16 above it). A failed run keeps its folder in .cache/runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export PORT=${PORT:-9842} PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=../badinput
failed=0
for tests in test_admin.py test_partitions.py test_dashboards.py test_earlier.py test_signals.py test_tracing.py; do
  [[ $# -eq 0 || " $* " == *" $tests "* ]] || continue
  python3 "$tests" || failed=1
done
exit $failed
