// The tab "Overview": tiles and charts of one shard or of all.

import { Chart, Spark } from "./chart.js";
import { HeatMap } from "./heatmap.js";
import { h, fill } from "./dom.js";
import { short } from "./format.js";
import { QUANTILES } from "./history.js";

const TRANSPORT = "scylla_transport_cql_request_latency_histogram";
const LATENCIES = [
  ["All requests", TRANSPORT],
  ["Reads of a partition", "scylla_storage_proxy_coordinator_read_latency"],
  ["Reads of ranges", "ceto_coordinator_range_latency"],
  ["Writes", "scylla_storage_proxy_coordinator_write_latency"],
  ["Conditional writes", "scylla_storage_proxy_coordinator_cas_write_latency"],
  ["Serial reads", "scylla_storage_proxy_coordinator_cas_read_latency"],
];
const WINDOWS = [[1, "1 min"], [5, "5 min"], [10, "10 min"]];
// Groups in the order in which they are stacked; each keeps its colour.
const GROUPS = ["statement", "unprepared", "scan", "commitlog", "memtable", "compaction", "streaming", "repair", "control", "admin", "background"];

const map = (values, f) => values && values.map(f);
const color = (n) => `c${(n % 12) + 1}`;
const some = (values) => values && values.some((value) => value > 0);
const last = (values) => (values?.length ? values[values.length - 1] : NaN);

export class Overview {
  constructor(history) {
    this.history = history;
    this.shard = "all";
    this.minutes = 5;
    this.latency = TRANSPORT;
    this.kinds = h("select", { "aria-label": "Which requests", onchange: (event) => this.choose(event.target.value) }, LATENCIES.map(([name, key]) => h("option", { value: key }, name)));
    this.tiles = this.makeTiles();
    this.charts = this.makeCharts();
    this.shards = h("div", { class: "choice", role: "group", "aria-label": "Shard" });
    const windows = h("div", { class: "choice", role: "group", "aria-label": "Time shown" }, WINDOWS.map(([minutes, name]) => h("button", {
      type: "button", "aria-pressed": String(minutes === this.minutes), onclick: (event) => this.span(event.currentTarget, minutes),
    }, name)));
    const bar = h("div", { class: "bar" }, h("span", { class: "label" }, "Shard"), this.shards, h("span", { class: "push" }), windows);
    this.element = h("div", {}, bar, h("div", { class: "tiles" }, this.tiles.map((tile) => tile.element)), h("div", { class: "charts" }, this.charts.map(({ chart }) => chart.element)));
  }

  choose(key) {
    this.latency = key;
    this.draw();
  }

  span(button, minutes) {
    this.minutes = minutes;
    for (const one of button.parentElement.children) one.setAttribute("aria-pressed", String(one === button));
    this.draw();
  }

  listShards(count) {
    if (this.count === count) return;
    this.count = count;
    const pick = (value) => { this.shard = value; this.markShard(); this.draw(); };
    const all = ["all", ...Array.from({ length: count }, (_, n) => n)];
    if (count <= 8) fill(this.shards, all.map((value) => h("button", { type: "button", value: String(value), onclick: () => pick(value) }, value === "all" ? "All" : String(value))));
    else fill(this.shards, h("select", { "aria-label": "Shard", onchange: (event) => pick(event.target.value === "all" ? "all" : Number(event.target.value)) }, all.map((value) => h("option", { value: String(value) }, value === "all" ? `All ${count}` : `Shard ${value}`))));
    if (this.shard !== "all" && this.shard >= count) this.shard = "all";
    this.markShard();
  }

  markShard() {
    for (const button of this.shards.querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.value === String(this.shard)));
  }

  // Per cent of a core, for all shards of all cores.
  busy() {
    const part = this.shard === "all" ? this.history.shards : 1;
    return map(this.history.total("reactor_cpu_ns_total", this.shard), (ns) => ns / 1e7 / part);
  }

  memory() {
    const of = (key) => this.history.series(key, this.shard);
    return [
      ["memtables", of("scylla_memory_dirty_bytes")],
      ["row cache", of("scylla_cache_bytes_total")],
      ["index pages", of("scylla_sstables_index_page_cache_bytes")],
      ["filters, summaries", of("scylla_sstables_bloom_filter_memory_size")],
    ];
  }

  makeTiles() {
    const { history } = this;
    const of = (key) => history.series(key, this.shard);
    const tile = (name, unit, values, { max, under } = {}) => {
      const number = h("output", { class: "big" }), note = h("span", { class: "note" }), spark = new Spark();
      return { element: h("div", { class: "tile" }, h("h3", {}, name), number, note, spark.element), number, note, spark, unit, values, max, under };
    };
    return [
      tile("Requests", "rate", () => of("scylla_transport_requests_served"), { under: () => `${short(last(of("scylla_transport_current_connections")), "count")} connections` }),
      tile("Latency p99", "us", () => of(`${this.latency}@0.99`), { under: () => LATENCIES.find(([, key]) => key === this.latency)[0].toLowerCase() }),
      tile("Errors", "rate", () => this.errors(), { under: () => "answers that were errors" }),
      tile("Processor", "percent", () => this.busy(), { max: 100, under: () => (this.shard === "all" ? `of ${history.shards} cores` : "of its core") }),
      tile("Disk", "percent", () => map(history.total("scylla_io_queue_consumption", this.shard), (s) => s * 100), { max: 100, under: () => "of its time, by the model" }),
      tile("Memory", "bytes", () => this.memory().reduce((sum, [, values]) => values && (sum ? sum.map((v, i) => v + values[i]) : values), null), { under: () => `of ${short(last(of("scylla_memory_total_memory")), "bytes")}` }),
    ];
  }

  // A counter of errors appears with the first one.
  errors() {
    return this.history.total("scylla_transport_cql_errors_total", this.shard);
  }

  makeCharts() {
    const { history } = this;
    const of = (key) => history.series(key, this.shard);
    const total = (family) => history.total(family, this.shard);
    const plain = (pairs) => pairs.map(([name, values, n], at) => ({ name, values, color: color(n ?? at) }));
    const byLabel = (family, label, f = (v) => v) => {
      const names = history.labels(family, label);
      const known = [...GROUPS.filter((name) => names.includes(name)), ...names.filter((name) => !GROUPS.includes(name))];
      return known.map((name) => {
        const values = history.total(`${family}{${label}=${name}}`, this.shard);
        return { name, values: some(values) ? map(values, f) : null, color: color(Math.max(0, GROUPS.indexOf(name))) };
      });
    };
    const part = () => (this.shard === "all" ? history.shards : 1);
    const list = [];
    const add = (options, series, more) => list.push({ chart: new Chart(options), series, ...more });
    add({ title: "Requests by kind", unit: "rate", stack: true, none: "No statement ran in this time.", note: "Statements that this node coordinated. A page of a read counts as one." }, () => plain([
      ["reads", total("scylla_cql_reads")], ["inserts", total("scylla_cql_inserts")], ["updates", total("scylla_cql_updates")], ["deletes", total("scylla_cql_deletes")], ["batches", total("scylla_cql_batches")],
    ]));
    add({ title: "Latency", unit: "us", log: true, controls: this.kinds, none: "No such request in this time.", note: "Percentiles of the requests that were answered between two polls. The axis is logarithmic." }, () => QUANTILES.map((q, n) => ({
      name: `p${q * 100}`, values: of(`${this.latency}@${q}`), color: color([0, 2, 1, 3][n]), dash: [[], [7, 3], [], [2, 3]][n], width: n === 2 ? 2.2 : 1.6,
    })));
    list.push({ heat: true, chart: new HeatMap({ title: "Latency over time", none: "No such request in this time.", note: "How many requests took how long, for the requests chosen beside it. The axis is logarithmic." }) });
    add({ title: "Processor time by scheduling group", unit: "percent", stack: true, max: 100, none: "No group ran in this time.", note: "Time on the core. 100 % is one core for one shard, all cores for all." }, () => byLabel("reactor_cpu_ns_total", "group", (ns) => ns / 1e7 / part()));
    add({ title: "Row cache", unit: "rate", none: "The cache was not asked.", note: "Rows: hits, misses, rows put in after misses, rows merged in from memtables as they are flushed." }, () => plain([
      ["hits", of("scylla_cache_row_hits"), 2], ["misses", of("scylla_cache_row_misses"), 3], ["insertions", of("scylla_cache_row_insertions"), 0], ["merges", of("scylla_cache_rows_merged_from_memtable"), 5], ["evictions", of("scylla_cache_row_evictions"), 1],
    ]));
    add({ title: "Memory", unit: "bytes", stack: true, none: "No memory is taken.", note: "What the shard's memory is taken for. The rest is free or serves requests and answers." }, () => plain(this.memory()),
      { limit: () => ({ name: "the shard's memory", value: last(of("scylla_memory_total_memory")) }) });
    add({ title: "Disk time by the model", unit: "percent", stack: true, none: "No disk time was counted: no requests, or no model of this disk.", note: "Device time that the requests take by the disk's model. At 100 % of all shards together the scheduler admits no more." }, () => byLabel("scylla_io_queue_consumption", "class", (s) => s * 100),
      { limit: () => (this.shard === "all" ? { name: "the whole disk", value: 100 } : { name: "an equal share", value: 100 / history.shards }) });
    add({ title: "Disk throughput", unit: "byterate", none: "No bytes were read or written.", note: "Bytes read from and written to files by all groups." }, () => plain([
      ["read", total("scylla_io_queue_total_read_bytes"), 0], ["written", total("scylla_io_queue_total_write_bytes"), 1],
    ]));
    add({ title: "Disk queues", unit: "count", none: "No disk queue yet.", note: "Requests that wait for room, by class, and requests that are with the disk." }, () => [
      ...byLabel("scylla_io_queue_queue_length", "class").map((one) => ({ ...one, name: `${one.name} waits` })), ...plain([["with the disk", total("scylla_io_queue_disk_queue_length"), 8]]),
    ]);
    add({ title: "Compaction", unit: "byterate", none: "No compaction ran.", note: "Bytes that compactions read and wrote." }, () => plain([
      ["read", of("scylla_compaction_manager_bytes_read"), 0], ["written", of("scylla_compaction_manager_bytes_written"), 1],
    ]));
    add({ title: "Compactions: at work and due", unit: "count", none: "Nothing to show yet.", note: "Compactions that run, and those that wait for their turn." }, () => plain([
      ["at work", of("scylla_compaction_manager_compactions"), 0], ["due", of("scylla_compaction_manager_pending_compactions"), 3],
    ]));
    add({ title: "Stalls", unit: "rate", none: "No stalls were counted in this time.", note: "Times the core was held beyond the threshold: by a task, by the kernel, or since another process had the core." }, () => byLabel("reactor_stalls_total", "kind").map((one, n) => ({ ...one, color: color([3, 1, 0][n % 3]) })));
    add({ title: "Commit log: written", unit: "byterate", none: "Nothing was written to the log.", note: "Bytes written to the commit log." }, () => plain([["written", of("scylla_commitlog_bytes_written"), 1]]));
    add({ title: "Commit log: on disk", unit: "bytes", none: "No log yet.", note: "Bytes of segments that hold entries, and of all segments. Beyond the limit memtables are flushed." }, () => plain([
      ["active", of("scylla_commitlog_disk_active_bytes"), 0], ["all segments", of("scylla_commitlog_disk_total_bytes"), 4],
    ]), { limit: () => ({ name: "limit", value: last(of("ceto_commitlog_disk_bytes_max")) }) });
    add({ title: "Errors by kind", unit: "rate", none: "No answer was an error.", note: "Answers that were errors, and requests that were refused or timed out on this coordinator." }, () => [
      ...history.labels("scylla_transport_cql_errors_total", "type").map((name, n) => ({ name, values: history.series(`scylla_transport_cql_errors_total{type=${name}}`, this.shard), color: color(n) })),
    ]);
    return list;
  }

  draw() {
    const { history } = this;
    if (!this.element.isConnected || !history.latest) return;
    this.listShards(history.shards);
    const times = history.time();
    const to = times.length ? times[times.length - 1] : Date.now();
    const age = times.length ? to - times[0] : 0;
    const window = [to - Math.min(this.minutes * 60000, Math.max(60000, age)), to];
    for (const tile of this.tiles) {
      const values = tile.values();
      const shown = values ? short(last(values), tile.unit) : tile.unit === "rate" && times.length ? short(0, "rate") : "–";
      if (tile.number.textContent !== shown) tile.number.textContent = shown;
      tile.note.textContent = tile.under();
      if (values) tile.spark.update(times, window, values, tile.max);
    }
    for (const one of this.charts) {
      if (one.heat) one.chart.update(times, window, history.counts(this.latency, this.shard));
      else {
        one.chart.limit = one.limit?.();
        one.chart.update(times, window, one.series());
      }
    }
  }
}
