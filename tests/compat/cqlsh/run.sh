#!/usr/bin/env bash
# run.sh [--bless]  runs cqlsh over cases.txt; cqlsh is installed under <repo>/.cache. See check.py.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=$(cd "$here/../../.." && pwd)/.cache/cqlsh
if ! cmp -s "$here/requirements.txt" "$venv/requirements.txt"; then
  rm -rf "$venv"
  mkdir -p "$(dirname "$venv")"
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q --disable-pip-version-check -r "$here/requirements.txt"
  cp "$here/requirements.txt" "$venv/requirements.txt"
fi
CETO_CQLSH=$venv/bin/cqlsh exec "$venv/bin/python" "$here/check.py" "$@"
