#!/usr/bin/env bash
# run.sh  Three nodes on loopback addresses of their own: they find each other, agree on schema statements asked of any of them,
# go on when one is killed, and take it back. Some seconds. Needs Python 3 and nothing else.
#
# Environment: CETO (the binary). A failed run keeps its folder in .cache/runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=../badinput
exec python3 test_agreement.py
