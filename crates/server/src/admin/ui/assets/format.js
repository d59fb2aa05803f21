// Numbers as people read them: short ones for axes and tiles, exact ones for tooltips.

const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const groupedTenths = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });

const DECIMAL = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
const BINARY = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]];
const TIMES = [[1e6, "s"], [1e3, "ms"]];

// Three digits, without zeros at the end.
function digits(value) {
  const size = Math.abs(value);
  const places = size >= 99.95 || size === 0 ? 0 : size >= 9.995 ? 1 : size >= 0.1 ? 2 : 3;
  const text = value.toFixed(places);
  return places ? text.replace(/\.?0+$/, "") : text;
}

function scaled(value, steps, base) {
  const size = Math.abs(value);
  for (const [step, name] of steps) {
    // 999.6 k is 1 M.
    if (size >= step * 0.9995) return digits(value / step) + (base.space === false ? "" : "\u202f") + name;
  }
  return digits(value) + (base.unit ? "\u202f" + base.unit : "");
}

export const UNITS = {
  count: { short: (v) => scaled(v, DECIMAL, { space: false }), exact: (v) => groupedTenths.format(v) },
  rate: { short: (v) => scaled(v, DECIMAL, { space: false }) + "/s", exact: (v) => groupedTenths.format(v) + " /s" },
  bytes: {
    short: (v) => scaled(v, BINARY, { unit: "B" }),
    exact: (v) => (v < 1024 ? grouped.format(v) + " B" : scaled(v, BINARY, {}) + " (" + grouped.format(v) + " B)"),
    binary: true,
  },
  byterate: {
    short: (v) => scaled(v, BINARY, { unit: "B" }) + "/s",
    exact: (v) => (v < 1024 ? grouped.format(v) + " B/s" : scaled(v, BINARY, {}) + "/s (" + grouped.format(v) + " B/s)"),
    binary: true,
  },
  us: { short: (v) => scaled(v, TIMES, { unit: "µs" }), exact: (v) => (v < 1000 ? groupedTenths.format(v) + " µs" : scaled(v, TIMES, {}) + " (" + grouped.format(v) + " µs)") },
  percent: { short: (v) => digits(v) + "\u202f%", exact: (v) => v.toFixed(2) + " %" },
};

export const short = (value, unit) => (Number.isFinite(value) ? UNITS[unit].short(value) : "–");
export const exact = (value, unit) => (Number.isFinite(value) ? UNITS[unit].exact(value) : "no value");
export const integer = (value) => grouped.format(value);

export function duration(ms) {
  const s = Math.floor(ms / 1000);
  const [d, h, m] = [Math.floor(s / 86400), Math.floor(s / 3600) % 24, Math.floor(s / 60) % 60];
  if (d) return `${d} d ${h} h`;
  if (h) return `${h} h ${m} min`;
  if (m) return `${m} min ${s % 60} s`;
  return `${s} s`;
}

const two = (n) => String(n).padStart(2, "0");
export function clock(ms) {
  const at = new Date(ms);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

// Ticks of a linear axis from 0 to at least `top`: about `wanted`, at steps that people count in.
export function ticks(top, unit, wanted = 4) {
  const raw = top / wanted;
  const base = 10 ** Math.floor(Math.log10(raw));
  const step = UNITS[unit].binary && top >= 1024
    ? 2 ** Math.ceil(Math.log2(raw))
    : base * [1, 2, 2.5, 5, 10].find((one) => raw <= one * base * 1.0001);
  const count = Math.max(1, Math.ceil(top / step - 1e-9));
  return Array.from({ length: count + 1 }, (_, i) => i * step);
}

// Powers of ten from `low` to `high`.
export function decades(low, high) {
  const all = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++) all.push(10 ** e);
  return all;
}
