#!/usr/bin/env bash
# stop.sh IP  stops the node that start.sh started with this IP (or this DATA), by its pid.
# KILL=1 sends SIGKILL instead of SIGTERM.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
data=${DATA:-$home/nodes/${1:?usage: stop.sh IP}}
[[ -f $data/pid ]] || { echo "not running"; exit 0; }
pid=$(<"$data/pid")
if ! grep -qa CassandraDaemon "/proc/$pid/cmdline" 2>/dev/null; then
  rm -f "$data/pid"
  echo "not running"
  exit 0
fi
signal=TERM
[[ ${KILL:-0} == 1 ]] && signal=KILL
kill -"$signal" "$pid"
deadline=$((SECONDS + 60))
while ((SECONDS < deadline)); do
  if [[ ! -e /proc/$pid ]]; then
    rm -f "$data/pid"
    echo "stopped"
    exit 0
  fi
  sleep 0.1
done
echo "pid $pid still runs after 60 s" >&2
exit 1
