#!/usr/bin/env bash
# run.sh [cassandra|scylla]  runs the Python suite with that driver (default cassandra), see venv.sh.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
driver=${1:-cassandra}
shift || true
python=$("$here/venv.sh" "$driver")
result=$(mktemp)
status=0
COMPAT_RESULT=$result "$python" -m pytest -q -p no:cacheprovider --tb=short "$here" "$@" || status=$?
cat "$result"
rm -f "$result"
exit "$status"
