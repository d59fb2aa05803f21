"""What all nodes have to show in the end of what was acknowledged: read at ALL, by way of each node."""

import collections

from cassandra import ConsistencyLevel
from cassandra.policies import WhiteListRoundRobinPolicy
from cassandra.query import SimpleStatement

from load import LONG_TTL, connect

# Nobody can have waited longer for a row that is still there.
LONG_TTL_LEFT = LONG_TTL - 3600


def problems(address, workers):
    """Differences between the records of all workers and what one coordinator reads."""
    cluster, session = connect([address], policy=WhiteListRoundRobinPolicy([address]))
    try:
        def read(statement, level=ConsistencyLevel.ALL):
            statement = SimpleStatement(statement, consistency_level=level, is_idempotent=True, fetch_size=500)
            return list(session.execute(statement, timeout=60))

        for check in (rows, overwritten, collections_, counters, registers, owners, lives, batches):
            for problem in check(read, workers):
                yield f"by way of {address}: {problem}"
    finally:
        cluster.shutdown()


def by_worker(rows):
    found = collections.defaultdict(dict)
    for row in rows:
        found[row.w][row.n] = row
    return found


def rows(read, workers):
    found = by_worker(read("SELECT w, n, v FROM u.rows"))
    for worker in workers:
        yield from worker.differences({n: row.v for n, row in found[worker.number].items()})


def overwritten(read, workers):
    found = {row.w: row.n for row in read("SELECT w, n FROM u.last")}
    for worker in workers:
        if worker.last is not None and not worker.last <= found.get(worker.number, -1) <= worker.last_tried:
            yield f"worker {worker.number}: {worker.last} was acknowledged last, and {found.get(worker.number)} is there"


def collections_(read, workers):
    sets, maps, lists = collections.defaultdict(set), collections.defaultdict(dict), collections.defaultdict(list)
    for row in read("SELECT w, part, s, m, l FROM u.collections"):
        sets[row.w] |= row.s or set()
        maps[row.w].update(row.m or {})
        lists[row.w] += row.l or []
    for worker in workers:
        number = worker.number
        if lost := worker.sets - sets[number]:
            yield f"worker {number}: elements {sorted(lost)[:5]} of sets are gone"
        if lost := [n for n in worker.sets if maps[number].get(n) != str(n)]:
            yield f"worker {number}: entries {sorted(lost)[:5]} of maps are gone"
        known = [n for n in lists[number] if n not in worker.lists_unknown]
        if known != worker.lists:
            wrong = [n for n, times in collections.Counter(known).items() if times > 1]
            lost = sorted(set(worker.lists) - set(known))
            yield f"worker {number}: of lists {lost[:5]} are gone, {wrong[:5]} are there more than once, or the order is another"


def counters(read, workers):
    found = {row.k: row.n for row in read("SELECT k, n FROM u.counters")}
    for key in found:
        least = sum(worker.counted[key] for worker in workers)
        most = least + sum(worker.count_unknown[key] for worker in workers)
        if not least <= found[key] <= most:
            yield f"counter {key} is {found[key]}, of {least} acknowledged and {most - least} unknown"


def registers(read, workers):
    applied = {token for worker in workers for token in worker.applied}
    unknown = {token for worker in workers for token in worker.cas_unknown}
    seen = []
    for row in serial(read):
        log = row.log or []
        seen += log
        if row.n != len(log):
            yield f"register {row.k} is {row.n} after {len(log)} steps"
    if twice := [token for token, times in collections.Counter(seen).items() if times > 1]:
        yield f"steps {twice[:5]} of registers were taken twice"
    if lost := applied - set(seen):
        yield f"{len(lost)} steps of registers were acknowledged and are gone, {sorted(lost)[:5]}"
    if extra := set(seen) - applied - unknown:
        yield f"{len(extra)} steps of registers were refused and are there, {sorted(extra)[:5]}"


def serial(read):
    """Registers by serial reads, which see what was begun and not finished."""
    keys = [row.k for row in read("SELECT k FROM u.registers")]
    for key in keys:
        yield from read(f"SELECT k, n, log FROM u.registers WHERE k = {key}", ConsistencyLevel.SERIAL)


def owners(read, workers):
    found = {row.k: row.owner for row in read("SELECT k, owner FROM u.once")}
    for worker in workers:
        for key in worker.owned:
            if found.get(key) != worker.number:
                yield f"key {key} was given to worker {worker.number}, and belongs to {found.get(key)}"
        for key in worker.not_owned:
            if found.get(key) in (None, worker.number):
                yield f"key {key} was refused to worker {worker.number}, and belongs to {found.get(key)}"


def lives(read, workers):
    found = by_worker(read("SELECT w, n, ttl(v) AS left FROM u.short"))
    for worker in workers:
        rows = found[worker.number]
        if lost := worker.long - rows.keys():
            yield f"worker {worker.number}: rows {sorted(lost)[:5]} are gone before their time"
        if late := worker.short & rows.keys():
            yield f"worker {worker.number}: rows {sorted(late)[:5]} are there after their time"
        if wrong := [n for n in worker.long & rows.keys() if not LONG_TTL_LEFT < rows[n].left <= LONG_TTL]:
            yield f"worker {worker.number}: rows {sorted(wrong)[:5]} live {rows[wrong[0]].left} s longer"


def batches(read, workers):
    left = {(row.w, row.n) for row in read("SELECT w, n FROM u.left")}
    right = {(row.w, row.n) for row in read("SELECT w, n FROM u.right")}
    if halves := left ^ right:
        yield f"of {len(halves)} logged batches one half is there, {sorted(halves)[:5]}"
    acknowledged = {(worker.number, n) for worker in workers for n in worker.batches}
    if lost := acknowledged - left:
        yield f"{len(lost)} logged batches are gone, {sorted(lost)[:5]}"
