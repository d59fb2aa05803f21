#!/usr/bin/env bash
# perf/storage.sh [MEGABYTES]   what reads cost that memory does not answer, what files cost to make, what compaction costs.
#
# Four tables on standard output: cold reads by strategy and summary ratio, and the same data set with a tenth of its size as
# memory (examples/cold of the crate storage); writing, reading and compacting files on one core (ceto perf) beside what the disk
# takes by itself; bytes written and room by compaction strategy (examples/amplification). MEGABYTES (160) is the
# data set's size. Takes some minutes; requests, bytes and amplification repeat, rates are the machine's.
# Environment: CETO (target/release/ceto), DIRECTORY (where files go: a folder on the disk that is to be measured), FLUSHES (100).
set -euo pipefail
cd "$(dirname "$0")/.."
[[ ${1:-} != -* ]] || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 2; }
ceto=${CETO:-target/release/ceto}
[[ -x $ceto ]] || cargo build --release --locked --bin ceto >&2
cargo build --release --locked -p storage --examples >&2
scratch=$(mktemp -d -p "${DIRECTORY:-.}" storage-figures.XXXXXX)
trap 'rm -rf "$scratch"' EXIT
export TMPDIR=$scratch

echo '## Reads from disk'
target/release/examples/cold "${1:-160}"
echo
echo '## One core and the disk'
dd if=/dev/zero of="$scratch/dd" bs=1M count=1024 oflag=direct conv=fsync 2>&1 | sed -n 's/^.*, /disk, written with O_DIRECT in pieces of 1 MiB: /p'
dd if="$scratch/dd" of=/dev/null bs=1M iflag=direct 2>&1 | sed -n 's/^.*, /disk, read likewise: /p'
rm -f "$scratch/dd"
for bench in 'sstable --mode write' 'sstable --mode full-scan' 'compaction'; do
  echo "ceto perf $bench: $("$ceto" perf ${bench} --duration 5 --workdir "$scratch/bench" 2>/dev/null | sed -n 's/ tps.*//; s/^median \([0-9.]*\)$/\1 partitions of a row of 200 bytes a second (median)/p')"
  rm -rf "$scratch/bench"
done
echo
echo '## Compaction'
target/release/examples/amplification "${FLUSHES:-100}"
