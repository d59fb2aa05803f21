// The tab "Slow queries and traces": lists from system_traces, and one trace as a waterfall.

import { get, rows } from "./ask.js";
import { Table, empty, failure, fill, h } from "./dom.js";
import { exact, integer, short } from "./format.js";

// A trace is written after its request was answered.
const TRIES = 10;
const TRY_MS = 150;
const PAGES = 4;

// Entries of a map literal such as {'query': 'SELECT'}.
export function entries(text) {
  return [...(text ?? "").matchAll(/'((?:[^']|'')*)': ('(?:[^']|'')*'|[^,}]*)/gs)].map(([, name, value]) => [name, value.startsWith("'") ? value.slice(1, -1).replaceAll("''", "'") : value]);
}

const statement = (row) => entries(row.parameters).find(([name]) => name === "query")?.[1] ?? row.command ?? row.request ?? "";
const time = (text) => (text ?? "").replace("T", " ").replace(/(\.\d{3})\d*/, "$1").replace(/(Z|\+0000)$/, "");
const link = (id, text) => h("a", { href: `#traces/${id}` }, text);

export class Traces {
  constructor() {
    this.kind = "slow";
    const kinds = [["slow", "Slow queries"], ["all", "Traced requests"]];
    this.kinds = kinds.map(([value, name]) => h("button", { type: "button", value, "aria-pressed": String(value === this.kind), onclick: () => this.choose(value) }, name));
    this.note = h("span", { class: "note" });
    this.settings = h("span", { class: "note" });
    this.place = h("div", {});
    this.bar = h("div", { class: "bar" }, h("div", { class: "choice", role: "group", "aria-label": "Which requests" }, this.kinds), h("button", { type: "button", class: "plain", onclick: () => this.load() }, "Reload"), this.settings, h("span", { class: "push" }), this.note);
    this.element = h("div", {}, this.bar, this.place);
  }

  choose(kind) {
    this.kind = kind;
    for (const button of this.kinds) button.setAttribute("aria-pressed", String(button.value === kind));
    return this.load();
  }

  open([id]) {
    this.bar.hidden = Boolean(id);
    return id ? this.trace(id) : this.load();
  }

  async load() {
    const turn = (this.turn = (this.turn ?? 0) + 1);
    const current = () => turn === this.turn && !this.bar.hidden;
    if (this.kind !== "slow") this.settings.textContent = "";
    try {
      const shown = this.kind === "slow" ? await this.slow(current) : await this.sessions();
      if (current()) fill(this.place, shown);
    } catch (error) {
      if (current()) fill(this.place, failure(error));
    }
  }

  count(found) {
    this.note.textContent = found.more ? `the first ${integer(found.length)} rows of the table` : `${integer(found.length)} ${found.length === 1 ? "row" : "rows"}`;
  }

  async slow(current) {
    let found;
    this.note.textContent = "";
    try {
      found = await rows("SELECT * FROM system_traces.node_slow_log", { pages: PAGES });
    } catch (error) {
      if (error.code !== 0x2200) throw error;
      return empty("No log of slow queries", "This version of the node has no table system_traces.node_slow_log. Traced requests are in the other list.");
    }
    this.count(found);
    const state = await get("/storage_service/slow_query");
    if (current()) this.steer(state);
    if (!found.length) {
      return empty("No slow queries are recorded", state.enable
        ? `Requests that take ${short(state.threshold, "us")} or longer appear here; there was none within the time that records are kept.`
        : "Recording is off. The button above switches it on; rows are then written to system_traces.node_slow_log.");
    }
    const table = new Table([
      { name: "Time (UTC)", value: (row) => row.date ?? row.start_time, show: (row) => link(row.session_id, time(row.date ?? row.start_time)) },
      { name: "Duration", number: true, value: (row) => Number(row.duration), show: (row) => short(Number(row.duration), "us") },
      { name: "Statement", wide: true, value: statement },
      { name: "Tables", value: (row) => (row.table_names ?? "").replace(/[{}']/g, "") },
      { name: "Client", value: (row) => row.source_ip },
      { name: "User", value: (row) => row.username },
      { name: "Node", value: (row) => row.node_ip },
      { name: "Shard", number: true, value: (row) => Number(row.shard), show: (row) => row.shard },
    ], { sort: 1, descending: true, caption: "Slow queries" });
    table.update(found);
    return table.element;
  }

  // Whether slow requests are recorded, and from which time on.
  steer(state) {
    const set = async (query) => {
      try {
        await get(`/storage_service/slow_query?${query}`, { method: "POST" });
        await this.load();
      } catch (error) {
        fill(this.place, failure(error));
      }
    };
    const least = h("input", { type: "number", min: "1", max: "600000", value: String(state.threshold / 1000), "aria-label": "Milliseconds", class: "ms", onchange: (event) => Number(event.target.value) > 0 && set(`threshold=${Math.round(Number(event.target.value) * 1000)}`) });
    fill(this.settings, h("span", { class: "steer" }, state.enable ? "Records requests from " : "Recording is off; requests from ", least, " ms ", h("button", { type: "button", class: "plain", onclick: () => set(`enable=${!state.enable}`) }, state.enable ? "Stop" : "Record")));
  }

  async sessions() {
    const found = await rows("SELECT * FROM system_traces.sessions", { pages: PAGES });
    this.count(found);
    if (!found.length) return empty("No traces", "No request was traced within the last day. TRACING ON in cqlsh, the box \"trace\" of the tab CQL, or ceto ctl settraceprobability make traces.");
    const table = new Table([
      { name: "Started (UTC)", value: (row) => row.started_at, show: (row) => link(row.session_id, time(row.started_at)) },
      { name: "Duration", number: true, value: (row) => Number(row.duration), show: (row) => (row.duration ? short(Number(row.duration), "us") : "at work") },
      { name: "Statement", wide: true, value: statement },
      { name: "Request", value: (row) => row.request },
      { name: "Client", value: (row) => row.client },
      { name: "Coordinator", value: (row) => row.coordinator },
    ], { sort: 0, descending: true, caption: "Traced requests" });
    table.update(found);
    return table.element;
  }

  async trace(id) {
    const turn = (this.turn = (this.turn ?? 0) + 1);
    const back = h("a", { href: "#traces", class: "link" }, "← All traces");
    const show = (...children) => turn === this.turn && fill(this.place, h("div", { class: "bar" }, back), children);
    if (!/^[0-9a-f-]{36}$/.test(id)) return show(empty("No such trace", "The address has no id of a trace."));
    show(h("p", { class: "note" }, "Loading the trace."));
    try {
      let session;
      for (let n = 0; n < TRIES && !session?.duration && turn === this.turn; n++) {
        if (n) await new Promise((done) => setTimeout(done, TRY_MS));
        [session] = await rows(`SELECT * FROM system_traces.sessions WHERE session_id = ${id}`);
      }
      const events = await rows(`SELECT * FROM system_traces.events WHERE session_id = ${id}`, { pages: PAGES });
      if (!session && !events.length) return show(empty("No such trace", `No trace has the id ${id}. Traces are kept for a day.`));
      show(this.waterfall(session ?? {}, events));
    } catch (error) {
      show(failure(error));
    }
  }

  waterfall(session, events) {
    const at = (event) => Number(event.source_elapsed);
    const sorted = events.map((event, n) => ({ event, n })).sort((a, b) => at(a.event) - at(b.event) || a.n - b.n).map(({ event }) => event);
    const total = Math.max(1, Number(session.duration) || 0, ...sorted.map(at));
    const laneOf = (event) => `${event.source} ${event.thread ?? ""}`.trim();
    const lanes = [...new Set(sorted.map(laneOf))];
    const bars = sorted.map((event, n) => {
      // An event lasts until the next one of its thread.
      const next = sorted.slice(n + 1).find((other) => laneOf(other) === laneOf(event));
      const begin = at(event), end = next ? at(next) : total;
      const bar = h("i", { class: `c${(lanes.indexOf(laneOf(event)) % 8) + 1}`, title: `${event.activity}: from ${exact(begin, "us")}, for ${exact(end - begin, "us")} on ${laneOf(event)}` });
      bar.style.left = `${(100 * begin) / total}%`;
      bar.style.width = `${(100 * (end - begin)) / total}%`;
      return h("div", { class: "row", role: "listitem" }, h("span", { class: "what" }, event.activity), h("span", { class: "lane" }, bar), h("span", { class: "at" }, short(begin, "us")));
    });
    const scale = [0, 0.25, 0.5, 0.75, 1].map((part) => h("span", {}, short(total * part, "us")));
    const facts = [["Statement", statement(session)], ["Duration", session.duration ? exact(Number(session.duration), "us") : "not complete"], ["Started (UTC)", time(session.started_at)], ["Client", session.client], ["Coordinator", session.coordinator], ...entries(session.parameters).filter(([name]) => name !== "query")];
    return [
      h("div", { class: "card" }, h("header", {}, h("h3", {}, session.request ?? "Trace")), h("dl", { class: "parameters" }, facts.filter(([, value]) => value).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]))),
      h("div", { class: "card waterfall" }, h("header", {}, h("h3", {}, `${events.length} events`), h("span", { class: "note" }, lanes.map((lane, n) => h("span", { class: "key" }, h("i", { class: `c${(n % 8) + 1}` }), lane)))),
        events.length ? [h("div", { class: "row scale", "aria-hidden": "true" }, h("span", {}), h("span", { class: "lane" }, scale), h("span", { class: "at" }, "begins at")), h("div", { role: "list" }, bars)] : empty("No events", "The trace has no events.")),
    ];
  }
}
