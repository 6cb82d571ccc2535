// Latency and rates of the last ten minutes, with one cursor; what happened to sites stands in them as lines.

import "./language.js";
import { uPlot } from "./vendor/plot.js";
import { colour, h, write } from "./dom.js";
import { ms, perSecond } from "./format.js";
import { KEPT } from "./happened.js";
import { kindOf } from "./kinds.js";

const POINTS = 1200;
/** A run whose time falls back by more is another one of its id. */
const BACK_S = 2;
const NAMES = ["seconds", "p50_ms", "p99_ms", "rows_in_per_s", "rows_out_per_s"];
const PLOTS = [
  { title: "Latency", height: 118, series: [["p50_ms", "p50", "--accent"], ["p99_ms", "p99", "--bad"]], show: ms },
  { title: "Rows per second", height: 118, series: [["rows_in_per_s", "in", "--good"], ["rows_out_per_s", "out", "--violet"]], show: perSecond },
];

export class Curves {
  constructor() {
    this.body = h("div.curves");
    this.element = h("section.card.at-curves", { "aria-label": "Latency and rates" }, h("header", {}, h("h2", {}, "Latency and rates"), (this.over = h("span.soft", {}, "last 10 min"))), this.body);
    /** @type {Record<string, (number|null)[]>} */ this.data = Object.fromEntries(NAMES.map((name) => [name, []]));
    /** @type {any[]} */ this.events = [];
    /** The moment that is shown, seconds of the run; null: the newest. @type {number|null} */ this.moment = null;
    /** @type {((seconds: number) => void)|null} */ this.picked = null;
    /** @type {any[]} */ this.plots = [];
    this.values = PLOTS.map((plot) => plot.series.map(() => h("b", {}, "–")));
    PLOTS.forEach((plot, i) => {
      const keys = plot.series.map(([, name, hue], j) => h("span.key", {}, keyMark(hue), `${name} `, this.values[i][j]));
      const place = h("div", { role: "img", "aria-label": `${plot.title} over time` });
      this.body.append(h("div.curve", {}, h("div.title", {}, h("span", {}, plot.title), h("span", {}, ...keys)), place));
      this.plots.push({ place, plot, chart: null });
    });
    new ResizeObserver(() => this.resize()).observe(this.body);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.restyle());
  }

  restyle() {
    for (const each of this.plots) {
      each.chart?.destroy();
      each.chart = null;
    }
    this.draw();
  }

  resize() {
    const width = this.body.clientWidth - 20;
    for (const { chart, plot } of this.plots) if (chart && width > 50 && chart.width !== width) chart.setSize({ width, height: plot.height });
    if (!this.plots[0].chart) this.draw();
  }

  /** Another run, and what is known of its past. @param {Record<string, (number|null)[]>} told */
  restart(told) {
    this.events = [];
    for (const name of Object.keys(this.data)) this.data[name] = [...(told[name] ?? [])];
    this.draw();
  }

  /** @param {Record<string, number|null>} point */
  take(point) {
    if (!grown(this.data, point)) return;
    PLOTS.forEach((plot, i) => plot.series.forEach(([name], j) => write(this.values[i][j], plot.show(point[name]))));
    this.draw();
  }

  /** The curves are of something else than the last minutes, and somebody wants to go where they are clicked.
   * @param {string} text @param {(seconds: number) => void} picked */
  span(text, picked) {
    write(this.over, text);
    this.picked = picked;
  }

  /** A moment among what is drawn already. @param {number|null} seconds @param {Record<string, number|null>|null} point */
  now(seconds, point) {
    this.moment = seconds;
    PLOTS.forEach((plot, i) => plot.series.forEach(([name], j) => write(this.values[i][j], plot.show(point?.[name]))));
    for (const { chart } of this.plots) chart?.redraw(false, false);
  }

  /** @param {any[]} events */
  happened(events) {
    this.events = [...this.events, ...events.filter((event) => kindOf(event.kind).line)].slice(-KEPT);
  }

  draw() {
    if (this.data.seconds.length < 2 || this.body.clientWidth < 60) return;
    for (const each of this.plots) {
      const data = [this.data.seconds, ...each.plot.series.map(([name]) => this.data[name])];
      if (each.chart) each.chart.setData(data);
      else {
        const chart = (each.chart = new uPlot(this.options(each.plot), data, each.place));
        chart.over.addEventListener("click", (event) => this.picked?.(chart.posToVal(event.offsetX, "x")));
      }
    }
  }

  /** @param {typeof PLOTS[number]} plot */
  options(plot) {
    const grid = { stroke: colour("--line"), width: 1 };
    const axis = { stroke: colour("--soft"), grid, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const short = (value) => (value === 0 ? "0" : plot.show(value).replace("/s", "").replace(/(\.\d*?)0+(?=\s|$)/, "$1").replace(/\.(?=\s|$)/, ""));
    return {
      width: this.body.clientWidth - 20, height: plot.height, padding: [8, 16, 0, 0], cursor: { sync: { key: "evenflow" }, y: false, points: { size: 6 } },
      scales: { x: { time: false }, y: { range: (_, low, high) => [0, high > 0 ? high * 1.15 : 1] } },
      axes: [
        { ...axis, size: 24, gap: 6, values: (_, ticks) => ticks.map((t) => (t >= 120 ? `${Math.round(t / 6) / 10} min` : `${t} s`)) },
        { ...axis, size: 54, gap: 4, splits: undefined, space: 34, values: (_, ticks) => ticks.map(short) },
      ],
      series: [
        {},
        ...plot.series.map(([, , hue], i) => ({ stroke: colour(hue), width: 1.6, spanGaps: false, points: { show: false }, fill: i === 0 ? faint(colour(hue)) : undefined })),
      ],
      hooks: { draw: [(chart) => this.lines(chart)] },
    };
  }

  /** @param {any} chart */
  lines(chart) {
    const { ctx, bbox } = chart;
    const wanted = this.events.map((event) => [event.at_s, kindOf(event.kind).line, 3]);
    if (this.moment !== null) wanted.push([this.moment, "--ink", 0]);
    for (const [seconds, hue, dash] of wanted) {
      const x = Math.round(chart.valToPos(seconds, "x", true));
      if (!(x >= bbox.left && x <= bbox.left + bbox.width)) continue;
      ctx.save();
      ctx.strokeStyle = colour(hue);
      ctx.lineWidth = (dash ? 1 : 1.5) * devicePixelRatio;
      ctx.setLineDash(dash ? [dash * devicePixelRatio, dash * devicePixelRatio] : []);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.restore();
    }
  }
}

/** Columns with one point more; false: it is not newer than their last. @param {Record<string, (number|null)[]>} columns @param {Record<string, number|null>} point */
export function grown(columns, point) {
  const last = columns.seconds?.at(-1);
  if (last !== undefined && last !== null && point.seconds !== null && point.seconds <= last) {
    if (point.seconds > last - BACK_S) return false;
    for (const name of NAMES) columns[name] = [];
  }
  for (const name of NAMES) {
    const column = (columns[name] ??= []);
    column.push(point[name] ?? null);
    if (column.length > POINTS) column.shift();
  }
  return true;
}

/** @param {string} rgb */
const faint = (rgb) => rgb.replace("rgb(", "rgba(").replace(")", ", 0.10)");

/** @param {string} hue */
function keyMark(hue) {
  const mark = h("i", { "aria-hidden": "true" });
  mark.style.setProperty("--c", `var(${hue})`);
  return mark;
}
