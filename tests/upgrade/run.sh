#!/usr/bin/env bash
# run.sh [TESTS]  Nodes of two builds in one cluster: three nodes of the old build serve clients at QUORUM, are ended one after the other (SIGTERM,
# then all that again with `ceto ctl drain` before it, and with SIGKILL) and started with the new build, take schema changes in between, and go back to the old build.
# Nothing that was acknowledged may be lost, nothing be counted or applied twice, and no request may fail, other than on connections of the
# node that goes down. Some minutes.
#
# Environment: OLD (the old binary), else OLD_COMMIT is built into target/upgrade/<commit>; NEW or CETO (the new one, target/release/ceto);
# REQUESTS=2000 (answers in each state of the cluster); FIRST=101 (the last byte of the first node's address). A failed run keeps its folder
# in .cache/runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
repo=$(cd ../.. && pwd)
# An earlier build, whose clusters this one has to take over.
commit=${OLD_COMMIT:-c902c2a8cf82}

build_old() { # prints the binary of the commit, which is built once
  local folder=$repo/target/upgrade/$commit
  if [[ ! -x $folder/ceto ]]; then
    git -C "$repo" rev-parse --quiet --verify "$commit^{commit}" >/dev/null || {
      echo "no commit $commit here: a clone without its history? git fetch --unshallow, or name a binary with OLD" >&2
      return 1
    }
    rm -rf "$folder"
    git -C "$repo" worktree prune
    git -C "$repo" worktree add --quiet --detach "$folder/source" "$commit" >&2
    (cd "$folder/source" && CARGO_TARGET_DIR=$folder/target "${CARGO:-cargo}" build --release --locked -p server --bin ceto >&2)
    mv "$folder/target/release/ceto" "$folder/ceto"
    git -C "$repo" worktree remove --force "$folder/source" >&2
    rm -rf "$folder/target"
  fi
  echo "$folder/ceto"
}

OLD=${OLD:-$(build_old)}
NEW=${NEW:-${CETO:-$repo/target/release/ceto}}
export OLD NEW FIRST=${FIRST:-101}
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=../badinput:../cluster
echo "old: $("$OLD" --version), new: $("$NEW" --version)"
python=$(../compat/python/venv.sh cassandra)
exec "$python" test_upgrade.py "$@"
