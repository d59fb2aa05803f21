#!/usr/bin/env bash
# tool.sh CLASS ARGS...  runs one of Cassandra's own offline tools from org.apache.cassandra.tools,
# e.g. `tool.sh SSTableExport me-1-big-Data.db` or `tool.sh SSTableMetadataViewer ...`.
# Needs no running node. CONFIG=cassandra.yaml for tools that read one.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
class=${1:?usage: tool.sh CLASS ARGS...}
shift
"$here/setup.sh" >&2
jvm_options '^--add'
config=()
[[ -n ${CONFIG:-} ]] && config=(-Dcassandra.config="file://$CONFIG")
exec java "${options[@]}" -Xmx512m -cp "$home/lib/*" -Dcassandra.storagedir="${TMPDIR:-/tmp}" \
  -Dlogback.configurationFile="$conf/logback-tools.xml" "${config[@]}" \
  "org.apache.cassandra.tools.$class" "$@"
