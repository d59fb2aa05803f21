#!/usr/bin/env bash
# run.sh  Administration from outside: REST, metrics and `ceto ctl` against a node in release, in some seconds.
# Needs Python 3 and nothing else.
#
# Environment: CETO (the binary), PORT=9842 (and the three above it). A failed run keeps its folder in .cache/runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export PORT=${PORT:-9842} PYTHONDONTWRITEBYTECODE=1
PYTHONPATH=../badinput exec python3 test_admin.py "$@"
