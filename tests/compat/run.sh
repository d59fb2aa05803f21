#!/usr/bin/env bash
# run.sh [suites...]  runs the driver suites, each against a fresh node, once per shard count.
#
# Suites: python-cassandra python-scylla java go node rust cqlsh (default: all of them).
# Environment: PEER=ceto        the server under test; PEER=cassandra runs the same against Apache Cassandra 5
#              SHARDS="1 2"     shard counts to run with (for Cassandra: once, shown as -)
#              CETO=path        the binary (default target/release/ceto)
#              CETO_ARGS=...    more arguments for `ceto server`
#              PORT=9142        port of the node under test, PORT+1 is the shard-aware one
#              KEEP=1           keep the working directories of nodes (failed runs always keep theirs)
#
# Prints one line per suite and shard count, and last `N passed, N failed, N skipped` over all of them.
# Exit code 0 only if every suite passed and every node stopped cleanly.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../node.sh"

suites=("$@")
((${#suites[@]})) || suites=(python-cassandra python-scylla java go node rust cqlsh)
counts=${SHARDS:-1 2}
suite_seconds=900 # a suite that hangs is ended; the first run of one also builds its dependencies
[[ $PEER == cassandra ]] && counts=-

# An interrupted run leaves no node behind.
work=
trap '[[ -z $work ]] || node_kill "$work" >/dev/null 2>&1' EXIT
trap 'exit 130' INT TERM

passed=0 failed=0 skipped=0 bad=0
report=$(printf '%-18s %6s  %-6s %7s %7s %7s %8s  %s' suite shards result passed failed skipped seconds note)
for suite in "${suites[@]}"; do
  for shards in $counts; do
    work=$runs/compat-$suite-$shards
    log=$work.log
    rm -rf "$work"
    echo "== $suite, $PEER, shards: $shards"
    began=$SECONDS note=''
    if node_start "$work" "$shards"; then
      export CETO_HOST=$node_host CETO_PORT=$node_port CETO_RESTART_CMD="$here/../node.sh restart '$work' $shards"
      unset CETO_SHARDS CETO_SHARD_AWARE_PORT
      [[ $PEER == ceto ]] && export CETO_SHARDS=$shards CETO_SHARD_AWARE_PORT=$((node_port + 1))
      status=0
      case $suite in
        python-*) timeout "$suite_seconds" "$here/python/run.sh" "${suite#python-}" ;;
        *) timeout "$suite_seconds" "$here/$suite/run.sh" ;;
      esac >"$log" 2>&1 || status=$?
      ((status == 0)) || note="exit $status, see ${log#"$repo"/}"
      if ! node_stop "$work"; then
        status=1
        note="$note; the node did not stop cleanly, see ${work#"$repo"/}"
      fi
    else
      status=1
      note="the node did not start, see ${work#"$repo"/}"
      echo 'result: 0 passed, 1 failed, 0 skipped' >"$log"
    fi
    counted=$(grep -aoE 'result: [0-9]+ passed, [0-9]+ failed, [0-9]+ skipped' "$log" | tail -1)
    read -r p f s <<<"$(tr -cd '0-9 ' <<<"${counted:-0 1 0}")"
    # A suite that fails without naming a test, or runs none, is a failure of its own.
    if ((status != 0 && f == 0)) || ((p + f == 0)); then f=$((f + 1)); fi
    outcome=pass
    if ((f > 0)); then
      outcome=FAIL
      bad=$((bad + 1))
      tail -n 60 "$log"
    elif [[ -z ${KEEP:-} ]]; then
      rm -rf "$work"
    fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    line=$(printf '%-18s %6s  %-6s %7d %7d %7d %8d  %s' "$suite" "$shards" $outcome "$p" "$f" "$s" $((SECONDS - began)) "${note#; }")
    report+=$'\n'$line
    echo "$line"
  done
done
printf '\n%s\n\n%d passed, %d failed, %d skipped\n' "$report" $passed $failed $skipped
((bad == 0))
