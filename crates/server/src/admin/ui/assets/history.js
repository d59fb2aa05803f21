// The last ten minutes of figures, of each shard and of all: made of differences between polls, and kept in this page alone.

const SIZE = 600;
// Polls that are further apart than this have no rates: the page was hidden or the node away.
const GAP_MS = 5000;
export const QUANTILES = [0.5, 0.95, 0.99, 0.999];

// Levels, as opposed to counters that only grow.
const LEVELS = new Set([
  "ceto_commitlog_disk_bytes_max", "scylla_cache_bytes_total", "scylla_commitlog_disk_active_bytes",
  "scylla_commitlog_disk_total_bytes", "scylla_compaction_manager_compactions",
  "scylla_compaction_manager_pending_compactions", "scylla_io_queue_disk_queue_length", "scylla_io_queue_queue_length",
  "scylla_memory_dirty_bytes", "scylla_memory_total_memory",
  "scylla_sstables_bloom_filter_memory_size", "scylla_sstables_index_page_cache_bytes", "scylla_transport_current_connections",
]);
const isLevel = (key) => LEVELS.has(key.split("{")[0]);

export class History {
  constructor() {
    this.clear();
  }

  clear() {
    this.length = 0;
    this.next = 0;
    this.times = new Float64Array(SIZE);
    this.shards = 0;
    this.rings = new Map();
    this.heat = [];
    this.last = null;
    this.latest = null;
  }

  // Takes an answer of /ui/data.
  push(data) {
    const { uptime_ms: uptime, time_ms: time } = data.node;
    const before = this.last;
    if (before && (uptime < before.uptime || data.shards.length !== this.shards)) this.clear();
    this.shards = data.shards.length;
    const elapsed = this.last ? uptime - this.last.uptime : 0;
    if (this.last && elapsed < 100) return;
    if (this.last && elapsed > GAP_MS) this.advance(time - 1, null, 0);
    if (this.last && elapsed <= GAP_MS) this.advance(time, data.shards, elapsed / 1000);
    this.last = { uptime, shards: data.shards };
    this.latest = data;
  }

  advance(time, shards, seconds) {
    const at = this.next;
    this.next = (at + 1) % SIZE;
    this.length = Math.min(SIZE, this.length + 1);
    this.times[at] = time;
    for (const rings of this.rings.values()) for (const ring of rings) if (ring) ring[at] = NaN;
    this.heat[at] = null;
    if (!shards) return;
    const sums = new Map(), heat = [];
    shards.forEach((figures, shard) => {
      const old = this.last.shards[shard];
      for (const [key, value] of Object.entries(figures)) {
        if (Array.isArray(value)) {
          const counts = difference(value, old[key]);
          (heat[shard] ??= {})[key] = counts;
          const all = ((heat[this.shards] ??= {})[key] ??= new Map());
          for (const [end, count] of counts) all.set(end, (all.get(end) ?? 0) + count);
          continue;
        }
        const shown = isLevel(key) ? value : Math.max(0, value - (old[key] ?? 0)) / seconds;
        this.ring(key, shard)[at] = shown;
        const sum = sums.get(key);
        sums.set(key, (sum ?? 0) + shown);
      }
    });
    for (const [key, sum] of sums) this.ring(key, this.shards)[at] = sum;
    heat.forEach((histograms, shard) => {
      for (const [key, counts] of Object.entries(histograms)) {
        const sorted = [...counts].sort((a, b) => a[0] - b[0]);
        histograms[key] = sorted;
        const values = quantiles(sorted);
        QUANTILES.forEach((q, n) => { this.ring(`${key}@${q}`, shard)[at] = values[n]; });
      }
    });
    this.heat[at] = heat;
  }

  ring(key, shard) {
    let rings = this.rings.get(key);
    if (!rings) this.rings.set(key, (rings = []));
    return (rings[shard] ??= new Float64Array(SIZE).fill(NaN));
  }

  // Which ring is meant: a shard's number, or "all".
  place(shard) {
    return shard === "all" ? this.shards : shard;
  }

  // Oldest first.
  inOrder(ring) {
    const out = new Float64Array(this.length);
    const begin = this.length < SIZE ? 0 : this.next;
    for (let i = 0; i < this.length; i++) out[i] = ring[(begin + i) % SIZE];
    return out;
  }

  time() {
    return this.inOrder(this.times);
  }

  // The values of a key; null if there were none yet.
  series(key, shard) {
    const ring = this.rings.get(key)?.[this.place(shard)];
    return ring ? this.inOrder(ring) : null;
  }

  // Sums of all keys of a family, or of the family itself.
  total(family, shard) {
    let out = null;
    for (const key of this.rings.keys()) {
      if (key !== family && !key.startsWith(family + "{")) continue;
      const values = this.series(key, shard);
      if (!values) continue;
      if (!out) out = values;
      // A part that did not exist yet counts as nothing.
      else for (let i = 0; i < out.length; i++) out[i] = Number.isNaN(out[i]) ? values[i] : out[i] + (values[i] || 0);
    }
    return out;
  }

  // The values that a label of a family has, in order.
  labels(family, label) {
    const found = new Set();
    for (const key of this.rings.keys()) {
      if (!key.startsWith(family + "{")) continue;
      const value = key.slice(family.length + 1, -1).split(",").find((pair) => pair.startsWith(label + "="));
      if (value) found.add(value.slice(label.length + 1));
    }
    return [...found].sort();
  }

  // Counts of a histogram at each time: arrays of [bucket's end, count], or null.
  counts(key, shard) {
    const begin = this.length < SIZE ? 0 : this.next;
    return Array.from({ length: this.length }, (_, i) => this.heat[(begin + i) % SIZE]?.[this.place(shard)]?.[key] ?? null);
  }
}

// How often each bucket grew; both histograms are [sum, count, end, count, ...].
function difference(now, old) {
  const before = new Map();
  if (old) for (let i = 2; i < old.length; i += 2) before.set(old[i], old[i + 1]);
  const grown = [];
  for (let i = 2; i < now.length; i += 2) {
    const count = now[i + 1] - (before.get(now[i]) ?? 0);
    if (count > 0) grown.push([now[i], count]);
  }
  return grown;
}

// The upper bounds of the buckets in which the quantiles fall.
export function quantiles(counts) {
  const total = counts.reduce((sum, [, count]) => sum + count, 0);
  return QUANTILES.map((q) => {
    if (!total) return NaN;
    let seen = 0;
    for (const [end, count] of counts) {
      seen += count;
      if (seen >= q * total) return end;
    }
    return NaN;
  });
}
