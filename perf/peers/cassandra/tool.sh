#!/usr/bin/env bash
# tool.sh CLASS ARGS...  runs one of Cassandra's own offline tools from org.apache.cassandra.tools,
# e.g. `tool.sh SSTableExport me-1-big-Data.db` or `tool.sh SSTableMetadataViewer me-1-big-Data.db`.
# Needs no running node. CONFIG=cassandra.yaml for tools that look at a node's own folders.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
class=${1:?usage: tool.sh CLASS ARGS...}
shift
"$here/setup.sh" >&2
jvm_options '^--add'
config=${CONFIG:-$home/tools.yaml}
[[ -n ${CONFIG:-} || -f $config ]] ||
  sed -e "s#@IP@#127.0.0.1#g; s#@PORT@#9042#g; s#@SEEDS@#127.0.0.1#g; s#@DATA@#$home/tools#g" \
      -e "s#@CLUSTER@#Test Cluster#g; /@EXTRA@/d; s#@COMMITLOG_SYNC@#commitlog_sync: batch#" "$conf/cassandra.yaml.in" >"$config"
exec java "${options[@]}" -Xmx512m -cp "$home/lib/*" -Dcassandra.storagedir="$home/tools" \
  -Dcassandra.config="file://$config" -Dlogback.configurationFile="$conf/logback-tools.xml" \
  "org.apache.cassandra.tools.$class" "$@"
