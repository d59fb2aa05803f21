#!/usr/bin/env bash
# run.sh [TESTS]  The files in packaging/: the service manager is told how the node fares, the sample configuration starts a node,
# the container's entry and the package's scripts do what they say, manifests fit together. Needs Python 3 and nothing else;
# what systemd, dpkg or root alone can show is skipped without them, and says so.
#
# Environment: CETO (the binary), PORT=9942 (and the four above it). A failed run keeps its folder in .cache/runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export PORT=${PORT:-9942} PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=../badinput:../admin
failed=0
for tests in test_*.py; do
  [[ $# -eq 0 || " $* " == *" $tests "* ]] || continue
  python3 "$tests" || failed=1
done
exit $failed
