#!/usr/bin/env bash
# run.sh  Three nodes on loopback addresses of their own: they find each other, agree on schema statements asked of any of them,
# go on when one is killed, and take it back; rows have copies on all of them, and what a killed one missed reaches it as hints,
# or is mended by reads; logged batches of a killed coordinator are finished by others. Some minutes. Needs Python 3 and nothing else.
#
# Environment: CETO (the binary). A failed run keeps its folder in .cache/runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=../badinput
python3 test_agreement.py
exec python3 test_copies.py
