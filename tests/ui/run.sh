#!/usr/bin/env bash
# run.sh [PICTURES]  The console at /ui, in a headless Chromium against a node in release. Needs Python 3; without a Chromium its
# flows are skipped, and say so. With PICTURES, a folder, nothing is tested: pictures of the console are written there.
#
# Environment: CETO (the binary), CHROMIUM (the browser), PORT=8990 (and the three above it). A failed run keeps its folder in
# .cache/runs.
set -euo pipefail
pictures=
if [[ $# -gt 0 ]]; then pictures=$(realpath -e "$1"); fi
cd "$(dirname "${BASH_SOURCE[0]}")"
export PORT=${PORT:-8990} PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=../badinput
if [[ -n $pictures ]]; then
  exec python3 pictures.py "$pictures"
fi
exec python3 test_ui.py
