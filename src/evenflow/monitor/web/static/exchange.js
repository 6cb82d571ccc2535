// Who hosts what: a row per site, a matrix of sites and partitions, or a table. Moves travel from row to row.

import { css, h, keyed, mark, mayMove, write } from "./dom.js";
import { bytes, counted, percent, perSecond, short } from "./format.js";
import { cssOf, heat, numbers, ramp } from "./heat.js";
import { colour } from "./dom.js";
import { troubledFirst } from "./sites.js";

/** @typedef {import("./model.js").View} View @typedef {import("./model.js").SegmentView} SegmentView */

const WAYS = [["site", "by site"], ["matrix", "matrix"], ["table", "table"]];
const FLYERS = 40;
/** Rows of the fullest partition over the mean, from which on somebody should look. */
const SKEWED = 3;
/** From so many sites on rows are low, so that more are seen. */
const MANY = 12;
/** The widest cell, in pixels: one alone does not fill its row. */
const CELL = 56;
const TABLE_ROWS = 200;

export class Exchange {
  constructor() {
    this.way = "site";
    /** @type {string|null} */ this.chosen = null;
    /** @type {View|null} */ this.view = null;
    /** @type {Map<string, number>} */ this.before = new Map();
    this.pick = /** @type {HTMLSelectElement} */ (h("select", { "aria-label": "Segment", onchange: () => this.choose(this.pick.value) }));
    this.skew = h("span.pill", { hidden: true });
    this.buttons = WAYS.map(([way, text]) => h("button", { type: "button", "aria-pressed": String(way === this.way), onclick: () => this.turn(way) }, text));
    this.rows = h("div.rows", { tabindex: "0", role: "group", "aria-label": "Sites and what they host" });
    this.canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { role: "img", "aria-label": "Sites as rows, partitions as columns; the table has the same" }));
    this.hover = h("p.hover", { hidden: true });
    this.matrix = h("div.matrix", { hidden: true }, this.canvas);
    this.body = h("tbody");
    this.more = h("p.empty", { hidden: true });
    this.table = h(
      "div.scroll", { hidden: true, tabindex: "0", "aria-label": "Partitions" },
      h("table", {}, h("thead", {}, h("tr", {}, h("th.num", {}, "Partition"), h("th", {}, "Sites"), h("th", {}, "Coming to"), h("th.num", {}, "Rows"), h("th.num", {}, "State"))), this.body),
      this.more,
    );
    this.element = h(
      "section.card.at-exchange", { "aria-label": "Exchange" },
      h("header", {}, h("h2", {}, "Exchange"), this.pick, this.skew, h("span.push"), h("div.toggle", { role: "group", "aria-label": "How it is shown" }, ...this.buttons)),
      this.rows, this.matrix, this.table, this.hover,
      h("p.legend", {}, h("span", {}, "A cell is a replica. Width: state. Colour: rows"), h("span", {}, h("i.ramp", { "aria-hidden": "true" }), "few to many"), h("span", {}, "Hatched: second replica. Outlined: coming.")),
    );
    /** The mouse is over the matrix. */ this.pointed = false;
    this.canvas.addEventListener("mousemove", (event) => this.point(event));
    this.canvas.addEventListener("mouseleave", () => { this.pointed = false; this.draw(); });
    new ResizeObserver(() => this.draw()).observe(this.element);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.restyle());
    this.restyle();
  }

  restyle() {
    this.ramp = null;
    this.draw();
  }

  /** @param {string} way */
  turn(way) {
    this.way = way;
    WAYS.forEach(([name], i) => mark(this.buttons[i], "aria-pressed", String(name === way)));
    this.rows.hidden = way !== "site";
    this.matrix.hidden = this.hover.hidden = way !== "matrix";
    this.table.hidden = way !== "table";
    this.draw();
  }

  /** @param {string|null} segment */
  choose(segment) {
    this.chosen = segment;
    this.before.clear();
    this.draw();
  }

  /** @returns {SegmentView|undefined} */
  segment() {
    const all = this.view?.segments ?? [];
    return all.find((each) => String(each.id) === this.chosen) ?? all.filter((each) => each.keyed).sort((a, b) => b.partitions - a.partitions)[0] ?? all[0];
  }

  /** @param {View} view */
  show(view) {
    this.view = view;
    keyed(this.pick, view.segments, (each) => String(each.id), (each) => h("option", { value: each.id }), (element, each) => write(element, `${each.id} · ${each.name} ×${each.partitions}`));
    const segment = this.segment();
    if (segment && this.pick.value !== String(segment.id)) this.pick.value = String(segment.id);
    this.draw();
  }

  draw() {
    const view = this.view, segment = this.segment();
    if (!view || !segment) return;
    this.ramp ??= ramp();
    this.skew.hidden = segment.skew === null;
    write(this.skew, `skew ${segment.skew?.toFixed(2)}`);
    mark(this.skew, "data-tone", (segment.skew ?? 0) >= SKEWED ? "warn" : null);
    this.skew.title = "Rows of the busiest partition over the mean";
    const cells = cellsOf(segment);
    if (this.way === "site") this.bySite(view, segment, cells);
    else if (this.way === "matrix") this.asMatrix(view, segment, cells);
    else this.asTable(segment);
    this.travel(segment, cells);
  }

  /** @param {View} view @param {SegmentView} segment @param {Map<number, Cell[]>} cells */
  bySite(view, segment, cells) {
    mark(this.rows, "data-many", view.sites.length > MANY ? "" : null);
    const widest = Math.max(1, ...[...cells.values()].map((row) => row.reduce((sum, cell) => sum + cell.width, 0)));
    const most = Math.max(1e-9, ...segment.rows.map((each) => each ?? 0));
    keyed(
      this.rows, troubledFirst(view.sites, MANY), (site) => String(site.site),
      () => h("div.siterow", {}, h("div.who", {}, h("span"), h("span.role")), h("div.bar", {}, h("i"), h("span")), h("canvas", { role: "img" })),
      (element, site) => {
        const [who, bar, canvas] = /** @type {any} */ (element.children), row = cells.get(site.site) ?? [];
        mark(element, "data-role", site.role);
        write(who.children[0], `site ${site.site}`);
        write(who.children[1], site.role ?? "starting");
        mark(who.children[1], "data-role", site.role);
        const dead = site.role === "dead" || site.role === "left";
        css(bar, "--busy", dead ? 0 : site.busy ?? 0);
        css(bar, "--heat", heat(site.busy));
        write(bar.children[1], dead ? "–" : percent(site.busy));
        bar.title = `busy ${percent(site.busy)}, ${site.host}`;
        const said = `site ${site.site}: ${counted(row.filter((cell) => !cell.coming).length, "replica")}`;
        mark(canvas, "aria-label", said);
        this.strip(canvas, row, widest, most, dead);
      },
    );
  }

  /** Replicas of one site side by side. @param {HTMLCanvasElement} canvas @param {Cell[]} row @param {number} widest @param {number} most @param {boolean} dead */
  strip(canvas, row, widest, most, dead) {
    const ratio = devicePixelRatio || 1, width = Math.round(canvas.clientWidth * ratio), height = Math.round(canvas.clientHeight * ratio);
    const scale = Math.min(width / widest, CELL * ratio);
    if (!width) return;
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    const draw = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    draw.clearRect(0, 0, width, height);
    const gap = row.length * 3 * ratio < width ? ratio : 0, hatch = colour("--card"), edge = colour("--accent"), gone = colour("--strong");
    let x = 0;
    for (const cell of row) {
      const size = Math.max(1, cell.width * scale - gap);
      draw.fillStyle = dead ? gone : cssOf(this.ramp[Math.round(((cell.rows ?? 0) / most) * 255)]);
      if (cell.coming) {
        draw.strokeStyle = edge;
        draw.lineWidth = 1.5 * ratio;
        draw.strokeRect(x + ratio, ratio, Math.max(1, size - 2 * ratio), height - 2 * ratio);
      } else {
        draw.fillRect(x, 0, size, height);
        if (cell.rank > 0) hatched(draw, x, size, height, hatch, ratio);
      }
      x += size + gap;
    }
  }

  /** @param {View} view @param {SegmentView} segment @param {Map<number, Cell[]>} cells */
  asMatrix(view, segment, cells) {
    const rows = view.sites.length, columns = segment.partitions, tall = Math.max(1, Math.min(24, Math.floor(360 / Math.max(1, rows))));
    const most = Math.max(1e-9, ...segment.rows.map((each) => each ?? 0));
    const wide = Math.max(1, Math.floor(1200 / columns));
    Object.assign(this.canvas, { width: columns * wide, height: rows * tall });
    const draw = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    const image = draw.createImageData(columns * wide, rows * tall), pixels = new Uint32Array(image.data.buffer);
    const pixel = (name) => { const [r, g, b] = numbers(colour(name)); return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0; };
    pixels.fill(pixel("--raised"));
    const coming = pixel("--accent"), rank = pixel("--card"), gone = pixel("--bad-soft");
    view.sites.forEach((site, r) => {
      if (site.role === "dead") pixels.fill(gone, r * tall * columns * wide, (r + 1) * tall * columns * wide);
      for (const cell of cells.get(site.site) ?? []) {
        const hue = cell.coming ? coming : this.ramp[Math.round(((cell.rows ?? 0) / most) * 255)];
        for (let y = 0; y < Math.max(1, tall - 1); y++)
          for (let x = 0; x < Math.max(1, wide - (wide > 2 ? 1 : 0)); x++)
            pixels[(r * tall + y) * columns * wide + cell.partition * wide + x] = cell.rank > 0 && wide > 2 && (x + y) % 4 === 0 ? rank : hue;
      }
    });
    draw.putImageData(image, 0, 0);
    this.canvas.style.height = `${rows * tall}px`;
    const range = (name, count, first, last) => `${count} ${name}${count > 1 ? `, ${first} to ${last}` : ""}`;
    if (!this.pointed) write(this.hover, `Down: ${range("sites", rows, view.sites[0]?.site, view.sites.at(-1)?.site)}. Across: ${range("partitions", columns, 0, columns - 1)}.`);
  }

  /** @param {MouseEvent} event */
  point(event) {
    const segment = this.segment(), box = this.canvas.getBoundingClientRect();
    if (!segment || !this.view) return;
    this.pointed = true;
    const partition = Math.floor(((event.clientX - box.left) / box.width) * segment.partitions);
    const site = this.view.sites[Math.floor(((event.clientY - box.top) / box.height) * this.view.sites.length)];
    const hosts = segment.hosts[partition] ?? [];
    write(this.hover, `partition ${partition}, site ${site?.site}: ${hosts.includes(site?.site) ? `replica ${hosts.indexOf(site.site) + 1}` : "not here"}, ${perSecond(segment.rows[partition])}, state ${bytes(segment.state[partition])}`);
  }

  /** @param {SegmentView} segment */
  asTable(segment) {
    const order = [...segment.hosts.keys()].sort((a, b) => (segment.rows[b] ?? 0) - (segment.rows[a] ?? 0) || a - b).slice(0, TABLE_ROWS);
    keyed(
      this.body, order, String, () => h("tr", {}, h("td.num"), h("td"), h("td"), h("td.num"), h("td.num")),
      (row, partition) => {
        const texts = [String(partition), segment.hosts[partition].join(", ") || "none", (segment.coming[partition] ?? []).join(", "), perSecond(segment.rows[partition]), bytes(segment.state[partition])];
        texts.forEach((text, i) => write(row.children[i], text));
      },
    );
    this.more.hidden = segment.partitions <= TABLE_ROWS;
    write(this.more, `The ${TABLE_ROWS} busiest of ${short(segment.partitions)} partitions.`);
  }

  /** Replicas that are at another site than before fly there. @param {SegmentView} segment @param {Map<number, Cell[]>} cells */
  travel(segment, cells) {
    const now = new Map();
    for (const [site, row] of cells) for (const cell of row) if (!cell.coming) now.set(`${cell.partition}.${site}`, site);
    const before = this.before;
    this.before = now;
    if (this.way !== "site" || !mayMove() || !before.size) return;
    const came = [...now].filter(([key]) => !before.has(key)).slice(0, FLYERS);
    for (const [key, site] of came) {
      const partition = Number(key.split(".")[0]), from = segment.sources[partition] ?? [...before].find(([old]) => Number(old.split(".")[0]) === partition)?.[1];
      const [start, end] = [from, site].map((each) => /** @type {HTMLElement|null} */ (this.rows.querySelector(`[data-key="${each}"]`)));
      if (!start || !end || start === end) continue;
      const flyer = this.rows.appendChild(h("i.flyer", { "aria-hidden": "true" }));
      const x = 290 + (partition / Math.max(1, segment.partitions)) * Math.max(0, this.rows.clientWidth - 320);
      const place = (/** @type {HTMLElement} */ row) => `translate(${x}px, ${row.offsetTop + row.offsetHeight / 2 - 6}px)`;
      flyer.animate([{ transform: place(start), opacity: 0.2 }, { opacity: 1, offset: 0.3 }, { transform: place(end), opacity: 0.9 }], { duration: 400, easing: "ease-in-out" }).onfinish = () => flyer.remove();
    }
  }
}

/** @typedef {{partition: number, rank: number, coming: boolean, rows: number|null, width: number}} Cell */

/** Cells by site. Pure. @param {SegmentView} segment @returns {Map<number, Cell[]>} */
export function cellsOf(segment) {
  /** @type {Map<number, Cell[]>} */ const found = new Map();
  const states = segment.state.filter((each) => each !== null), mean = states.length ? states.reduce((a, b) => a + b, 0) / states.length : 0;
  const put = (site, partition, rank, coming) => {
    const state = segment.state[partition] ?? 0;
    const width = mean > 0 ? 0.35 + 0.65 * Math.min(4, state / mean) : 1;
    if (!found.has(site)) found.set(site, []);
    found.get(site)?.push({ partition, rank, coming, rows: segment.rows[partition] ?? null, width });
  };
  segment.hosts.forEach((sites, partition) => sites.forEach((site, rank) => put(site, partition, rank, false)));
  segment.coming.forEach((sites, partition) => (sites ?? []).forEach((site) => put(site, partition, 1, true)));
  return found;
}

/** @param {CanvasRenderingContext2D} draw @param {number} x @param {number} width @param {number} height @param {string} hue @param {number} ratio */
function hatched(draw, x, width, height, hue, ratio) {
  draw.save();
  draw.beginPath();
  draw.rect(x, 0, width, height);
  draw.clip();
  draw.strokeStyle = hue;
  draw.globalAlpha = 0.65;
  draw.lineWidth = 1.4 * ratio;
  draw.beginPath();
  for (let at = Math.floor((x - height) / (5 * ratio)) * 5 * ratio; at < x + width; at += 5 * ratio) {
    draw.moveTo(at, height);
    draw.lineTo(at + height, 0);
  }
  draw.stroke();
  draw.restore();
}
