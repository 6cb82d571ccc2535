// The first line and the row of figures: what holds the query back, and how it goes.

import { h, mark, write } from "./dom.js";
import { counted, DASH, ms, percent, perSecond, seconds, short, whole } from "./format.js";

/** @typedef {import("./model.js").View} View */

const STATES = {
  connecting: ["connecting", "none"], live: ["live", "good"], held: ["live, polled", "warn"], lost: ["connection lost", "bad"], ended: ["engine has ended", "none"],
  refused: ["refused", "bad"], paused: ["paused", "none"], stale: ["no news", "warn"], recording: ["recording", "violet"],
};

const ENDS = { failed: ["failed", "bad"], over: ["over", "none"] };

/** A watermark that is farther behind is a date: old data are replayed. */
const FAR_S = 30 * 86_400;

export class Head {
  /** @param {() => void} turnScheme */
  constructor(turnScheme) {
    this.name = h("h1", {}, "…");
    this.version = h("span.version");
    this.state = h("span.pill.beats", { id: "state" }, "connecting");
    this.sites = h("span.pill");
    this.redundancy = h("span.pill", { id: "redundancy" });
    this.delivered = h("span.pill");
    this.scheme = h("button.button.small", { type: "button", onclick: turnScheme, title: "Light, dark or as the system", "aria-label": "Scheme" }, "◐");
    this.right = h("span.pill", { title: "What this token allows" });
    this.runs = h("select", { "aria-label": "Run", hidden: true });
    /** Of the connection, and of the run that is shown: null while it is active. */
    this.link = "connecting";
    /** @type {"failed"|"over"|null} */ this.end = null;
    for (const pill of [this.sites, this.redundancy, this.delivered, this.right]) pill.hidden = true;
    this.head = h(
      "header.head", {}, h("span.brand", {}, h("img", { src: "static/icon.svg", alt: "" }), "evenflow"), h("span.slash", { "aria-hidden": "true" }, "/"),
      this.name, this.runs, this.version, this.state, this.sites, this.redundancy, this.delivered, h("span.push"), this.right, this.scheme,
    );
    this.held = { what: h("p.what", {}, DASH), why: h("p.why") };
    this.heldBox = h("div.held", { "data-tone": "none", id: "held" }, (this.label = h("div.label", {}, "Held back by")), this.held.what, this.held.why);
    this.figures = ["Rows in", "Rows out", "Latency p99", "Watermark", "Epoch"].map((label) => new Figure(label));
    this.sum = h("div.sum", { role: "group", "aria-label": "How it goes" }, this.heldBox, ...this.figures.map((figure) => figure.element));
  }

  /** @param {string} state */
  connection(state) {
    this.link = state;
    this.state.title = state === "held" ? "Something between here and the server keeps its stream back: numbers and what happened are asked for." : "";
    this.tell();
  }

  /** A run that has ended is not live, however live the connection is. */
  tell() {
    const [text, tone] = (this.end && (this.link === "live" || this.link === "held") ? ENDS[this.end] : STATES[this.link]) ?? [this.link, "none"];
    write(this.state, text);
    mark(this.state, "data-tone", tone);
  }

  /** @param {"view"|"operate"} right */
  allowed(right) {
    this.right.hidden = false;
    write(this.right, right === "operate" ? "may operate" : "looking only");
    mark(this.right, "data-tone", right === "operate" ? "accent" : null);
  }

  /** An engine without runs. @param {string} name  of its application */
  nothing(name) {
    write(this.name, name);
    document.title = `${name} · Evenflow`;
    write(this.label, "No run");
    write(this.held.what, "nothing runs yet");
    write(this.held.why, "the button Start… begins a dataflow, and so do evenflow start and engine.start() in the engine's program");
  }

  /** @param {View} view */
  show(view) {
    write(this.name, view.dataflow);
    this.end = view.active ? null : view.failure ? "failed" : "over";
    this.tell();
    document.title = `${view.failure || (view.active && view.redundancy < view.replicas) ? "! " : ""}${view.dataflow} · Evenflow`;
    write(this.version, `${view.run}${view.version === null ? "" : ` · version ${view.version}`} · ${seconds(view.seconds)}`);
    const live = view.sites.filter((site) => site.role !== "dead" && site.role !== "left").length, dead = view.sites.filter((site) => site.role === "dead").length;
    this.sites.hidden = false;
    this.redundancy.hidden = !view.active;
    write(this.sites, counted(live, "site") + (dead ? `, ${dead} dead` : ""));
    mark(this.sites, "data-tone", dead ? "bad" : null);
    write(this.redundancy, `redundancy ${view.redundancy} of ${view.replicas}`);
    mark(this.redundancy, "data-tone", view.redundancy >= view.replicas ? "good" : view.redundancy > 0 ? "warn" : "bad");
    this.delivered.hidden = view.delivered === null;
    // All of it only where nothing is missing.
    write(this.delivered, `delivered ${percent(view.delivered === null || view.delivered === 1 ? view.delivered : Math.min(view.delivered, 0.999))}`);
    mark(this.delivered, "data-tone", (view.delivered ?? 1) >= 0.999 ? "good" : "warn");
    write(this.label, view.held.label ?? "Held back by");
    write(this.held.what, view.held.what);
    write(this.held.why, view.held.why);
    mark(this.heldBox, "data-tone", view.held.tone);
    const [rowsIn, rowsOut, latency, watermark, epoch] = this.figures;
    rowsIn.show(perSecond(view.rowsInPerS), `${short(view.rowsIn)} in all`);
    const lost = [view.lateRows ? `${short(view.lateRows)} late` : "", view.failedRows ? `${short(view.failedRows)} failed` : ""].filter(Boolean).join(", ");
    rowsOut.show(perSecond(view.rowsOutPerS), lost || `${short(view.rowsOut)} in all`, view.failedRows ? "warn" : null);
    latency.show(ms(view.p99), `p50 ${ms(view.p50)}`);
    if (view.lagS !== null && view.lagS > FAR_S) watermark.show(new Date(view.nowMs - view.lagS * 1000).toISOString().slice(0, 10), "event time, far from the clock");
    else watermark.show(view.lagS === null ? DASH : seconds(view.lagS), view.lagS !== null ? "behind the clock" : view.active ? "no event time" : "the run is over");
    epoch.show(whole(view.epoch), `${view.inFlight} in flight`);
  }
}

class Figure {
  /** @param {string} label */
  constructor(label) {
    this.value = h("dd.value", {}, DASH);
    this.more = h("dd.more");
    this.element = h("dl.figure", {}, h("dt", {}, label), this.value, this.more);
  }

  /** @param {string} value @param {string} more @param {string|null} [tone] */
  show(value, more, tone = null) {
    write(this.value, value);
    write(this.more, more);
    mark(this.element, "data-tone", tone);
  }
}
