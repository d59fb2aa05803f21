#!/usr/bin/env bash
# Collects a runnable Apache Cassandra from its Maven artifacts into CASSANDRA_HOME
# (default <repo>/.cache/cassandra). Needs mvn, unzip and a JDK 17. Does nothing when
# the wanted version is already there; safe to call before every use.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

stamp=$home/collected
if [[ -f $stamp && $(<"$stamp") == "$version" ]]; then exit 0; fi

mkdir -p "$home/lib"
rm -f "$stamp" "$home"/lib/*.jar
mvn -q -B -f "$here/pom.xml" -Dcassandra.version="$version" \
  dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$home/lib"
# Natives of other systems only slow the start down.
rm -f "$home"/lib/*{osx,macos,windows,aarch_64,riscv64,kqueue}*
unzip -o -p "$home/lib/cassandra-all-$version.jar" META-INF/hotspot_compiler >"$home/hotspot_compiler"
echo "$version" >"$stamp"
echo "Cassandra $version in ${home#"$repo"/}: $(ls "$home/lib" | wc -l) jars"
