// The tab "CQL": a statement in, its result out.

import { run, rows } from "./ask.js";
import { failure, fill, h } from "./dom.js";
import { integer, short } from "./format.js";

const LEVELS = ["LOCAL_ONE", "ONE", "TWO", "THREE", "LOCAL_QUORUM", "QUORUM", "EACH_QUORUM", "ALL", "ANY", "SERIAL", "LOCAL_SERIAL"];
const NUMBERS = /^(tinyint|smallint|int|bigint|varint|counter|float|double|decimal)$/;
const SIZES = [25, 100, 500];

export class Query {
  constructor() {
    this.text = h("textarea", { class: "editor", spellcheck: "false", "aria-label": "Statement", autocapitalize: "off", autocomplete: "off", placeholder: "SELECT * FROM system.local", onkeydown: (event) => this.key(event) });
    this.keyspace = h("input", { type: "text", list: "keyspaces", placeholder: "keyspace", "aria-label": "Keyspace", spellcheck: "false", autocapitalize: "off" });
    this.names = h("datalist", { id: "keyspaces" });
    this.level = h("select", { "aria-label": "Consistency level" }, LEVELS.map((name) => h("option", { value: name }, name)));
    this.size = h("select", { "aria-label": "Rows of a page" }, SIZES.map((n) => h("option", { value: String(n), selected: n === 100 }, `${n} rows`)));
    this.tracing = h("input", { type: "checkbox" });
    this.button = h("button", { type: "button", class: "act", title: "Ctrl and Enter", onclick: () => this.begin() }, "Run");
    this.result = h("div", { class: "result", "aria-live": "polite" });
    this.element = h("div", {}, h("div", { class: "card" }, this.text, h("div", { class: "options" }, this.button, this.keyspace, this.names, this.level, this.size, h("label", {}, this.tracing, "trace"), h("span", { class: "note" }, "One statement at a time; Ctrl+Enter runs it"))), this.result);
  }

  open() {
    if (matchMedia("(hover: hover)").matches) this.text.focus({ preventScroll: true });
    rows("SELECT keyspace_name FROM system_schema.keyspaces").then((found) => fill(this.names, found.map((row) => h("option", { value: row.keyspace_name }))), () => {});
  }

  key(event) {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    this.begin();
  }

  begin() {
    if (this.button.disabled || !this.text.value.trim()) return;
    this.asked = { statement: this.text.value, keyspace: this.keyspace.value.trim() || undefined, consistency: this.level.value, page_size: Number(this.size.value), tracing: this.tracing.checked };
    this.count = 0;
    this.body = null;
    this.page();
  }

  // Runs the statement, or fetches its next page.
  async page(state) {
    this.button.disabled = true;
    this.button.textContent = "Running";
    try {
      const { statement, ...options } = this.asked;
      this.show(await run(statement, { ...options, paging_state: state }), Boolean(state));
    } catch (error) {
      fill(this.result, failure(error));
    } finally {
      this.button.disabled = false;
      this.button.textContent = "Run";
    }
  }

  show(answer, isMore) {
    if (answer.kind === "error") {
      const { code, name, message } = answer.error;
      return fill(this.result, h("div", { class: "failure", role: "alert" }, h("strong", {}, `${name} (0x${code.toString(16).padStart(4, "0")})`), h("pre", { class: "mono" }, message)));
    }
    if (answer.kind === "keyspace") this.keyspace.value = answer.keyspace;
    const said = { void: "Done.", schema: "The schema was changed.", keyspace: `Statements use the keyspace ${answer.keyspace} now.` }[answer.kind];
    const took = h("span", { class: "note" }, `${short(answer.took_us, "us")} on the node`);
    const trace = answer.trace ? h("a", { class: "link", href: `#traces/${answer.trace}` }, "Show the trace") : null;
    const warnings = answer.warnings.map((text) => h("p", { class: "warning" }, text));
    if (said) return fill(this.result, warnings, h("div", { class: "bar" }, h("span", { class: "good-text" }, said), took, trace));
    if (!isMore || !this.body) this.begun(answer);
    this.append(answer);
    const more = answer.paging_state ? h("button", { type: "button", class: "plain", onclick: () => this.page(answer.paging_state) }, "Next page") : null;
    const cut = answer.values_cut ? h("span", { class: "note" }, `${answer.values_cut} long values are cut (…)`) : null;
    fill(this.result, warnings, h("div", { class: "bar" }, h("span", {}, `${integer(this.count)} ${this.count === 1 ? "row" : "rows"}${more ? " so far" : ""}`), took, trace, cut, h("span", { class: "push" }), more), this.frame);
  }

  begun({ columns }) {
    this.columns = columns;
    this.body = h("tbody");
    const isNumber = (column) => NUMBERS.test(column.type);
    const heads = columns.map((column) => h("th", { scope: "col", class: isNumber(column) ? "number" : null }, h("span", {}, column.name, h("small", {}, column.type))));
    this.frame = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Rows" }, h("table", {}, h("thead", {}, h("tr", {}, heads)), this.body));
  }

  append({ rows: found }) {
    this.count += found.length;
    this.body.append(...found.map((row) => h("tr", {}, row.map((value, at) => {
      const { type } = this.columns[at];
      const isLong = value !== null && value.length > 60;
      const kind = [NUMBERS.test(type) ? "number" : "", isLong ? "wide" : "", /^(blob|uuid|timeuuid)$/.test(type) ? "mono" : "", value === null ? "null" : ""].join(" ").trim();
      return h("td", { class: kind || null }, value === null ? "null" : value);
    }))));
  }
}
