#!/usr/bin/env bash
# run.sh [MODULE[.CLASS[.TEST]] ...]  Everything a client, a configuration or a disk can get wrong, against a node in release.
# Needs Python 3 and nothing else; the test of a full disk mounts a tmpfs and is skipped, loudly, where that is not permitted.
#
# Environment: CETO (the binary), PORT=9742 (and the one above it). A failed run keeps its folders in .cache/runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export PORT=${PORT:-9742} PYTHONDONTWRITEBYTECODE=1
exec python3 main.py "$@"
