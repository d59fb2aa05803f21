#!/usr/bin/env bash
# run.sh LIB CLASSES CLASS ARGS...
# Runs CLASS of this folder, or of Apache Cassandra, with the jars in LIB. Compiled classes are kept in CLASSES.
# SSTABLETOOLS_CONFIG names a configuration to use instead of the one here.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
lib=$1 classes=$2 class=$3
shift 3
mkdir -p "$classes"
# Tests run side by side; one of them compiles.
exec 9>"$classes/.lock"
flock 9
if [[ -n $(find "$here" -name "*.java" -newer "$classes/DumpTables.class" 2>/dev/null || echo none) ]]; then
  javac -nowarn -d "$classes" -cp "$lib/*" "$here"/*.java
fi
exec 9>&-
exec java @"$here/jvm.options" -Dlogback.configurationFile="$here/logback.xml" \
  -Dcassandra.config="file://${SSTABLETOOLS_CONFIG:-$here/cassandra.yaml}" -Dcassandra.storagedir="$classes" -cp "$classes:$lib/*" "$class" "$@"
