#!/usr/bin/env bash
# run.sh [NODES...]  `ceto local` from outside, with clusters of so many nodes (1 and 3): ready line, verbs, ends, refusals.
# Needs Python 3 and nothing else.
#
# Environment: CETO (the binary), FIRST=127.0.44.1 (the first node's address). A failed run keeps its folder in .cache/runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export FIRST=${FIRST:-127.0.44.1} PYTHONDONTWRITEBYTECODE=1
[[ $# -gt 0 ]] || set -- 1 3
failed=0
for nodes in "$@"; do
  NODES=$nodes python3 test_local.py || failed=1
done
exit $failed
