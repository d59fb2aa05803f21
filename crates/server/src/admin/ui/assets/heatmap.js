// How latencies are spread over time: a column for each poll, a cell for each half power of two, the darker the more requests.

import { Plot, theme } from "./chart.js";
import { h, fill } from "./dom.js";
import { decades, integer, short } from "./format.js";

const RAMP = 32;
const binOf = (us) => Math.floor(2 * Math.log2(Math.max(1, us)));
const binBegin = (bin) => 2 ** (bin / 2);

export class HeatMap extends Plot {
  constructor(options) {
    super(options);
    this.log = true;
    this.none = options.none;
    this.range = [100, 10000];
    this.scale = h("span", { class: "ramp" });
    this.most = h("output", {});
    fill(this.legend, h("span", { class: "note" }, "fewer"), this.scale, h("span", { class: "note" }, "more requests a poll"), this.most);
    fill(this.scale, Array.from({ length: 5 }, (_, n) => h("i", { class: `h${n + 1}` })));
  }

  // `counts` has for each time the buckets [end in microseconds, count], or null.
  update(times, window, counts) {
    this.times = times;
    this.window = window;
    this.columns = counts.map((buckets) => {
      if (!buckets) return null;
      const bins = new Map();
      for (const [end, count] of buckets) bins.set(binOf(end), (bins.get(binOf(end)) ?? 0) + count);
      return bins;
    });
    this.draw();
  }

  draw() {
    if (!this.width || !this.columns) return;
    let low = Infinity, high = -Infinity, most = 0;
    this.columns.forEach((bins, i) => {
      if (!bins || this.times[i] < this.window[0]) return;
      for (const [bin, count] of bins) {
        low = Math.min(low, bin);
        high = Math.max(high, bin);
        most = Math.max(most, count);
      }
    });
    const marks = decades(most ? binBegin(low) : 100, most ? binBegin(high + 1) : 1e4);
    if (marks.length < 2) marks.push(marks[0] * 10);
    this.range = [marks[0], marks[marks.length - 1]];
    this.frame(marks, "us", marks.slice(0, -1).flatMap((mark) => [2, 5].map((n) => n * mark)));
    this.say(most ? "" : this.times.length > 1 ? this.none : "Waiting for the second poll.");
    const text = most ? `darkest: ${integer(most)}` : "";
    if (this.most.textContent !== text) this.most.textContent = text;
    this.drawCells(most);
    const index = this.drawCursor();
    this.showTip(index, this.lines(index));
  }

  drawCells(most) {
    const { context: c, times } = this;
    const ramp = rampOf(theme().heat);
    this.columns.forEach((bins, i) => {
      if (!bins || times[i] < this.window[0]) return;
      const begin = i && times[i] - times[i - 1] < 5000 ? times[i - 1] : times[i] - 1000;
      const x = Math.floor(this.x(Math.max(begin, this.window[0])));
      const width = Math.max(1, Math.ceil(this.x(times[i])) - x);
      for (const [bin, count] of bins) {
        const [top, bottom] = [this.y(binBegin(bin + 1)), this.y(binBegin(bin))];
        c.fillStyle = ramp[Math.min(RAMP - 1, Math.floor(Math.sqrt(count / most) * RAMP))];
        c.fillRect(x, Math.round(top), width, Math.max(1, Math.round(bottom) - Math.round(top)));
      }
    });
  }

  lines(index) {
    const bins = index >= 0 ? this.columns[index] : null;
    if (!bins?.size) return index < 0 ? null : h("div", {}, h("span", {}, "no requests"));
    const total = [...bins.values()].reduce((sum, count) => sum + count, 0);
    return [...bins].sort((a, b) => b[0] - a[0]).map(([bin, count]) => h("div", {},
      h("span", {}, `${short(binBegin(bin), "us")} – ${short(binBegin(bin + 1), "us")}`),
      h("b", {}, `${integer(count)} (${((100 * count) / total).toFixed(1)} %)`)));
  }
}

// Colours between those of the theme.
let known = { key: null, ramp: null };
function rampOf(stops) {
  const key = stops.join();
  if (known.key === key) return known.ramp;
  const parts = stops.map((stop) => [1, 3, 5].map((at) => parseInt(stop.slice(at, at + 2), 16)));
  const ramp = Array.from({ length: RAMP }, (_, n) => {
    const at = (n / (RAMP - 1)) * (parts.length - 1), from = Math.min(parts.length - 2, Math.floor(at));
    const mixed = parts[from].map((value, i) => Math.round(value + (parts[from + 1][i] - value) * (at - from)));
    return `rgb(${mixed.join()})`;
  });
  known = { key, ramp };
  return ramp;
}
