// The page of an engine. The token comes behind the address's # and stays in memory; a reload asks for it again unless it is still there.

import { forgetColours, h, keyed, mark, write } from "./dom.js";
import { Curves } from "./curves.js";
import { Exchange } from "./exchange.js";
import { Facts, Sites } from "./sites.js";
import { Happened, KEPT } from "./happened.js";
import { Head } from "./head.js";
import { Model } from "./model.js";
import { Network } from "./network.js";
import { Operate } from "./operate.js";
import { Stream } from "./stream.js";

const STALE_MS = 3500;
const page = /** @type {HTMLElement} */ (document.getElementById("page")), aloud = /** @type {HTMLElement} */ (document.getElementById("said"));

/** @type {string|null} */ let token = null;
const given = new URLSearchParams(location.hash.slice(1));
if (given.has("token")) token = given.get("token");

const SCHEMES = ["", "dark", "light"];
/** @type {Set<() => void>} */ const onScheme = new Set();
function turnScheme() {
  const root = document.documentElement, next = SCHEMES[(SCHEMES.indexOf(root.dataset.scheme ?? "") + 1) % SCHEMES.length];
  if (next) root.dataset.scheme = next;
  else delete root.dataset.scheme;
  forgetColours();
  for (const each of onScheme) each();
}

/** @param {string} path @param {any} [body] */
function ask(path, body) {
  const headers = { Authorization: `Bearer ${token ?? ""}` };
  return fetch(`api/v1/${path}`, body === undefined ? { headers } : { method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body: JSON.stringify(body) });
}

/** @type {Stream|null} */ let open = null;

function dashboard() {
  open?.stop();
  const model = new Model(), head = new Head(turnScheme), network = new Network(), exchange = new Exchange(), happened = new Happened(aloud), curves = new Curves(), sites = new Sites(), facts = new Facts(), operate = new Operate(ask);
  onScheme.add(() => curves.restyle()).add(() => exchange.restyle());
  page.replaceChildren(
    head.head, h("main", {}, head.sum, h("div.grid", {}, h("div.column", {}, network.element, exchange.element, operate.element), h("div.column", {}, happened.element, curves.element, facts.element), h("div.wide", {}, sites.element))),
  );
  let stale = 0, readings = 0;
  /** @type {Map<string, any[]>} */ const events = new Map();
  /** @type {Record<string, any>} */ let past = {};
  /** @type {string|null} */ let shown = null;
  head.runs.addEventListener("change", () => {
    model.chosen = /** @type {HTMLSelectElement} */ (head.runs).value;
    show();
  });

  /** Another run: everything that gathers starts anew, from what was kept. */
  function turn(run) {
    shown = run;
    happened.restart();
    curves.restart(past[run] ?? {});
    curves.happened(events.get(run) ?? []);
    happened.take(events.get(run) ?? []);
  }

  function show() {
    const view = model.view();
    if (!view) return;
    if (view.run !== shown) turn(view.run);
    const runs = model.scene.runs;
    head.runs.hidden = runs.length < 2;
    keyed(head.runs, runs, (run) => run.run, (run) => h("option", { value: run.run }), (element, run) => write(element, `${run.dataflow} · ${run.run}`));
    head.show(view);
    network.show(view);
    exchange.show(view);
    sites.show(view);
    facts.show(view);
    operate.show(view);
    mark(document.documentElement, "data-readings", String(++readings));
  }

  const stream = new Stream(() => token, {
    hello: (told) => {
      head.allowed(told.right);
      operate.allowed(told.right).catch(() => {});
    },
    scene: (told) => {
      model.takeScene(told);
      const there = new Set(told.runs.map((run) => run.run));
      for (const run of events.keys()) if (!there.has(run)) events.delete(run);
    },
    past: (told) => (past = told),
    happened: (told) => {
      const fresh = Map.groupBy(told, (event) => event.run);
      for (const [run, each] of fresh) {
        events.set(run, [...(events.get(run) ?? []), ...each].slice(-KEPT));
        if (run !== shown) continue;
        curves.happened(each);
        happened.take(each);
      }
    },
    reading: (told) => {
      const began = performance.now();
      model.takeReading(told);
      show();
      const point = model.point();
      if (point) curves.take(point);
      mark(document.documentElement, "data-ms", (performance.now() - began).toFixed(1));
      clearTimeout(stale);
      head.connection(stream.held ? "held" : "live");
      stale = setTimeout(() => head.connection("stale"), STALE_MS);
    },
    said: (told) => operate.said(told),
    state: (state, why) => {
      if (state !== "live") clearTimeout(stale);
      if (state === "refused") return gate(why ?? "");
      head.connection(state);
      if (why) head.state.title = why;
    },
  });
  open = stream;
  stream.begin();
}

/** Without a token that is good. @param {string} why */
function gate(why) {
  const input = /** @type {HTMLInputElement} */ (h("input", { type: "password", "aria-label": "Token", autocomplete: "off", name: "token" }));
  const form = h("form", { onsubmit: (event) => {
    event.preventDefault();
    token = input.value.trim();
    dashboard();
  } }, input, h("button.button.first", { type: "submit" }, "Look"));
  page.replaceChildren(h("main.card.gate", {}, h("h1", {}, "Who asks?"), h("p.soft", {}, "The command that opened this page printed an address that ends in #token=… Open that one, or give the token here."), why && token ? h("p.wrong", { role: "alert" }, why) : null, form));
  input.focus();
}

if (token) dashboard();
else gate("");
addEventListener("hashchange", () => {
  const again = new URLSearchParams(location.hash.slice(1)).get("token");
  if (again && again !== token) {
    token = again;
    dashboard();
  }
});
