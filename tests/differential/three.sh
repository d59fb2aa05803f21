#!/usr/bin/env bash
# three.sh [STATES]  the same requests at every level on three nodes of ceto and on three of a real Cassandra 5, with nodes up, down and standing
# still; see three.py. About ten minutes, most of which Cassandra takes.
#
# Environment: CETO (the binary)  FIRST=101 (the last byte of ceto's first node; Cassandra has the three addresses behind its)  HEAP=512M (each
# Cassandra's)  PROTOCOL=5. A failed run keeps its folder in .cache/runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export FIRST=${FIRST:-101} PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=../badinput:../cluster
../../perf/peers/cassandra/setup.sh
exec "$(../compat/python/venv.sh cassandra)" three.py "$@"
