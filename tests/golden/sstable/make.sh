#!/usr/bin/env bash
# make.sh [VERSION...]: makes the table files of this folder again (all versions, or those), with the CQLSSTableWriter of each version of Apache Cassandra,
# and has Cassandra 5 say what is in them. Needs mvn, a JDK 17 and the network; not part of any test. Collected jars and
# intermediate files stay in <repo>/.cache/golden. Local times of deletions change from run to run.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../../.." && pwd)
cache=$repo/.cache/golden
tools=$repo/perf/peers/sstabletools
# Version of the format, and the release that writes it.
releases=(ma=3.0.0 mb=3.0.7 mc=3.0.17 md=3.11.10 me=3.11.19 na=4.0-rc1 nb=4.0.19 oa=5.0.6 da=5.0.6)

collect() { # collect RELEASE: its jars into $cache/<release>
  local lib=$cache/$1 driver=
  [[ -d $lib ]] && return
  mkdir -p "$lib.pom"
  # Cassandra 3 needs the driver to write expiring rows, and does not ask for it.
  [[ $1 == 3.* ]] && driver="<dependency><groupId>com.datastax.cassandra</groupId><artifactId>cassandra-driver-core</artifactId><version>3.12.1</version></dependency>"
  cat >"$lib.pom/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>peers</groupId><artifactId>golden</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.cassandra</groupId><artifactId>cassandra-all</artifactId><version>$1</version></dependency>
    $driver
  </dependencies>
</project>
POM
  mvn -q -B -f "$lib.pom/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$lib"
}

write() { # write VERSION RELEASE
  local lib=$cache/$2 work=$cache/work/$1
  rm -rf "$work" && mkdir -p "$work/classes" "$work/out"
  cp "$tools/cassandra.yaml" "$work/cassandra.yaml"
  case $1 in
    oa) echo "storage_compatibility_mode: NONE" >>"$work/cassandra.yaml" ;;
    da) printf 'storage_compatibility_mode: NONE\nsstable:\n  selected_format: bti\n' >>"$work/cassandra.yaml" ;;
    *) sed -i 's/commitlog_sync_period: 10s/commitlog_sync_period_in_ms: 10000/' "$work/cassandra.yaml" ;;
  esac
  javac -nowarn -d "$work/classes" -cp "$lib/*" "$here/GoldenTables.java"
  java @"$tools/jvm.options" -Dlogback.configurationFile="$tools/logback.xml" -Dcassandra.storagedir="$work" \
    -Dcassandra.config="file://$work/cassandra.yaml" -cp "$work/classes:$lib/*" GoldenTables "$work/out" 2>&1 | grep "LEFT OUT" || true
}

bash "$repo/perf/peers/cassandra/setup.sh"
for pair in "${releases[@]}"; do
  version=${pair%%=*} release=${pair#*=}
  [[ $# == 0 || " $* " == *" $version "* ]] || continue
  collect "$release"
  echo "$version, by Cassandra $release"
  write "$version" "$release"
  find "$cache/work/$version/out" -name "*-Data.db" >"$cache/work/$version/list"
  config=$tools/cassandra.yaml
  [[ $version == oa || $version == da ]] && config=$cache/work/$version/cassandra.yaml
  SSTABLETOOLS_CONFIG=$config "$tools/run.sh" "$repo/.cache/cassandra/lib" "$cache/classes" DumpTables "$cache/work/$version/list"
  rm -rf "${here:?}/$version"
  while read -r data; do
    kind=$(basename "$(dirname "$data")")
    to=$here/$version/${kind%%-*}
    mkdir -p "$to"
    for file in "$(dirname "$data")"/*; do
      case $file in *.metadata | *.json) ;; *.dump) gzip -9nc "$file" >"$to/expected.dump.gz" ;; *) cp "$file" "$to/" ;; esac
    done
  done <"$cache/work/$version/list"
done
