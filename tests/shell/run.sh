#!/usr/bin/env bash
# run.sh [TESTS]  `ceto shell` from outside, at a pseudo-terminal, from pipes and files, against a node in release, in some seconds.
# Needs Python 3 and nothing else.
#
# Environment: CETO (the binary), PORT=9542 (and the three above it). A failed run keeps its folder in .cache/runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export PORT=${PORT:-9542} PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=../badinput
failed=0
for tests in test_batch.py test_copy.py test_terminal.py; do
  [[ $# -eq 0 || " $* " == *" $tests "* ]] || continue
  python3 "$tests" || failed=1
done
exit $failed
