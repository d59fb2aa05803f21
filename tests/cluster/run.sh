#!/usr/bin/env bash
# run.sh [TESTS]  Three nodes on loopback addresses of their own: they find each other, agree on schema statements asked of any of
# them, go on when one is killed, and take it back; rows have copies on all of them, and what a killed one missed reaches it as
# hints, or is mended by reads; logged batches of a killed coordinator are finished by others; tables get more copies and fewer;
# clients hear of nodes that come and go, and real drivers make use of it. Some minutes. Needs Python 3, and sets up two drivers for it.
#
# Environment: CETO (the binary), FIRST=21 (the last byte of the first node's address). A failed run keeps its folder in .cache/runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=../badinput
for tests in test_agreement.py test_copies.py test_replication.py test_events.py test_operators.py; do
  [[ $# -eq 0 || " $* " == *" $tests "* ]] || continue
  python3 "$tests"
done
[[ $# -eq 0 || " $* " == *" test_drivers.py "* ]] || exit 0
for driver in cassandra scylla; do
  python=$(../compat/python/venv.sh "$driver")
  "$python" test_drivers.py
done
