// The network: boxes and arrows where the server has put them. React Flow draws and scrolls; readings bypass it, each box writes its own text.

import { BackgroundVariant, Background, Handle, Position, React, ReactFlow, ReactFlowProvider, createRoot, html, useOnViewportChange, useReactFlow, useStore } from "./vendor/flow.js";
import { css, h, mark, write } from "./dom.js";
import { bytes, counted, DASH, percent, perSecond, short } from "./format.js";
import { folded, inside, squeezed, stacked } from "./geometry.js";
import { heat } from "./heat.js";

/** @typedef {import("./model.js").View} View */

/** Below this zoom a box's text is not read any more: segments are drawn. */
const READABLE = 0.6;
/** Below this width, in pixels, segments stand one below the other. */
const NARROW = 560;
const TALLEST = 430;
/** So many epochs behind are as hot as it gets. */
const BEHIND = 16;
/** An arrow waits where so many epochs do, and so many seconds of them: of short ones more are under way between sites that keep up. */
const WAITING = 8, WAITING_S = 0.25;
const SCALES = { busy: "idle to busy", waiting: `none to ${BEHIND} epochs behind` };
const { useCallback, useEffect, useMemo, useState } = React;

export class Network {
  constructor() {
    this.holder = h("div.network");
    this.detail = h("dl.detail", { hidden: true });
    this.modes = ["auto", "segments", "boxes"].map((mode) => h("button", { type: "button", "aria-pressed": String(mode === "auto"), onclick: () => this.turn(mode) }, mode));
    this.hues = ["busy", "waiting"].map((hue) => h("button", { type: "button", "aria-pressed": String(hue === "busy"), onclick: () => this.paint(hue) }, hue));
    this.scale = h("span", {}, SCALES.busy);
    this.hue = "busy";
    this.element = h(
      "section.card.at-network", { "aria-label": "Network" },
      h("header", {}, h("h2", {}, "Network"), (this.count = h("span.soft")), h("span.push"), h("div.toggle", { role: "group", "aria-label": "What is drawn" }, ...this.modes), h("button.button.small", { type: "button", onclick: () => this.fit?.() }, "Fit"),
        h("button.button.small", { type: "button", "aria-label": "Zoom out", onclick: () => this.zoom?.(-1) }, "−"), h("button.button.small", { type: "button", "aria-label": "Zoom in", onclick: () => this.zoom?.(1) }, "+")),
      this.holder, this.detail,
      h("div.legend", {}, h("span", {}, "Colour"), h("div.toggle", { role: "group", "aria-label": "Colour" }, ...this.hues), h("span", {}, h("i.ramp", { "aria-hidden": "true" }), this.scale), h("span", {}, "Thick arrows carry more rows; red ones wait.")),
    );
    /** @type {Map<string, HTMLElement>} */ this.elements = new Map();
    /** @type {View|null} */ this.view = null;
    this.mode = "auto";
    /** Number of the picture. */ this.shape = 0;
    this.drawnText = "";
    /** @type {string|null} */ this.picked = null;
    /** @type {(() => void)|null} */ this.fit = null;
    /** @type {((way: number) => void)|null} */ this.zoom = null;
    this.root = createRoot(this.holder);
  }

  /** @param {string} mode */
  turn(mode) {
    this.mode = mode;
    ["auto", "segments", "boxes"].forEach((name, i) => mark(this.modes[i], "aria-pressed", String(name === mode)));
    this.draw();
  }

  /** What colours and bars say. @param {string} hue */
  paint(hue) {
    this.hue = hue;
    ["busy", "waiting"].forEach((name, i) => mark(this.hues[i], "aria-pressed", String(name === hue)));
    write(this.scale, SCALES[hue]);
    this.update();
  }

  /** The colour of an element, and what is said beside it. @param {HTMLElement} element @param {number|null} busy @param {number|null} behind */
  colour(element, busy, behind) {
    const share = this.hue === "busy" ? busy : behind === null ? null : behind / BEHIND;
    css(element, "--busy", Math.min(1, share ?? 0).toFixed(3));
    css(element, "--heat", heat(share));
    return this.hue === "busy" ? percent(busy) : behind === null ? "" : `${short(behind)} behind`;
  }

  /** @param {View} view */
  show(view) {
    const other = this.isOther(view);
    this.view = view;
    if (other) {
      this.shape++;
      mark(this.holder, "data-fitted", null);
      this.count.textContent = `${counted(view.geometry.boxes.length, "box", "boxes")}, ${counted(view.segments.length, "segment")}`;
      this.draw();
    }
    this.update();
  }

  /** Whether another picture is to be drawn. A new scene may well have the old one. @param {View} view */
  isOther(view) {
    if (this.view?.geometry === view.geometry && this.view?.run === view.run) return false;
    const text = JSON.stringify([view.run, view.version, view.geometry, view.segments.map((segment) => segment.partitions)]);
    if (text === this.drawnText) return false;
    this.drawnText = text;
    return true;
  }

  draw() {
    if (!this.view) return;
    this.root.render(html`<${ReactFlowProvider}><${Picture} key=${this.shape} owner=${this} geometry=${this.view.geometry} mode=${this.mode} /></${ReactFlowProvider}>`);
  }

  /** @param {string} id @param {HTMLElement|null} element */
  register(id, element) {
    if (element) this.elements.set(id, element);
    else this.elements.delete(id);
    if (element && this.view) this.write(id, element);
  }

  update() {
    for (const [id, element] of this.elements) this.write(id, element);
    this.describe();
  }

  /** @param {string} id @param {HTMLElement} element */
  write(id, element) {
    const view = /** @type {View} */ (this.view), name = id.slice(2);
    if (id.startsWith("b:")) {
      const box = view.boxes.get(name);
      if (!box) return;
      const behind = box.segments.map((n) => view.segments[n]?.behind ?? null).filter((each) => each !== null);
      const told = this.colour(element, box.busy, behind.length ? Math.max(...behind) : null);
      mark(element, "data-held", view.held.box === name ? "" : null);
      mark(element, "data-tone", box.failed ? "bad" : null);
      const rows = box.rowsOut || box.rowsIn, parts = [perSecond(rows)];
      if (told && (this.hue !== "busy" || (box.busy ?? 0) >= 0.005)) parts.push(told);
      if (box.failed) parts.push(`${short(box.failed)} failed`);
      write(/** @type {Element} */ (element.querySelector(".now")), parts.join(" · "));
    } else if (id.startsWith("s:")) {
      const ids = name.split("+").map(Number), segments = ids.map((n) => view.segments[n]).filter(Boolean), last = segments.at(-1);
      if (!last) return;
      const busy = segments.reduce((sum, each) => sum + (each.busy ?? 0), 0) / Math.max(1, view.sites.filter((site) => site.role === "live").length);
      const behind = segments.map((each) => each.behind).filter((each) => each !== null);
      const told = this.colour(element, busy, behind.length ? Math.max(...behind) : null);
      mark(element, "data-held", view.held.box !== null && segments.some((each) => each.boxes.includes(view.held.box ?? "")) ? "" : null);
      write(/** @type {Element} */ (element.querySelector(".now")), [perSecond(last.rowsPerS), told].filter(Boolean).join(" · "));
    } else {
      const arrow = view.arrows[Number(name)];
      if (!arrow) return;
      const rows = arrow.rowsPerS ?? 0, wide = rows > 0 ? Math.min(7, 1.5 + Math.log10(1 + rows) * 0.75) : 1.5;
      css(element, "--w", wide.toFixed(1));
      css(element, "--on", rows > 0 ? 1 : 0);
      css(element, "--t", `${Math.max(0.6, 3 - Math.log10(1 + rows) * 0.45).toFixed(1)}s`);
      const waits = (arrow.epochs ?? 0) > Math.max(WAITING, WAITING_S * (view.epochsPerS ?? 0));
      if (waits) css(element, "--wait", "var(--hot)");
      else element.style.removeProperty("--wait");
    }
  }

  /** @param {string|null} id */
  pick(id) {
    this.picked = id;
    this.describe();
  }

  describe() {
    const view = this.view, id = this.picked;
    const box = id?.startsWith("b:") ? view?.geometry.boxes.find((each) => each.name === id.slice(2)) : null;
    const segment = id?.startsWith("s:") ? view?.segments[Number(id.slice(2).split("+").at(-1))] : null;
    this.detail.hidden = !box && !segment;
    if (!view || (!box && !segment)) return;
    /** @type {[string, string][]} */ let facts;
    if (box) {
      const now = view.boxes.get(box.name);
      facts = [
        ["Rows in", perSecond(now?.rowsIn)], ["Rows out", perSecond(now?.rowsOut)], ["Busy", percent(now?.busy)], ["Cost", now?.cost ? `${now.cost.toPrecision(2)} µs a row` : DASH],
        ["Selectivity", now?.rowsIn && now.rowsOut !== null ? (now.rowsOut / now.rowsIn).toPrecision(2) : DASH], ["Segments", now?.segments.join(", ") || "in the driver"], ["Gives", box.columns[0] ?? DASH],
      ];
      if (now?.failed) facts.push(["Failed rows", short(now.failed)]);
      if (now?.late) facts.push(["Late rows", short(now.late)]);
    } else {
      if (!segment) return;
      facts = [["Kind", segment.kind], ["Partitions", short(segment.partitions)], ["Rows", perSecond(segment.rowsPerS)], ["Busy", `${(segment.busy ?? 0).toPrecision(2)} cores`], ["Skew", segment.skew?.toFixed(2) ?? DASH], ["Epochs behind", short(segment.behind)], ["Boxes", segment.boxes.join(", ")]];
      if (segment.waiting !== null) facts.push(["Bytes waiting", bytes(segment.waiting)]);
    }
    const head = h("h3", {}, box ? box.name : segment?.name ?? "", h("span.soft", {}, box ? [box.kind, ...box.lines].join(" · ") : `segment ${segment?.id}`));
    const text = head.textContent + facts.flat().join();
    if (text === this.described) return;
    this.described = text;
    this.detail.replaceChildren(head, ...facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
  }
}

/** @param {{owner: Network, geometry: any, mode: string}} props */
function Picture({ owner, geometry, mode }) {
  const flow = useReactFlow();
  const moved = useCallback(({ zoom }) => css(owner.holder, "--u", Math.min(1.7, Math.max(1, 0.85 / zoom)).toFixed(2)), []);
  useOnViewportChange({ onChange: moved });
  const width = useStore((store) => store.width), height = useStore((store) => store.height);
  const { shape, level } = useMemo(() => shaped(geometry, mode, width), [geometry, mode, width]);
  const { nodes, edges } = useMemo(() => drawn(shape, level, owner), [shape, level]);
  useEffect(() => {
    const fit = (read = false) => flow.setViewport(around(nodes, width, height, read)).then(() => {
      moved(flow.getViewport());
      mark(owner.holder, "data-fitted", "");
    });
    owner.fit = () => fit();
    owner.zoom = (way) => (way > 0 ? flow.zoomIn() : flow.zoomOut());
    mark(owner.holder, "data-fitted", null);
    if (!width || !height) return;
    const wanted = shape.height * Math.min(1.15, (width * 0.93) / shape.width) + 56;
    css(owner.holder, "height", `${Math.round(Math.min(TALLEST, Math.max(190, wanted)))}px`);
    let due = true;
    requestAnimationFrame(() => requestAnimationFrame(() => due && fit(mode === "boxes")));
    return () => void (due = false);
  }, [width, height, nodes]);
  const [picked, setPicked] = useState(/** @type {string|null} */ (null));
  const marked = useMemo(() => nodes.map((node) => (node.id === picked ? { ...node, selected: true } : node)), [nodes, picked]);
  const choose = useCallback((changes) => {
    const changed = changes.filter((change) => change.type === "select");
    if (!changed.length) return;
    const id = changed.find((change) => change.selected)?.id ?? null;
    setPicked(id);
    owner.pick(id);
  }, []);
  return html`<${ReactFlow} nodes=${marked} onNodesChange=${choose} edges=${edges} nodeTypes=${NODES} edgeTypes=${EDGES} minZoom=${0.05} maxZoom=${2} nodesDraggable=${false} nodesConnectable=${false}
    edgesFocusable=${false} elementsSelectable=${true} deleteKeyCode=${null} proOptions=${{ hideAttribution: true }} preventScrolling=${false} zoomOnScroll=${false} panOnScroll=${false} aria-label="Boxes and arrows">
    <${Background} variant=${BackgroundVariant.Dots} gap=${18} size=${1.2} />
  </${ReactFlow}>`;
}

/** From where all nodes are seen, or, where boxes were asked for that nobody could read then, the first ones. React Flow's own fits wait for its measurements, and are lost where those come late. 
 * @param {any[]} nodes @param {number} width @param {number} height @param {boolean} [read] */
function around(nodes, width, height, read = false) {
  const left = Math.min(...nodes.map((node) => node.position.x)), right = Math.max(...nodes.map((node) => node.position.x + node.width));
  const top = Math.min(...nodes.map((node) => node.position.y)), bottom = Math.max(...nodes.map((node) => node.position.y + node.height));
  const zoom = Math.max(0.05, Math.min(1.15, (0.92 * width) / (right - left), (0.92 * height) / (bottom - top)));
  if (!read || zoom >= READABLE) return { x: (width - (left + right) * zoom) / 2, y: (height - (top + bottom) * zoom) / 2, zoom };
  const first = nodes.reduce((one, other) => (other.position.x < one.position.x ? other : one)), middle = first.position.y + first.height / 2;
  return { x: 20 - left * READABLE, y: height / 2 - middle * READABLE, zoom: READABLE };
}

/** What is drawn, and where: boxes where their text can be read, else segments. @param {any} geometry @param {string} mode @param {number} width */
function shaped(geometry, mode, width) {
  const boxes = squeezed(geometry), zoom = Math.min(1.15, (width * 0.93) / boxes.width, TALLEST / boxes.height);
  if (!geometry.groups.length || mode === "boxes" || (mode === "auto" && zoom >= READABLE)) return { shape: boxes, level: "boxes" };
  const across = folded(geometry, width, TALLEST), down = stacked(geometry);
  return { shape: width < NARROW && (width * 0.93) / down.width < 1.3 && TALLEST / down.height > across.zoom ? down : across, level: "segments" };
}

/** Nodes and edges for React Flow. @param {any} geometry @param {string} level @param {Network} owner */
function drawn(geometry, level, owner) {
  const at = (item) => ({ position: { x: item.x, y: item.y }, width: item.width, height: item.height, initialWidth: item.width, initialHeight: item.height });
  const still = { draggable: false, connectable: false };
  const boxes = level === "boxes" || !geometry.groups.length;
  const groups = geometry.groups.map((group) => {
    const id = group.segments.join("+"), within = boxesIn(geometry, group);
    return boxes
      ? { id: `g:${id}`, type: "group_", data: { title: shortly(group, owner.view) }, ...at(group), ...still, selectable: false, focusable: false, zIndex: 0 }
      : { id: `s:${id}`, type: "segment", data: { owner, title: titled(within), more: group.title, id: `s:${id}` }, ...at(group), ...still, zIndex: 2, ariaLabel: `Segment ${id}: ${within.map((box) => box.name).join(", ")}` };
  });
  const nodes = [
    ...groups,
    ...(boxes ? geometry.boxes : []).map((box) => ({ id: `b:${box.name}`, type: "box", data: { owner, box, id: `b:${box.name}` }, ...at(box), ...still, zIndex: 2, ariaLabel: `Box ${box.name}, ${box.kind}` })),
  ];
  // Edges are drawn from their points; React Flow needs ends that exist.
  const homes = new Map(boxes ? [] : geometry.groups.flatMap((group) => boxesIn(geometry, group).map((box) => [box.name, `s:${group.segments.join("+")}`])));
  const home = (name) => (boxes ? `b:${name}` : homes.get(name));
  const edges = geometry.arrows.map((arrow, i) => ({ id: `a:${i}`, type: "way", source: home(arrow.start), target: home(arrow.end), data: { owner, arrow, id: `a:${i}`, boxes }, focusable: false, selectable: false, zIndex: 1 })).filter((edge) => edge.source && edge.target && (boxes || edge.source !== edge.target));
  return { nodes, edges };
}

const boxesIn = (geometry, group) => geometry.boxes.filter((box) => inside(box, group));
const shortly = (group, view) => group.repeated ? group.title : `${group.segments.length > 1 ? "segments" : "segment"} ${group.segments.join(" + ")} ×${view?.segments[group.segments.at(-1)]?.partitions ?? 1}`;
const titled = (boxes) => boxes.length > 2 ? `${boxes[0].name} +${boxes.length - 1}` : boxes.map((box) => box.name).join(", ");

const ends = html`<${React.Fragment}><${Handle} type="target" position=${Position.Left} /><${Handle} type="source" position=${Position.Right} /></${React.Fragment}>`;

const NODES = {
  group_: ({ data }) => html`<div className="group"><span data-shortened title=${data.title}>${data.title}</span>${ends}</div>`,
  box: ({ data }) => {
    const ref = useCallback((element) => data.owner.register(data.id, element), [data.id]);
    return html`<div className="box" ref=${ref} data-kind=${data.box.kind} title=${data.box.columns.join("; ")}><b>${data.box.name}</b>${data.box.lines.map((line, i) => html`<span className="line" data-shortened key=${i}>${line}</span>`)}<span className="now" data-shortened></span>${ends}</div>`;
  },
  segment: ({ data }) => {
    const ref = useCallback((element) => data.owner.register(data.id, element), [data.id]);
    return html`<div className="segment" ref=${ref} title=${data.more}><b data-shortened>${data.title}</b><span className="now" data-shortened></span>${ends}</div>`;
  },
};

const EDGES = {
  way: ({ data }) => {
    const ref = useCallback((element) => data.owner.register(data.id, element), [data.id]);
    const path = data.arrow.curved ? bent(data.arrow.points) : rounded(data.arrow.points), [x, y] = data.arrow.points.at(-1), turn = data.arrow.down ? `rotate(90 ${x} ${y})` : undefined;
    return html`<g ref=${ref}><path className=${`arrow${data.arrow.aside ? " aside" : ""}`} d=${path} /><path className="flowing" d=${path} /><path className="arrowhead" transform=${turn} d=${`M${x - 8} ${y - 4.5}L${x} ${y}L${x - 8} ${y + 4.5}z`} /></g>`;
  },
};

/** @param {[number, number][]} points */
const bent = ([[x, y], [to, down]]) => `M${x} ${y}C${x + (to - x) / 2} ${y} ${x + (to - x) / 2} ${down} ${to - 4} ${down}L${to} ${down}`;

/** A line through points with round corners. @param {[number, number][]} points */
export function rounded(points, radius = 8) {
  let path = `M${points[0].join(" ")}`;
  for (let i = 1; i < points.length - 1; i++) {
    const [[ax, ay], [bx, by], [cx, cy]] = [points[i - 1], points[i], points[i + 1]];
    const first = Math.hypot(bx - ax, by - ay), second = Math.hypot(cx - bx, cy - by), r = Math.min(radius, first / 2, second / 2);
    if (r < 0.5) path += `L${bx} ${by}`;
    else path += `L${bx - ((bx - ax) / first) * r} ${by - ((by - ay) / first) * r}Q${bx} ${by} ${bx + ((cx - bx) / second) * r} ${by + ((cy - by) / second) * r}`;
  }
  return `${path}L${(points.at(-1) ?? []).join(" ")}`;
}
