#!/usr/bin/env bash
# venv.sh DRIVER  prints the Python that has this driver (cassandra or scylla), installed at its first use. The two drivers share
# the module name, so each has a virtual environment of its own under <repo>/.cache.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=$(cd "$here/../../.." && pwd)/.cache
wanted=$here/requirements-$1.txt
venv=$cache/python-$1
mkdir -p "$cache"
# Two suites may ask at once: the second waits for what the first installs.
exec {lock}>"$venv.lock"
flock "$lock"
if ! cmp -s "$wanted" "$venv/requirements.txt"; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q --disable-pip-version-check -r "$wanted" >&2
  cp "$wanted" "$venv/requirements.txt"
fi
echo "$venv/bin/python"
