// Charts over time on a canvas: lines or stacked areas, with a legend that toggles and a tooltip with exact values.

import { h, fill } from "./dom.js";
import { clock, decades, exact, short, ticks } from "./format.js";

const PAD = { top: 10, right: 10, bottom: 22 };
// A line is not drawn across a longer time without values.
const GAP_MS = 5000;
const charts = new Set();
let cursor = null;

// Colours of the theme, read once and again when it changes.
let colors = null;
export function theme() {
  if (!colors) {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(name).trim();
    colors = { text: of("--muted"), grid: of("--grid"), line: of("--cursor"), surface: of("--surface"), heat: of("--heat").split(/\s+/), font: `11px ${of("--font")}` };
    for (let n = 1; n <= 12; n++) colors[`c${n}`] = of(`--c${n}`);
  }
  return colors;
}
export function themeChanged() {
  colors = null;
  for (const chart of charts) chart.draw();
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themeChanged);

// Sets the time at which every chart shows its cursor; null for none.
export function setCursor(time) {
  if (time === cursor) return;
  cursor = time;
  for (const chart of charts) chart.draw();
}

// The index of the time nearest to `time`.
export function nearest(times, time) {
  let low = 0, high = times.length - 1;
  if (high < 0) return -1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < time) low = middle + 1;
    else high = middle;
  }
  return low > 0 && time - times[low - 1] < times[low] - time ? low - 1 : low;
}

// Labels of the time axis: whole steps of the clock.
export function timeTicks(from, to, width) {
  const steps = [5, 10, 15, 30, 60, 120, 300].map((s) => s * 1000);
  const step = steps.find((one) => ((to - from) / one) * 76 <= width) ?? 600000;
  const all = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) all.push(at);
  return all;
}

// The frame that a chart and a heat map share: head, canvas, tooltip, the cursor by pointer and keys.
export class Plot {
  constructor({ title, note, controls = null }) {
    this.title = title;
    this.canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": title });
    this.tip = h("div", { class: "tip", hidden: true });
    this.message = h("p", { class: "message", hidden: true });
    this.legend = h("div", { class: "legend" });
    const head = h("header", {}, h("h3", { title: note }, title), controls);
    this.element = h("section", { class: "chart", "aria-label": title }, head, h("div", { class: "plot" }, this.canvas, this.message, this.tip), this.legend);
    this.context = this.canvas.getContext("2d");
    this.times = new Float64Array();
    this.window = [0, 1];
    this.hovered = false;
    this.left = 48;
    charts.add(this);
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.canvas);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerdown", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.leave());
    this.canvas.addEventListener("blur", () => this.leave());
    this.canvas.addEventListener("keydown", (event) => this.key(event));
  }

  remove() {
    charts.delete(this);
    this.observer.disconnect();
  }

  resize() {
    const scale = devicePixelRatio || 1;
    const { clientWidth, clientHeight } = this.canvas;
    if (!clientWidth) return;
    this.width = clientWidth;
    this.height = clientHeight;
    this.canvas.width = Math.round(clientWidth * scale);
    this.canvas.height = Math.round(clientHeight * scale);
    this.context.setTransform(this.canvas.width / clientWidth, 0, 0, this.canvas.height / clientHeight, 0, 0);
    this.draw();
  }

  x(time) {
    const [from, to] = this.window;
    return this.left + ((time - from) / (to - from)) * (this.width - this.left - PAD.right);
  }

  y(value) {
    const [low, high] = this.range;
    const part = this.log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
    return this.height - PAD.bottom - Math.min(1, Math.max(0, part)) * (this.height - PAD.bottom - PAD.top);
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const [from, to] = this.window;
    const part = (event.clientX - box.left - this.left) / (this.width - this.left - PAD.right);
    this.hovered = true;
    this.pointY = event.clientY - box.top;
    this.go(nearest(this.times, from + Math.min(1, Math.max(0, part)) * (to - from)), true);
  }

  go(index) {
    const before = cursor;
    if (index >= 0) setCursor(this.times[index]);
    if (before === cursor) this.draw();
  }

  leave() {
    this.hovered = false;
    this.pointY = null;
    this.tip.hidden = true;
    setCursor(null);
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
    const end = { Home: 0, End: this.times.length - 1 }[event.key];
    if (event.key === "Escape") return this.leave();
    if (step === undefined && end === undefined) return;
    event.preventDefault();
    this.hovered = true;
    const last = this.times.length - 1;
    const now = cursor === null ? last : nearest(this.times, cursor);
    this.go(Math.min(last, Math.max(0, end ?? now + step)));
  }

  say(text) {
    this.message.hidden = !text;
    if (text && this.message.textContent !== text) this.message.textContent = text;
  }

  // The grid with its labels. `marks` are values of the vertical axis.
  frame(marks, unit, minor = []) {
    const { context: c, width, height } = this;
    const paint = theme();
    c.clearRect(0, 0, width, height);
    c.font = paint.font;
    const names = marks.map((mark) => short(mark, unit));
    this.left = Math.ceil(Math.max(36, ...names.map((name) => c.measureText(name).width)) + 10);
    c.lineWidth = 1;
    c.strokeStyle = paint.grid;
    c.fillStyle = paint.text;
    c.textAlign = "right";
    c.textBaseline = "middle";
    const line = (y) => { c.beginPath(); c.moveTo(this.left, Math.round(y) + 0.5); c.lineTo(width - PAD.right, Math.round(y) + 0.5); c.stroke(); };
    c.globalAlpha = 0.45;
    for (const mark of minor) line(this.y(mark));
    c.globalAlpha = 1;
    marks.forEach((mark, n) => { line(this.y(mark)); c.fillText(names[n], this.left - 7, this.y(mark)); });
    c.textBaseline = "top";
    for (const time of timeTicks(...this.window, width - this.left)) {
      const x = this.x(time), text = clock(time), half = c.measureText(text).width / 2;
      c.globalAlpha = 0.6;
      c.beginPath(); c.moveTo(Math.round(x) + 0.5, PAD.top); c.lineTo(Math.round(x) + 0.5, height - PAD.bottom + 3); c.stroke();
      c.globalAlpha = 1;
      c.textAlign = "center";
      if (x - half > 2 && x + half < width) c.fillText(text, x, height - PAD.bottom + 6);
    }
    c.save();
    c.beginPath();
    c.rect(this.left, 0, width - this.left - PAD.right + 1, height - PAD.bottom + 1);
    c.clip();
  }

  drawCursor() {
    const index = cursor === null ? -1 : nearest(this.times, cursor);
    this.context.restore();
    if (index < 0 || Math.abs(this.times[index] - cursor) > GAP_MS || cursor < this.window[0]) {
      this.tip.hidden = true;
      return -1;
    }
    const { context: c } = this, x = Math.round(this.x(this.times[index])) + 0.5;
    c.strokeStyle = theme().line;
    c.setLineDash([3, 3]);
    c.beginPath(); c.moveTo(x, PAD.top); c.lineTo(x, this.height - PAD.bottom); c.stroke();
    c.setLineDash([]);
    return index;
  }

  // Shows `lines` beside the cursor, if it is in this chart.
  showTip(index, lines) {
    this.tip.hidden = !(this.hovered && index >= 0);
    if (this.tip.hidden) return;
    fill(this.tip, h("strong", {}, clock(this.times[index])), lines);
    const x = this.x(this.times[index]), room = this.tip.offsetWidth + 14;
    this.tip.style.left = `${Math.max(0, x + room < this.width ? x + 12 : x - room)}px`;
    this.tip.style.top = `${PAD.top}px`;
  }
}

/*
 * Series over time. Options: `unit`, `stack`, `log`, `max` (the axis goes at least so far), `limit` ({ name, value }, a line),
 * `none` (said when there is nothing to draw). `update` takes series { name, color, values, dash }.
 */
export class Chart extends Plot {
  constructor(options) {
    super(options);
    Object.assign(this, { unit: "count", stack: false, max: 0, log: false, none: "Nothing to show yet." }, options);
    this.series = [];
    this.off = new Set();
    this.range = [0, 1];
    this.entries = new Map();
  }

  update(times, window, series) {
    this.times = times;
    this.window = window;
    this.series = series.filter((one) => one.values);
    this.points = this.series.reduce((sum, one) => sum + one.values.reduce((n, value) => n + Number.isFinite(value), 0), 0);
    this.list();
    this.draw();
  }

  // The legend: a button for each series, kept while the series are the same.
  list() {
    const names = this.series.map((one) => one.name).join("\n");
    if (names !== this.listed) {
      this.listed = names;
      this.entries.clear();
      fill(this.legend, this.series.map((one) => {
        const value = h("output", {});
        const toggle = (event) => this.toggle(one.name, event.shiftKey || event.altKey);
        const button = h("button", { type: "button", "aria-pressed": String(!this.off.has(one.name)), title: "Click: show or hide. Shift and click: this one alone.", onclick: toggle }, h("i", { class: one.color }), h("span", {}, one.name), value);
        this.entries.set(one.name, { button, value });
        return button;
      }));
    }
    for (const one of this.series) {
      const last = one.values[one.values.length - 1];
      const text = Number.isFinite(last) ? short(last, this.unit) : "–";
      const { value } = this.entries.get(one.name);
      if (value.textContent !== text) value.textContent = text;
    }
  }

  toggle(name, alone) {
    const names = this.series.map((one) => one.name);
    if (alone) {
      const is = names.every((one) => (one === name) !== this.off.has(one));
      this.off = new Set(is ? [] : names.filter((one) => one !== name));
    } else if (!this.off.delete(name)) this.off.add(name);
    for (const [one, { button }] of this.entries) button.setAttribute("aria-pressed", String(!this.off.has(one)));
    this.draw();
  }

  shown() {
    return this.series.filter((one) => !this.off.has(one.name));
  }

  // The values as they are drawn: with `stack`, on top of those before.
  layers(shown) {
    if (!this.stack) return shown.map((one) => one.values);
    let below = new Float64Array(this.times.length);
    return shown.map(({ values }) => (below = below.map((base, i) => base + (Number.isNaN(values[i]) ? 0 : values[i]))));
  }

  draw() {
    if (!this.width) return;
    const shown = this.shown(), layers = this.layers(shown);
    let low = Infinity, high = 0;
    layers.forEach((values) => {
      for (let i = 0; i < values.length; i++) {
        if (this.times[i] < this.window[0] || !(values[i] > 0)) continue;
        if (values[i] > high) high = values[i];
        if (values[i] < low) low = values[i];
      }
    });
    let marks, minor = [];
    if (this.log) {
      marks = decades(high ? low : 100, Math.max(high, (high ? low : 100) * 1.01) || 1e4);
      if (marks.length < 2) marks.push(marks[0] * 10);
      minor = marks.slice(0, -1).flatMap((mark) => [2, 5].map((n) => n * mark));
      this.range = [marks[0], marks[marks.length - 1]];
    } else {
      if (this.limit?.value && this.limit.value < high * 3) high = Math.max(high, this.limit.value);
      const top = Math.max(high, this.max);
      marks = top ? ticks(top, this.unit) : [0, 1];
      this.range = [0, marks[marks.length - 1]];
    }
    this.frame(marks, this.unit, minor);
    this.say(this.times.length && this.points ? "" : this.times.length > 1 ? this.none : "Waiting for the second poll.");
    for (let n = layers.length - 1; n >= 0; n--) this.drawSeries(shown[n], layers[n], this.stack && n > 0 ? layers[n - 1] : null);
    if (this.limit?.value && !this.log) this.drawLimit();
    const index = this.drawCursor();
    this.showTip(index, this.lines(index));
    if (index >= 0) this.dots(shown, layers, index);
  }

  drawLimit() {
    const { context: c } = this, y = Math.round(this.y(this.limit.value)) + 0.5;
    if (this.limit.value > this.range[1]) return;
    c.strokeStyle = c.fillStyle = theme().text;
    c.setLineDash([6, 4]);
    c.beginPath(); c.moveTo(this.left, y); c.lineTo(this.width, y); c.stroke();
    c.setLineDash([]);
    c.textAlign = "right";
    c.textBaseline = "bottom";
    c.fillText(this.limit.name, this.width - PAD.right - 4, y - 2);
  }

  drawSeries(one, values, below) {
    const { context: c, times } = this;
    const color = theme()[one.color];
    const runs = [];
    let run = null;
    for (let i = 0; i < times.length; i++) {
      const gone = Number.isNaN(one.values[i]) && (!this.stack || this.isGap(i));
      if (gone || times[i] < this.window[0] - GAP_MS) { run = null; continue; }
      if (!run || times[i] - times[i - 1] > GAP_MS) runs.push((run = []));
      run.push(i);
    }
    c.strokeStyle = c.fillStyle = color;
    c.lineWidth = one.width ?? 1.6;
    c.lineJoin = "round";
    c.setLineDash(one.dash ?? []);
    for (const indexes of runs) {
      const path = () => { c.beginPath(); indexes.forEach((i, n) => (n ? c.lineTo(this.x(times[i]), this.y(values[i])) : c.moveTo(this.x(times[i]), this.y(values[i])))); };
      if (indexes.length === 1) { c.beginPath(); c.arc(this.x(times[indexes[0]]), this.y(values[indexes[0]]), 1.8, 0, 7); c.fill(); continue; }
      if (this.stack) {
        path();
        for (let n = indexes.length - 1; n >= 0; n--) c.lineTo(this.x(times[indexes[n]]), this.y(below ? below[indexes[n]] : this.range[0]));
        c.closePath();
        c.globalAlpha = 0.62;
        c.fill();
        c.globalAlpha = 1;
      }
      path();
      c.stroke();
    }
    c.setLineDash([]);
  }

  isGap(i) {
    return this.series.every((one) => Number.isNaN(one.values[i]));
  }

  dots(shown, layers, index) {
    const { context: c } = this;
    shown.forEach((one, n) => {
      if (!Number.isFinite(one.values[index]) || (this.stack && !one.values[index])) return;
      c.fillStyle = theme()[one.color];
      c.strokeStyle = theme().surface;
      c.lineWidth = 1.5;
      c.beginPath(); c.arc(this.x(this.times[index]), this.y(layers[n][index]), 3.2, 0, 7); c.fill(); c.stroke();
    });
  }

  lines(index) {
    if (index < 0) return null;
    const shown = this.shown();
    const line = (name, color, value) => h("div", {}, h("i", { class: color }), h("span", {}, name), h("b", {}, exact(value, this.unit)));
    const all = shown.map((one) => line(one.name, one.color, one.values[index]));
    if (this.stack) {
      all.reverse();
      if (shown.length > 1) all.push(line("together", "none", shown.reduce((sum, one) => sum + (one.values[index] || 0), 0)));
    }
    return all;
  }
}

// A small line without axes, for the tiles.
export class Spark {
  constructor() {
    this.element = h("canvas", { class: "spark", "aria-hidden": "true" });
    charts.add(this);
  }

  update(times, window, values, max) {
    Object.assign(this, { times, window, values, max });
    this.draw();
  }

  draw() {
    const { element: canvas, values } = this;
    const [width, height, scale] = [canvas.clientWidth, canvas.clientHeight, devicePixelRatio || 1];
    if (!width || !values) return;
    if (canvas.width !== Math.round(width * scale)) [canvas.width, canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
    const c = canvas.getContext("2d");
    c.setTransform(scale, 0, 0, scale, 0, 0);
    c.clearRect(0, 0, width, height);
    const [from, to] = this.window;
    const inside = [...values.keys()].filter((i) => this.times[i] >= from && Number.isFinite(values[i]));
    if (inside.length < 2) return;
    const top = Math.max(this.max ?? 0, ...inside.map((i) => values[i])) || 1;
    const x = (i) => ((this.times[i] - from) / (to - from)) * width, y = (i) => height - 1.5 - (values[i] / top) * (height - 4);
    c.strokeStyle = c.fillStyle = theme().c1;
    c.lineWidth = 1.5;
    c.beginPath();
    inside.forEach((i, n) => (n ? c.lineTo(x(i), y(i)) : c.moveTo(x(i), y(i))));
    c.stroke();
    c.lineTo(x(inside[inside.length - 1]), height); c.lineTo(x(inside[0]), height);
    c.globalAlpha = 0.14;
    c.fill();
    c.globalAlpha = 1;
  }
}
