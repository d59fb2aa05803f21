#!/usr/bin/env bash
# nodetool.sh COMMAND...  Cassandra's nodetool against the node whose JMX listens on JMX_PORT (7199).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
jvm_options '^--add'
exec java "${options[@]}" -Xmx128m -cp "$home/lib/*" -Dcassandra.storagedir="${TMPDIR:-/tmp}" \
  -Dlogback.configurationFile="$conf/logback-tools.xml" \
  org.apache.cassandra.tools.NodeTool -h 127.0.0.1 -p "${JMX_PORT:-7199}" "$@"
