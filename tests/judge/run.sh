#!/usr/bin/env bash
# run.sh [SEED...]  20 clients of gocql change registers and lists on three nodes by conditional writes, while nodes are killed, held and cut off
# from each other; porcupine, which knows nothing of ceto, decides whether there is an order of all requests that explains every answer.
# Needs Go and Python 3. Cutting off needs a network namespace (unshare --net) and `ip`; without them that kind of harm is left out, which is said.
#
# Environment: CETO (the binary), SECONDS_AT_LEAST=90 (SECONDS_AT_LEAST=10 is the short form), REQUESTS=2000 and CLIENTS=20 per run,
# FIRST=104 (the last byte of the first node's address). A failed run keeps its folder in .cache/runs, with the history and a picture of it;
# `judge check FILE` judges it again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export JUDGE
JUDGE=$(cd ../.. && pwd)/.cache/judge
GOFLAGS=-mod=readonly go build -o "$JUDGE" .
# The judge is judged first: histories that are known to be wrong.
GOFLAGS=-mod=readonly go test .
export FIRST=${FIRST:-104} PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=../badinput:../cluster
own_network=()
if command -v ip >/dev/null && unshare --net true 2>/dev/null; then
  own_network=(env OWN_NETWORK=1 unshare --net sh -c 'ip link set lo up && exec "$@"' sh)
fi
seeds=("$@")
((${#seeds[@]})) || seeds=(1 2)
passed=0 failed=0
for seed in "${seeds[@]}"; do
  if SEED=$seed "${own_network[@]}" python3 test_judge.py; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
  fi
done
echo "$passed passed, $failed failed, 0 skipped"
((failed == 0))
