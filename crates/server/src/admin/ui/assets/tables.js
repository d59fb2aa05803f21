// The tabs "Tables" and "Clients": lists that are asked for again while they are shown.

import { get, rows } from "./ask.js";
import { Table, empty, failure, fill, h, repeat } from "./dom.js";
import { integer, short } from "./format.js";

const SYSTEM = /^system(_|$)/;
const number = (name, key, unit, title, most = null) => ({
  name, title, number: true,
  value: (row) => row[key] ?? NaN,
  show: (row) => {
    if (row[key] === undefined) return null;
    const text = unit ? short(row[key], unit) : integer(row[key]);
    if (!most) return text;
    const bar = h("i", {});
    bar.style.width = `${(100 * row[key]) / (most() || 1)}%`;
    return [text, h("span", { class: "meter", "aria-hidden": "true" }, bar)].map((part) => part);
  },
});

export class Tables {
  constructor() {
    this.most = 0;
    this.system = false;
    this.filter = "";
    const check = h("input", { type: "checkbox", onchange: (event) => { this.system = event.target.checked; this.show(); } });
    const filter = h("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter by name", oninput: (event) => { this.filter = event.target.value.toLowerCase(); this.show(); } });
    this.table = new Table([
      { name: "Keyspace", value: (row) => row.keyspace },
      { name: "Table", value: (row) => row.table },
      number("On disk", "scylla_column_family_live_disk_space", "bytes", "Bytes of table files in use", () => this.most),
      number("Uncompressed", "ceto_table_uncompressed_bytes", "bytes", "Bytes of rows in table files before compression"),
      number("Memtables", "ceto_table_memtable_bytes", "bytes", "Bytes in memtables"),
      number("Files", "scylla_column_family_live_sstable", null, "Table files"),
      number("Partitions", "ceto_table_file_partitions", "count", "Partitions in table files; one in several files counts as often"),
      number("Largest partition", "ceto_table_partition_bytes_max", "bytes", "By the files' histograms"),
      number("Tablets", "scylla_column_family_tablet_count", null, "Tablets on this node"),
      number("Reads", "ceto_table_reads", "count", "Reads of partitions since the start, coordinated here"),
      number("Range reads", "ceto_table_range_reads", "count", "Pages of range reads since the start, coordinated here"),
      number("Writes", "ceto_table_writes", "count", "Writes since the start, coordinated here"),
      number("Read p99", "ceto_table_read_latency_0.99", "us", "Of the last minute or two; the greatest of all shards"),
      number("Write p99", "ceto_table_write_latency_0.99", "us", "Of the last minute or two; the greatest of all shards"),
    ], { sort: 2, descending: true, caption: "Tables and their sizes" });
    this.note = h("span", { class: "note" });
    this.place = h("div", {});
    this.element = h("div", {}, h("div", { class: "bar" }, filter, h("label", { class: "note" }, check, " system tables"), h("span", { class: "push" }), this.note), this.place);
  }

  open() {
    this.end ??= repeat(() => this.load(), 5000);
  }

  close() {
    this.end?.();
    this.end = null;
  }

  async load() {
    try {
      const all = await get("tables");
      this.rows = Object.entries(all).map(([name, figures]) => {
        const [keyspace, table] = name.split(/\.(.*)/s);
        return { keyspace, table, ...figures };
      });
      this.show();
    } catch (error) {
      fill(this.place, failure(error));
    }
  }

  show() {
    if (!this.rows) return;
    const shown = this.rows.filter((row) => (this.system || !SYSTEM.test(row.keyspace)) && `${row.keyspace}.${row.table}`.toLowerCase().includes(this.filter));
    const sum = shown.reduce((bytes, row) => bytes + row.scylla_column_family_live_disk_space, 0);
    this.most = Math.max(...shown.map((row) => row.scylla_column_family_live_disk_space));
    this.note.textContent = `${shown.length} of ${this.rows.length} tables, ${short(sum, "bytes")} on this node's disk`;
    if (!shown.length) fill(this.place, empty("No tables", this.filter ? "No name contains the filter." : "Nobody has made a table yet. CREATE KEYSPACE and CREATE TABLE make one; the tab CQL can run them."));
    else {
      if (this.table.element.parentElement !== this.place) fill(this.place, this.table.element);
      this.table.update(shown);
    }
  }
}

export class Clients {
  constructor() {
    const text = (name, key, more = {}) => ({ name, value: (row) => row[key], ...more });
    const count = (name, key) => ({ name, number: true, value: (row) => Number(row[key]), show: (row) => integer(Number(row[key])) });
    this.table = new Table([
      { name: "Address", value: (row) => `${row.address}:${row.port}` },
      text("Driver", "driver_name"), text("Driver version", "driver_version"),
      { name: "Protocol", number: true, value: (row) => Number(row.protocol_version), show: (row) => `v${row.protocol_version}` },
      count("Requests", "request_count"),
      text("Keyspace", "keyspace_name"), text("User", "username"), text("Stage", "connection_stage"),
      { name: "TLS", value: (row) => (row.ssl_enabled === "True" || row.ssl_enabled === "true" ? row.ssl_protocol : "no") },
    ], { sort: 4, descending: true, caption: "Clients" });
    this.note = h("span", { class: "note" });
    this.place = h("div", {});
    this.element = h("div", {}, h("div", { class: "bar" }, h("span", { class: "note" }, "Connections of CQL clients to this node, from system_views.clients"), h("span", { class: "push" }), this.note), this.place);
  }

  open() {
    this.end ??= repeat(() => this.load(), 3000);
  }

  close() {
    this.end?.();
    this.end = null;
  }

  async load() {
    try {
      const found = await rows("SELECT * FROM system_views.clients", { pages: 4 });
      this.note.textContent = `${found.length}${found.more ? " or more" : ""} ${found.length === 1 ? "connection" : "connections"}`;
      if (!found.length) return fill(this.place, empty("No clients", "No driver is connected to this node. This page needs no connection of that kind and is not listed."));
      if (this.table.element.parentElement !== this.place) fill(this.place, this.table.element);
      this.table.update(found);
    } catch (error) {
      fill(this.place, failure(error));
    }
  }
}
