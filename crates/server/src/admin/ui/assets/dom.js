// Elements by short calls, and the table that all tabs use.

// An element: `h("p", { class: "note", onclick: f }, "text", child)`. Null children are left out.
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && !["list", "form"].includes(name) && typeof value !== "string") element[name] = value;
    else element.setAttribute(name === "class" ? "class" : name, value === true ? "" : value);
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined));
  return element;
}

export const fill = (element, ...children) => element.replaceChildren(...children.flat(3).filter((child) => child !== null && child !== undefined));

// A box that says what is missing, and what brings it.
export const empty = (title, text) => h("div", { class: "empty" }, h("strong", {}, title), text ? h("p", {}, text) : null);

export const failure = (error) => h("div", { class: "failure", role: "alert" }, h("strong", {}, "Not available"), h("p", {}, error.message));

/*
 * A table whose heads sort. Columns: { name, value(row), show(row) -> text or node, number, title, wide }.
 * Rows that come later with `update` keep the order and the scrolling.
 */
export class Table {
  constructor(columns, { sort = 0, descending = false, caption } = {}) {
    Object.assign(this, { columns, sort, descending, rows: [] });
    this.heads = columns.map((column, at) => {
      const button = h("button", { type: "button", onclick: () => this.order(at) }, column.name);
      return h("th", { scope: "col", class: column.number ? "number" : null, title: column.title ?? null }, button);
    });
    this.body = h("tbody");
    const table = h("table", {}, h("caption", { class: "hidden" }, caption), h("thead", {}, h("tr", {}, this.heads)), this.body);
    this.element = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, table);
    this.mark();
  }

  order(at) {
    this.descending = this.sort === at ? !this.descending : Boolean(this.columns[at].number);
    this.sort = at;
    this.mark();
    this.update(this.rows);
  }

  mark() {
    this.heads.forEach((head, at) => {
      if (at === this.sort) head.setAttribute("aria-sort", this.descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  }

  update(rows) {
    this.rows = rows;
    const { value } = this.columns[this.sort];
    const sorted = [...rows].sort((a, b) => compare(value(a), value(b)) * (this.descending ? -1 : 1));
    const made = sorted.map((row) => {
      const cells = this.columns.map((column) => {
        const shown = column.show ? column.show(row) : column.value(row);
        const missing = shown === null || shown === undefined || shown === "";
        return h("td", { class: [column.number ? "number" : "", column.wide ? "wide" : "", missing ? "missing" : ""].join(" ").trim() || null }, missing ? "–" : shown);
      });
      return h("tr", {}, cells);
    });
    // Rows that look as before stay, so that text in them stays selected.
    const old = [...this.body.children];
    made.forEach((row, at) => {
      if (!old[at]) this.body.append(row);
      else if (old[at].outerHTML !== row.outerHTML) old[at].replaceWith(row);
    });
    old.slice(made.length).forEach((row) => row.remove());
  }
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return (Number.isNaN(a) ? -Infinity : a) - (Number.isNaN(b) ? -Infinity : b);
  return String(a ?? "").localeCompare(String(b ?? ""), "en", { numeric: true });
}

// Calls `work` now and each `ms` while the page is visible, one call at a time; returns a function that ends it.
export function repeat(work, ms) {
  let ended = false, timer = 0, running = false;
  const turn = async () => {
    clearTimeout(timer);
    if (ended || running || document.hidden) return;
    running = true;
    const began = performance.now();
    try {
      await work();
    } finally {
      running = false;
      if (!ended) timer = setTimeout(turn, Math.max(100, ms - (performance.now() - began)));
    }
  };
  document.addEventListener("visibilitychange", turn);
  turn();
  return () => {
    ended = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", turn);
  };
}
