// The drawing: boxes that are moved, arrows from ports that fit. The draft is the truth; what React Flow says becomes a change of it.

import { Background, BackgroundVariant, Controls, Handle, MarkerType, Position, React, ReactFlow, ReactFlowProvider, applyNodeChanges, createRoot, html, useReactFlow } from "./vendor/flow.js";
import { h } from "./dom.js";

const { useEffect, useState } = React;
const WIDTH = 190;
/** Below this zoom nobody reads a box. */
const READABLE = 0.6;
const SAYS = { right: "right", wrong: "wrong", waiting: "waits", locked: "locked" };

/** One or two lines of what a box does. @param {any} box */
export function lines(box) {
  const p = box.params ?? {}, shown = (value) => (typeof value === "string" ? value : value?.python ?? "");
  const of = (list) => (Array.isArray(list) ? list : []);
  const window = p.window?.$time_window, rows = p.window?.$row_window, session = p.window?.$session_window, own = p.window?.$own_sessions;
  const when = window ? `every ${span(window.slide_us)}, ${span(window.size_us)} long` : rows ? `last ${rows.history} rows` : session ? `sessions, gap ${span(session.gap_us)}` : own ? `sessions, each row until ${own.ends}` : "";
  const keys = of(p.keys ?? (box.kind === "key_by" ? p.columns : []));
  const found = {
    filter: [shown(p.condition)], select: of(p.columns).filter(([name, made]) => name !== made).map(([name, made]) => `${name} = ${shown(made)}`), case: of(p.conditions).map(shown),
    watermark: [p.column ? `${p.column} - ${span(p.delay_us)}` : ""], source: [p.source?.$source?.kind ?? ""], sink: [p.sink?.$sink?.kind ?? ""],
    aggregate: [keys.length ? `by ${keys.join(", ")}` : "", when, ...of(p.calls).map((call) => call.$call ? `${call.$call.name} = ${call.$call.function}(${call.$call.column ?? "*"})` : "")],
    join: [of(p.join?.with?.left_keys).length ? `${p.join.with.how}, on ${p.join.with.left_keys.join(", ")}` : ""], pattern: [p.pattern ?? ""],
  }[box.kind] ?? [keys.length ? `by ${keys.join(", ")}` : "", when];
  const told = found.filter(Boolean);
  return told.length > 3 ? [...told.slice(0, 2), `and ${told.length - 2} more`] : told;
}

/** @type {[string, number][]} */
const UNITS = [["d", 86_400_000_000], ["h", 3_600_000_000], ["min", 60_000_000], ["s", 1_000_000], ["ms", 1000]];
/** Microseconds as people write them. @param {number|null|undefined} us */
export function span(us) {
  if (us === null || us === undefined) return "";
  for (const [unit, size] of UNITS) if (us && us % size === 0) return `${us / size} ${unit}`;
  return us ? `${us} us` : "0 s";
}

export class Canvas {
  constructor(editor, ask) {
    this.editor = editor;
    this.ask = ask;
    this.element = h("section.card.canvas", { "aria-label": "Drawing" });
    this.root = createRoot(this.element);
    /** @type {Set<string>|null} */ this.fitting = null;
    /** @type {(() => void)|null} */ this.fit = null;
    /** @type {any} */ this.flow = null;
    this.version = 0;
  }

  show() {
    this.root.render(html`<${ReactFlowProvider}><${Drawing} owner=${this} version=${++this.version} /></${ReactFlowProvider}>`);
  }

  /** Width and height of each box, as it is drawn. */
  sizes() {
    return Object.fromEntries((this.flow?.getNodes() ?? []).filter((node) => node.measured?.width).map((node) => [node.id, [node.measured.width, node.measured.height]]));
  }

  nodes() {
    const { draft, kinds } = this.editor;
    return draft.boxes.map((box) => {
      const told = draft.judged.get(box.name), form = kinds.get(box.kind);
      const ports = told?.ports ?? told?.was ?? form?.ports.map((name) => ({ name })) ?? [];
      return { id: box.name, type: "box", position: { x: box.at?.[0] ?? 0, y: box.at?.[1] ?? 0 }, selected: draft.chosen === box.name, ariaLabel: `${form?.title ?? box.kind} ${box.name}, ${SAYS[told?.state] ?? "not judged yet"}`,
        data: { box, form, ports, state: told?.state ?? "", error: told?.error ?? "", loose: draft.told.loose.includes(box.name) } };
    });
  }

  edges() {
    const { draft } = this.editor;
    return draft.boxes.flatMap((box) => (box.inputs ?? []).map(([up, port], i) => ({
      id: `${box.name}:${i}`, source: up, sourceHandle: String(port), target: box.name, targetHandle: box.kind === "join" ? `in${i}` : "in", selectable: true, focusable: false,
      className: draft.judged.get(up)?.state === "wrong" || draft.judged.get(up)?.state === "waiting" ? "dim" : "", markerEnd: { type: MarkerType.ArrowClosed, width: 16, height: 16, color: "var(--strong)" },
    }))).filter((edge) => draft.box(edge.source));
  }

  /** @param {any} begun */
  async connecting(begun) {
    this.fitting = null;
    if (begun.handleType !== "source") return;
    const told = await this.ask("fitting", { document: this.editor.draft.document, box: begun.nodeId, port: Number(begun.handleId) });
    this.fitting = new Set(told.boxes);
    for (const node of this.element.querySelectorAll(".react-flow__node")) node.toggleAttribute("data-fits", this.fitting.has(/** @type {HTMLElement} */ (node).dataset.id ?? ""));
    this.element.toggleAttribute("data-connecting", true);
  }

  connected() {
    this.element.toggleAttribute("data-connecting", false);
    for (const node of this.element.querySelectorAll("[data-fits]")) node.removeAttribute("data-fits");
  }

  /** @param {any} link */
  connect(link) {
    this.editor.draft.change((document) => {
      const box = document.boxes.find((each) => each.name === link.target);
      const arrow = [link.source, Number(link.sourceHandle)];
      if (link.targetHandle === "in1" && box.inputs?.length) box.inputs = [box.inputs[0], arrow];
      else box.inputs = [...(box.inputs ?? []), arrow];
    });
  }

  /** @param {string} id */
  cut(id) {
    const at = id.lastIndexOf(":"), name = id.slice(0, at), number = Number(id.slice(at + 1));
    this.editor.draft.change((document) => {
      const box = document.boxes.find((each) => each.name === name);
      box.inputs = box.inputs.filter((_, i) => i !== number);
    });
  }
}

/** @param {{owner: Canvas, version: number}} props */
function Drawing({ owner, version }) {
  const flow = useReactFlow(), draft = owner.editor.draft;
  const [nodes, setNodes] = useState(() => owner.nodes());
  useEffect(() => setNodes((before) => {
    const known = new Map(before.map((node) => [node.id, node]));
    return owner.nodes().map((node) => ({ ...known.get(node.id), ...node }));
  }), [version]);
  useEffect(() => {
    owner.flow = flow;
    // All of it, as long as it can be read; else from its beginning.
    owner.fit = () => requestAnimationFrame(() => requestAnimationFrame(() => {
      const at = flow.getNodesBounds(flow.getNodes()), { clientWidth: width, clientHeight: height } = owner.element;
      if (!at.width || !width) return;
      const zoom = Math.max(READABLE, Math.min(1, (width - 48) / at.width, (height - 48) / at.height));
      const x = at.width * zoom > width - 48 ? 24 - at.x * zoom : (width - at.width * zoom) / 2 - at.x * zoom, first = flow.getNodes()[0].position.y + 30;
      const y = at.height * zoom > height - 48 ? height / 2 - first * zoom : (height - at.height * zoom) / 2 - at.y * zoom;
      flow.setViewport({ x, y, zoom });
    }));
    owner.fit();
  }, [nodes.length > 0]);
  const changed = (changes) => {
    for (const each of changes) if (each.type === "select" && each.selected) draft.choose(each.id);
    setNodes((before) => applyNodeChanges(changes.filter((each) => each.type !== "remove" && each.type !== "select"), before));
  };
  const moved = (_, node, all) => draft.change((document) => {
    for (const each of all ?? [node]) document.boxes.find((box) => box.name === each.id).at = [Math.round(each.position.x), Math.round(each.position.y)];
  });
  return html`<${ReactFlow} nodes=${nodes} edges=${owner.edges()} nodeTypes=${NODES} onNodesChange=${changed} onNodeDragStop=${moved} minZoom=${0.1} maxZoom=${1.5}
    onNodeClick=${(_, node) => draft.choose(node.id)} onPaneClick=${() => draft.choose(null)}
    onConnectStart=${(_, begun) => owner.connecting(begun)} onConnectEnd=${() => owner.connected()} onConnect=${(link) => owner.connect(link)}
    isValidConnection=${(link) => link.source !== link.target && (owner.fitting === null || owner.fitting.has(link.target))} onEdgeDoubleClick=${(_, edge) => owner.cut(edge.id)}
    edgesFocusable=${false} deleteKeyCode=${null} proOptions=${{ hideAttribution: true }} aria-label="Boxes and arrows">
    <${Background} variant=${BackgroundVariant.Dots} gap=${18} size=${1.2} />
    <${Controls} showInteractive=${false} position="bottom-right" />
    ${draft.boxes.length ? null : html`<${Beginning} editor=${owner.editor} />`}
  </${ReactFlow}>`;
}

/** Sources that need nothing but themselves, or that most people begin with. */
const FIRST = ["generator", "packets", "kafka", "table"];

/** In place of a drawing. @param {{editor: any}} props */
function Beginning({ editor }) {
  const found = FIRST.flatMap((name) => editor.forms.sources.filter((form) => form.name === name));
  return html`<div className="beginning"><h2>Begin with a source</h2><p>Rows come from it. What you add next reads the box that is chosen.</p>
    <div className="tools">${found.map((form) => html`<button type="button" className="button" key=${form.name} title=${form.doc} onClick=${() => editor.addEnd("source", form)}>${form.title}</button>`)}</div></div>`;
}

const NODES = {
  box: ({ data, selected }) => {
    const { box, form, ports, state, error } = data, ins = box.kind === "join" ? ["in0", "in1"] : form?.inputs[1] === 0 ? [] : ["in"];
    return html`<div className="drawn" data-group=${form?.group ?? ""} data-state=${state} data-chosen=${selected ? "" : undefined} title=${error || undefined} style=${{ width: WIDTH }}>
      ${ins.map((id, i) => html`<${Handle} key=${id} id=${id} type="target" position=${Position.Left} style=${{ top: `${((i + 1) * 100) / (ins.length + 1)}%` }} />`)}
      <span className="kind">${form?.title ?? box.kind}${box.cell ? " · SQL" : ""}</span>
      <b>${box.name}</b>
      ${lines(box).map((line, i) => html`<span className="line" key=${i} data-shortened>${line}</span>`)}
      ${state === "wrong" ? html`<span className="mark bad">wrong</span>` : state === "waiting" ? html`<span className="mark">waits</span>` : state === "locked" ? html`<span className="mark violet">locked</span>` : data.loose ? html`<span className="mark warn">no sink</span>` : null}
      ${ports.map((port, i) => html`<${Handle} key=${i} id=${String(i)} type="source" position=${Position.Right} title=${`${port.name ? `${port.name}: ` : ""}${port.ddl ?? ""}`} className=${port.aside || port.name === "late" ? "aside" : ""} style=${{ top: `${((i + 1) * 100) / (ports.length + 1)}%` }} />`)}
    </div>`;
  },
};
