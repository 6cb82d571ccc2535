// What the page shows of an engine, wherever that comes from: a stream of what happens now (`stream`), or a recording (`replay`).

import { h, keyed, mark, write } from "./dom.js";
import { Curves, grown } from "./curves.js";
import { Exchange } from "./exchange.js";
import { Facts, Sites } from "./sites.js";
import { Happened, KEPT } from "./happened.js";
import { Head } from "./head.js";
import { Failed, Logs } from "./logs.js";
import { Model } from "./model.js";
import { Network } from "./network.js";
import { Operate } from "./operate.js";

/** @typedef {(path: string, body?: any) => Promise<Response>} Ask */

export class Dashboard {
  /** @param {Ask} ask @param {HTMLElement} aloud @param {() => void} turnScheme @param {Node|null} [bar]  what stands below the head */
  constructor(ask, aloud, turnScheme, bar = null) {
    this.model = new Model();
    this.head = new Head(turnScheme);
    this.network = new Network();
    this.exchange = new Exchange();
    this.happened = new Happened(aloud);
    this.curves = new Curves();
    this.sites = new Sites();
    this.facts = new Facts();
    this.logs = new Logs();
    this.failed = new Failed();
    this.operate = new Operate(ask);
    const { network, exchange, happened, curves, sites, facts, logs, failed, operate, head } = this;
    this.elements = [
      head.head, bar,
      h("main", {}, head.sum, h("div.grid", {}, h("div.column", {}, network.element, exchange.element, operate.element), h("div.column", {}, happened.element, curves.element, logs.element, facts.element), failed.element, h("div.wide", {}, sites.element))),
    ].filter((each) => each !== null);
    this.readings = 0;
    /** Of each run, what has happened. @type {Map<string, any[]>} */ this.events = new Map();
    /** Of each run, its curves so far, whichever is shown. @type {Record<string, any>} */ this.past = {};
    /** What stands in the curves as lines, where that is more than what has happened so far. @type {((run: string) => any[])|null} */ this.marks = null;
    /** The run that is shown. @type {string|null} */ this.shown = null;
    head.runs.addEventListener("change", () => {
      this.model.chosen = /** @type {HTMLSelectElement} */ (head.runs).value;
      this.show();
    });
  }

  /** Another scheme: what is drawn by hand is drawn anew. */
  restyle() {
    this.curves.restyle();
    this.exchange.restyle();
  }

  /** @param {"view"|"operate"} right */
  allowed(right) {
    this.head.allowed(right);
    this.operate.allowed(right).catch(() => {});
  }

  /** @param {any} told */
  scene(told) {
    this.model.takeScene(told);
    const there = new Set(told.runs.map((run) => run.run));
    for (const run of this.events.keys()) if (!there.has(run)) this.events.delete(run);
    for (const run of Object.keys(this.past)) if (!there.has(run)) delete this.past[run];
  }

  /** The newest reading as a point of the curves of every run: another one may be looked at later. */
  remember() {
    for (const { run } of this.model.scene?.runs ?? []) {
      const point = this.model.point(run);
      if (!point) continue;
      grown((this.past[run] ??= {}), point);
      if (run === this.shown) this.curves.take(point);
    }
  }

  /** @param {any[]} told  new ones, in order of time */
  take(told) {
    const fresh = Map.groupBy(told, (event) => event.run);
    for (const [run, each] of fresh) {
      const known = this.events.get(run) ?? [], begins = beginOf([...known.slice(-1), ...each]);
      if (begins > 0 && !this.marks) {
        this.events.set(run, each.slice(begins - Math.min(1, known.length)));
        delete this.past[run];
        if (run === this.shown) this.turn(run);
        continue;
      }
      this.events.set(run, [...known, ...each].slice(-KEPT));
      if (run !== this.shown) continue;
      if (!this.marks) this.curves.happened(each);
      this.happened.take(each);
    }
  }

  /** Curves by run: those of a page that has had none for a while go on from there. @param {any} told */
  takePast(told) {
    this.past = told;
    if (this.shown === null) return;
    this.curves.restart(told[this.shown] ?? {});
    this.curves.happened(this.marks?.(this.shown) ?? this.events.get(this.shown) ?? []);
  }

  /** Another run: everything that gathers starts anew, from what was kept. @param {string} run */
  turn(run) {
    this.shown = run;
    this.happened.restart();
    this.curves.restart(this.past[run] ?? {});
    this.curves.happened(this.marks?.(run) ?? this.events.get(run) ?? []);
    this.happened.take(this.events.get(run) ?? []);
  }

  /** @param {any} told */
  reading(told) {
    const began = performance.now();
    this.model.takeReading(told);
    this.show();
    mark(document.documentElement, "data-ms", (performance.now() - began).toFixed(1));
  }

  show() {
    const view = this.model.view(), { head, model } = this;
    if (!view) {
      if (model.scene && !model.scene.runs.length) head.nothing(model.scene.name);
      return;
    }
    if (view.run !== this.shown) this.turn(view.run);
    const runs = this.model.scene.runs;
    head.runs.hidden = runs.length < 2;
    keyed(head.runs, runs, (run) => run.run, (run) => h("option", { value: run.run }), (element, run) => write(element, `${run.dataflow} · ${run.run}${run.active ? "" : run.failure ? " · failed" : " · over"}`));
    const chooser = /** @type {HTMLSelectElement} */ (head.runs);
    if (chooser.value !== view.run) chooser.value = view.run;
    head.show(view);
    for (const part of [this.network, this.exchange, this.sites, this.facts, this.logs, this.failed, this.operate]) part.show(view);
    mark(document.documentElement, "data-readings", String(++this.readings));
  }
}

/** A run's time may fall back by less where several threads have told its events. */
const BACK_S = 1;

/** Where another run of one id begins, since time begins anew; -1: nowhere. @param {any[]} events */
const beginOf = (events) => events.findLastIndex((event, i) => i > 0 && event.at_s < events[i - 1].at_s - BACK_S);
