#!/usr/bin/env bash
# run.sh [cassandra|scylla]  runs the Python suite with that driver (default cassandra). The two drivers
# share the module name, so each has a virtual environment of its own under <repo>/.cache.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=$(cd "$here/../../.." && pwd)/.cache
driver=${1:-cassandra}
shift || true
wanted=$here/requirements-$driver.txt
venv=$cache/python-$driver
if ! cmp -s "$wanted" "$venv/requirements.txt"; then
  rm -rf "$venv"
  mkdir -p "$cache"
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q --disable-pip-version-check -r "$wanted"
  cp "$wanted" "$venv/requirements.txt"
fi
result=$(mktemp)
status=0
COMPAT_RESULT=$result "$venv/bin/python" -m pytest -q -p no:cacheprovider --tb=short "$here" "$@" || status=$?
cat "$result"
rm -f "$result"
exit "$status"
