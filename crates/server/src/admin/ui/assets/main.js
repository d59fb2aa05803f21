// The page: its head, its tabs, and the poll that feeds the charts.

import { get } from "./ask.js";
import { themeChanged } from "./chart.js";
import { h, fill, repeat } from "./dom.js";
import { duration } from "./format.js";
import { History } from "./history.js";
import { Nodes } from "./nodes.js";
import { Overview } from "./overview.js";
import { Partitions } from "./partitions.js";
import { Query } from "./query.js";
import { Clients, Tables } from "./tables.js";
import { Traces } from "./traces.js";

const POLL_MS = 1000;
const history = new History();
const overview = new Overview(history);
// A tab has an `element`, and may have `open(rest)`, called when it is shown, and `close()`.
const TABS = [
  ["overview", "Overview", overview],
  ["tables", "Tables", new Tables()],
  ["partitions", "Top partitions", new Partitions()],
  ["traces", "Slow queries and traces", new Traces()],
  ["clients", "Clients", new Clients()],
  ["cql", "CQL", new Query()],
  ["nodes", "Nodes", new Nodes()],
];
const main = document.querySelector("main");
const nav = document.querySelector("nav");
let shown = null;

const links = TABS.map(([id, name]) => h("a", { href: `#${id}`, id: `tab-${id}` }, name));
fill(nav, links);

function route() {
  const [id, ...rest] = location.hash.slice(1).split("/");
  const tab = TABS.find(([name]) => name === id) ?? TABS[0];
  if (shown !== tab) {
    shown?.[2].close?.();
    shown = tab;
    fill(main, h("h2", { class: "hidden" }, tab[1]), tab[2].element);
    document.title = `${tab[1]} · ceto`;
    links.forEach((link, n) => {
      if (TABS[n] === tab) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    });
    links[TABS.indexOf(tab)].scrollIntoView({ block: "nearest", inline: "nearest" });
    scrollTo(0, 0);
  }
  tab[2].open?.(rest.map(decodeURIComponent));
  if (tab[2] === overview) overview.draw();
}

const put = (id, text) => {
  const element = document.getElementById(id);
  if (element.textContent !== text) element.textContent = text;
};

function head({ node }) {
  put("cluster", node.cluster);
  put("node", node.address);
  put("version", node.version);
  put("uptime", duration(node.uptime_ms));
  put("place", `${node.data_center} / ${node.rack}`);
  put("nodes", node.nodes === 1 ? "1 node" : `${node.nodes_up} of ${node.nodes} nodes up`);
  state(node.mode, node.mode === "NORMAL" && node.nodes_up === node.nodes ? "good" : "warn");
  document.getElementById("node").title = `Host id ${node.host_id}, clients at ${node.native_address}`;
}

function state(text, kind) {
  put("state", text);
  document.getElementById("state").className = `state ${kind}`;
}

async function poll() {
  let data;
  try {
    data = await get("data");
  } catch (error) {
    state("NO ANSWER", "bad");
    document.getElementById("state").title = error.message;
    return;
  }
  document.getElementById("state").title = "";
  head(data);
  history.push(data);
  overview.draw();
}

// The theme: the system's until the button is used.
const themes = ["auto", "light", "dark"];
const button = document.getElementById("theme");
function setTheme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  button.textContent = { auto: "◐", light: "☀", dark: "☾" }[name];
  button.title = `Colours: ${name}`;
  button.setAttribute("aria-label", `Colours: ${name}. Change`);
  themeChanged();
}
let theme = themes.includes(localStorage.getItem("theme")) ? localStorage.getItem("theme") : "auto";
setTheme(theme);
button.addEventListener("click", () => {
  theme = themes[(themes.indexOf(theme) + 1) % themes.length];
  localStorage.setItem("theme", theme);
  setTheme(theme);
});

addEventListener("hashchange", route);
route();
repeat(poll, POLL_MS);
