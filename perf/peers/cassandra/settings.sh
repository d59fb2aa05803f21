# Sourced by the scripts beside it: where the collected node lives and which version it is.
# Variables a caller may set: CASSANDRA_HOME (target folder), CASSANDRA_VERSION.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../../.." && pwd)
home=${CASSANDRA_HOME:-$repo/.cache/cassandra}
version=${CASSANDRA_VERSION:-5.0.6}
conf=$here/conf

# The Java module flags, one per array element.
jvm_options() { # jvm_options [grep pattern]
  options=()
  local line word
  while read -r line; do
    [[ -z $line || ! $line =~ ${1:-.} ]] && continue
    for word in $line; do options+=("$word"); done
  done <"$conf/jvm17.options"
}
