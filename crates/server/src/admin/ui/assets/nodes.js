// The tab "Nodes": the nodes of the cluster as this node sees them, and where the ranges of a table are.

import { get, rows } from "./ask.js";
import { Table, empty, failure, fill, h, repeat } from "./dom.js";
import { integer, short } from "./format.js";

const pairs = (list) => Object.fromEntries(list.map(({ key, value }) => [key, value]));
const RING = 2n ** 64n;

export class Nodes {
  constructor() {
    this.table = new Table([
      { name: "Node", value: (row) => row.address },
      { name: "State", value: (row) => row.state, show: (row) => h("span", { class: `state ${row.state === "UP" ? "good" : "bad"}` }, row.state) },
      { name: "Data center", value: (row) => row.data_center },
      { name: "Rack", value: (row) => row.rack },
      { name: "Data", number: true, title: "Bytes of table files, as far as this node knows", value: (row) => row.load, show: (row) => (Number.isFinite(row.load) ? short(row.load, "bytes") : null) },
      { name: "Ring share", number: true, title: "Share of the token ring", value: (row) => row.share, show: (row) => short(row.share * 100, "percent") },
      { name: "Cassandra version", value: (row) => row.version },
      { name: "Clients at", value: (row) => row.native },
      { name: "Host id", value: (row) => row.id, show: (row) => h("span", { class: "mono" }, row.id) },
    ], { caption: "Nodes" });
    this.tables = h("select", { "aria-label": "Table", onchange: () => this.ranges() });
    this.place = h("div", {});
    this.strip = h("div", {});
    this.element = h("div", {}, h("div", { class: "card" }, h("header", {}, h("h3", {}, "Nodes of the cluster"), h("span", { class: "note" }, "up and down as this node sees them")), this.place), h("div", { class: "card" }, h("header", {}, h("h3", {}, "Tablets"), this.tables), this.strip));
  }

  async open() {
    this.end ??= repeat(() => this.load(), 5000);
    try {
      const all = Object.keys(await get("tables")).sort((a, b) => a.startsWith("system") - b.startsWith("system") || a.localeCompare(b));
      const chosen = this.tables.value || all[0];
      fill(this.tables, all.map((name) => h("option", { value: name, selected: name === chosen }, name)));
      await this.ranges();
    } catch (error) {
      fill(this.strip, failure(error));
    }
  }

  close() {
    this.end?.();
    this.end = null;
  }

  async load() {
    try {
      const [ids, loads, states, shares, peers, local] = await Promise.all([
        get("/storage_service/host_id"), get("/storage_service/load_map"), get("/failure_detector/simple_states"), get("/storage_service/ownership"),
        rows("SELECT * FROM system.peers_v2"), rows("SELECT * FROM system.local"),
      ]);
      const [load, state, share] = [pairs(loads), pairs(states), pairs(shares)];
      const about = new Map([...peers.map((row) => [row.host_id, { ...row, native: `${row.native_address}:${row.native_port}` }]), ...local.map((row) => [row.host_id, { ...row, native: `${row.rpc_address}:${row.rpc_port}` }])]);
      const all = ids.map(({ key: address, value: id }) => {
        const row = about.get(id) ?? {};
        return { address, id, state: state[address] ?? "UNKNOWN", load: Number(load[address]), share: Number(share[address] ?? NaN), data_center: row.data_center, rack: row.rack, version: row.release_version, native: row.native };
      });
      if (this.table.element.parentElement !== this.place) fill(this.place, this.table.element);
      this.table.update(all);
    } catch (error) {
      fill(this.place, failure(error));
    }
  }

  // The tablets of the chosen table along the ring, and which node has a copy.
  async ranges() {
    const [keyspace, table] = this.tables.value.split(/\.(.*)/s);
    if (!table) return fill(this.strip, empty("No tables", "The node has no table yet."));
    let ring;
    try {
      ring = await get(`/storage_service/describe_ring/${encodeURIComponent(keyspace)}?table=${encodeURIComponent(table)}`);
    } catch (error) {
      return fill(this.strip, failure(error));
    }
    const span = ({ start_token: start, end_token: end }) => (BigInt(end) - BigInt(start) + RING) % RING || RING;
    const nodes = [...new Set(ring.flatMap((range) => range.endpoints))].sort();
    const color = (node) => `c${(nodes.indexOf(node) % 12) + 1}`;
    const ordered = [...ring].sort((a, b) => (BigInt(a.end_token) < BigInt(b.end_token) ? -1 : 1));
    const row = (node) => {
      const parts = ordered.map((range) => {
        const part = h("i", { class: range.endpoints.includes(node) ? color(node) : "none", title: `${range.start_token} to ${range.end_token}: ${range.endpoints.join(", ")}` });
        part.style.flex = String(Number(span(range)) / Number(RING));
        return part;
      });
      const copies = ring.filter((range) => range.endpoints.includes(node)).length;
      return [h("span", { class: "key" }, h("i", { class: color(node) }), node), h("div", { class: "strip", role: "img", "aria-label": `${node} has ${copies} of ${ring.length} tablets` }, parts), h("span", { class: "number" }, `${integer(copies)} of ${integer(ring.length)}`)];
    };
    fill(this.strip, h("p", { class: "note" }, "The token ring from left to right. A tablet is filled where the node has a copy of it."), h("div", { class: "strips" }, nodes.flatMap(row)));
  }
}
