#!/usr/bin/env bash
# start.sh IP [CPUS]  starts one Cassandra node on a loopback address, optionally pinned to
# CPUS (a taskset list such as 0,1), and returns once its CQL port answers.
#
# Environment: HEAP=1G          heap, fixed size
#              PROFILE=stock    or latest: trie memtables, BTI files, unified compaction, SAI
#              DATA=dir         data, commit log and logs (default <home>/nodes/IP)
#              PORT=9042        CQL port
#              JMX_PORT=7199    local JMX port, 0 for none
#              CLUSTER=name     cluster name (default "Test Cluster")
#              COMMITLOG_SYNC=periodic  or batch
#              SEEDS=IP[,IP]    seeds (default: itself)
#              JVM_EXTRA=flags  more JVM flags
#              WAIT=120         seconds to wait for the CQL port
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
ip=${1:?usage: start.sh IP [CPUS]}
cpus=${2:-}
port=${PORT:-9042}
data=${DATA:-$home/nodes/$ip}
heap=${HEAP:-1G}

"$here/setup.sh"
if (exec 3<>"/dev/tcp/$ip/$port") 2>/dev/null; then
  echo "something already answers on $ip:$port" >&2
  exit 1
fi
mkdir -p "$data"/{data,commitlog,hints,saved_caches,cdc_raw,logs,conf}
case ${COMMITLOG_SYNC:-periodic} in
  periodic) sync='commitlog_sync: periodic\ncommitlog_sync_period: 10000ms' ;;
  *) sync="commitlog_sync: $COMMITLOG_SYNC" ;;
esac
extra=/dev/null
[[ ${PROFILE:-stock} == latest ]] && extra=$conf/extra-latest.yaml
sed -e "s#@IP@#$ip#g; s#@PORT@#$port#g; s#@SEEDS@#${SEEDS:-$ip}#g; s#@DATA@#$data#g" \
    -e "s#@CLUSTER@#${CLUSTER:-Test Cluster}#g; s#@COMMITLOG_SYNC@#$sync#" \
    -e "/@EXTRA@/{r $extra" -e "d}" "$conf/cassandra.yaml.in" >"$data/conf/cassandra.yaml"

jvm_options
pin=()
[[ -n $cpus ]] && pin=(taskset -c "$cpus")
jmx=()
[[ ${JMX_PORT:-7199} != 0 ]] && jmx=(-Dcassandra.jmx.local.port="${JMX_PORT:-7199}")
class_path=$(printf '%s:' "$home"/lib/*.jar)

# The node must outlive its starter and keep none of the starter's descriptors (a lock, a pipe).
for fd in /proc/$BASHPID/fd/*; do
  number=${fd##*/}
  ((number <= 2 || number >= 200)) || eval "exec $number>&-"
done
# shellcheck disable=SC2086  # JVM_EXTRA is a list of flags
setsid "${pin[@]}" java -Xms"$heap" -Xmx"$heap" "${options[@]}" "${jmx[@]}" \
  -XX:CompileCommandFile="$home/hotspot_compiler" -javaagent:"$(ls "$home"/lib/jamm-*.jar)" \
  -Dcassandra.storagedir="$data" -Dcassandra.logdir="$data/logs" \
  -Dcassandra.config="file://$data/conf/cassandra.yaml" \
  -Dlogback.configurationFile="$conf/logback.xml" \
  -Dcassandra.ring_delay_ms=1000 -Dcassandra.skip_wait_for_gossip_to_settle=0 \
  -Dcassandra-foreground=yes ${JVM_EXTRA:-} \
  -cp "$data/conf:$class_path" org.apache.cassandra.service.CassandraDaemon \
  >"$data/logs/stdout.log" 2>&1 </dev/null &
pid=$!
echo "$pid" >"$data/pid"

# Ready means: the port answers an OPTIONS frame of protocol v4 with SUPPORTED (opcode 6).
answers() {
  local head
  head=$(exec 3<>"/dev/tcp/$ip/$port" && printf '\4\0\0\0\5\0\0\0\0' >&3 &&
    timeout 5 head -c 5 <&3 | od -An -tu1)
  [[ $head =~ \ 6$ ]]
}
deadline=$((SECONDS + ${WAIT:-120}))
began=$SECONDS
while ((SECONDS < deadline)); do
  if [[ ! -e /proc/$pid ]]; then
    echo "Cassandra (pid $pid) ended before its CQL port answered; see $data/logs" >&2
    exit 1
  fi
  if answers 2>/dev/null; then
    echo "pid $pid ready on $ip:$port after $((SECONDS - began)) s"
    exit 0
  fi
  sleep 0.1
done
echo "Cassandra (pid $pid): no CQL answer within ${WAIT:-120} s; see $data/logs" >&2
kill "$pid"
exit 1
