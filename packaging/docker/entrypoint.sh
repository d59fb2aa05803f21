#!/bin/sh
# entrypoint.sh server [OPTIONS...]  Starts a node in a container.
# entrypoint.sh COMMAND...           Runs another command of ceto, such as `ctl status`.
#
# A node takes addresses as numbers, while containers know each other by names: names are looked up here. Environment:
#   CETO_SEEDS    names or addresses of the nodes that form the cluster, with commas between, the same for all nodes; without
#                 it the node is alone
#   CETO_ADDRESS  name or address of this container, for clients and other nodes (default: that of its host name)
#   CETO_BROADCAST_ADDRESS  name or address that other nodes and drivers are told instead, such as that of a service before the
#                 container
#   CETO_WORKDIR  the volume (default: /var/lib/ceto)
#   CETO_CONFIG   the configuration file (default: /etc/ceto/ceto.yaml)
#   CETO_SEED_SECONDS  how long a name of a seed may be unknown (default: 120; 10 where the volume has a node's data)
# Invariant: a node without data starts only when all seeds are known. Then their lists are equal, as the founding of a cluster
# needs it. A node with data has its cluster, and goes on with the seeds that are known.
set -eu

if [ "${1:-}" != server ]; then
  exec ceto "$@"
fi
shift

workdir=${CETO_WORKDIR:-/var/lib/ceto}
[ -e "$workdir/identity" ] && patience=10 || patience=120
patience=${CETO_SEED_SECONDS:-$patience}

# Prints the address of a name or of an address.
address_of() {
  getent ahosts "$1" | { read -r found _ && echo "$found"; }
}

# As address_of, but a container that does not find its own addresses ends.
own_address() {
  address_of "$1" || { echo "entrypoint: the address of $1 is not known: give $2" >&2; exit 1; }
}

address=$(own_address "${CETO_ADDRESS:-$(hostname)}" CETO_ADDRESS)
broadcast=
if [ -n "${CETO_BROADCAST_ADDRESS:-}" ]; then
  broadcast=$(own_address "$CETO_BROADCAST_ADDRESS" CETO_BROADCAST_ADDRESS)
fi

seeds=
for seed in $(echo "${CETO_SEEDS:-}" | tr ',' ' '); do
  waited=0
  until found=$(address_of "$seed"); do
    if [ "$waited" -ge "$patience" ]; then
      if [ -e "$workdir/identity" ]; then
        echo "entrypoint: goes on without seed $seed, whose address is not known" >&2
        continue 2
      fi
      echo "entrypoint: the address of seed $seed is not known after $patience s" >&2
      exit 1
    fi
    [ "$waited" -gt 0 ] || echo "entrypoint: waits until seed $seed has an address" >&2
    sleep 1
    waited=$((waited + 1))
  done
  seeds=$seeds${seeds:+,}$found
done

exec ceto server --config "${CETO_CONFIG:-/etc/ceto/ceto.yaml}" --workdir "$workdir" --listen "$address" \
  ${broadcast:+--broadcast-address "$broadcast" --broadcast-rpc-address "$broadcast"} ${seeds:+--seeds "$seeds"} "$@"
