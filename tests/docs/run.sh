#!/usr/bin/env bash
# run.sh [PAGES]  The manual is true: its commands run, their outputs are those it shows, its links lead somewhere.
# PAGES are paths below docs/, such as guide/backup.md; without them all pages and all links are checked. Needs
# Python 3 and curl.
#
# Commands run as they stand, with their default ports, in a network namespace of their own. Where none can be
# made (no permission) they run on the machine's loopback, with the ports 7000, 9042, 9180, 10000 and 19042.
#
# Environment: CETO (the binary), CQLSH (a real cqlsh in the place of cql.py). Folders of failed pages stay in
# .cache/runs/docs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export PYTHONDONTWRITEBYTECODE=1
own_network=(unshare --net)
((EUID == 0)) || own_network+=(--map-root-user)
if "${own_network[@]}" true 2>/dev/null; then
  DOCS_NETWORK=own exec "${own_network[@]}" python3 main.py "$@"
fi
DOCS_NETWORK=shared exec python3 main.py "$@"
