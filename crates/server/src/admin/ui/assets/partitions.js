// The tab "Top partitions": counts for some seconds which partitions are read and written most.

import { get } from "./ask.js";
import { Table, empty, failure, fill, h } from "./dom.js";
import { integer } from "./format.js";

// Keys that each shard counts.
const CAPACITY = 1024;
const SECONDS = [2, 5, 10, 30, 60];

export class Partitions {
  constructor() {
    this.tables = h("select", { "aria-label": "Table" });
    this.seconds = h("select", { "aria-label": "Seconds" }, SECONDS.map((n) => h("option", { value: String(n), selected: n === 5 }, `${n} s`)));
    this.button = h("button", { type: "button", class: "act", onclick: () => (this.stopping ? this.stopping.abort() : this.sample()) }, "Count");
    this.place = h("div", {}, empty("Nothing counted yet", "Counting begins with the button. Every shard then counts each read and write of a partition; scans do not count. It ends by itself, and when this page is left."));
    this.element = h("div", {}, h("div", { class: "bar" }, this.tables, this.seconds, this.button), this.place);
  }

  async open() {
    try {
      const all = Object.keys(await get("tables")).sort();
      const chosen = this.tables.value;
      fill(this.tables, ["", ...all].map((name) => h("option", { value: name, selected: name === chosen }, name || "All tables")));
    } catch (error) {
      fill(this.place, failure(error));
    }
  }

  close() {
    this.stopping?.abort();
  }

  async sample() {
    this.stopping = new AbortController();
    const ms = Number(this.seconds.value) * 1000, began = performance.now();
    const left = () => { this.button.textContent = `Stop (${Math.max(0, Math.ceil((ms - (performance.now() - began)) / 1000))} s)`; };
    left();
    const timer = setInterval(left, 250);
    const filter = this.tables.value ? `&table_filters=${encodeURIComponent(this.tables.value.replace(".", ":"))}` : "";
    try {
      this.show(await get(`/storage_service/toppartitions/?duration=${ms}&capacity=${CAPACITY}&list_size=20${filter}`, { signal: this.stopping.signal }), ms);
    } catch (error) {
      if (error.name !== "AbortError") fill(this.place, failure(error));
    } finally {
      clearInterval(timer);
      this.stopping = null;
      this.button.textContent = "Count";
    }
  }

  show(found, ms) {
    const card = (title, list, different) => {
      if (!list.length) return h("div", { class: "card" }, h("header", {}, h("h3", {}, title)), empty(`No ${title.toLowerCase()}`, `No partition was met in these ${ms / 1000} s.`));
      const most = Math.max(...list.map((row) => row.count));
      const table = new Table([
        { name: "Table", value: (row) => row.table },
        { name: "Partition key", value: (row) => row.key, wide: true, title: "Columns of the key with colons between them" },
        { name: "Count", number: true, value: (row) => row.count, show: (row) => {
          const bar = h("i", {});
          bar.style.width = `${(100 * row.count) / most}%`;
          return [integer(row.count), h("span", { class: "meter", "aria-hidden": "true" }, bar)];
        } },
        { name: "±", number: true, title: "The real count is not above the count, and not below it less this.", value: (row) => row.error, show: (row) => integer(row.error) },
      ], { sort: 2, descending: true, caption: title });
      table.update(list);
      return h("div", { class: "card" }, h("header", {}, h("h3", {}, title), h("span", { class: "note" }, `${integer(different)}${different % CAPACITY ? "" : " or more"} different partitions seen`)), table.element);
    };
    const parted = (list) => list.map(({ partition, count, error }) => {
      const [, keyspace, table, key] = partition.match(/^\(([^:]*):([^)]*)\) (.*)$/s) ?? [null, "", "", partition];
      return { table: `${keyspace}.${table}`, key, count, error };
    });
    fill(this.place, h("div", { class: "two" }, card("Reads", parted(found.read), found.read_cardinality), card("Writes", parted(found.write), found.write_cardinality)));
  }
}
