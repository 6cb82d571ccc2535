// The page of an engine or of a recording. The token comes behind the address's # and stays in memory; a reload asks for it again unless it
// is still there.

import { Dashboard } from "./dashboard.js";
import { forgetColours, h } from "./dom.js";
import { Replay } from "./replay.js";
import { Stream } from "./stream.js";

const STALE_MS = 3500;
const page = /** @type {HTMLElement} */ (document.getElementById("page")), aloud = /** @type {HTMLElement} */ (document.getElementById("said"));
const recorded = document.querySelector("meta[name=feed]")?.getAttribute("content") === "recording";

/** @type {string|null} */ let token = null;
const given = new URLSearchParams(location.hash.slice(1));
if (given.has("token")) token = given.get("token");

const SCHEMES = ["", "dark", "light"];
/** @type {Dashboard|null} */ let shown = null;
function turnScheme() {
  const root = document.documentElement, next = SCHEMES[(SCHEMES.indexOf(root.dataset.scheme ?? "") + 1) % SCHEMES.length];
  if (next) root.dataset.scheme = next;
  else delete root.dataset.scheme;
  forgetColours();
  shown?.restyle();
}

/** @param {string} path @param {any} [body] */
function ask(path, body) {
  const headers = { Authorization: `Bearer ${token ?? ""}` };
  return fetch(`api/v1/${path}`, body === undefined ? { headers } : { method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body: JSON.stringify(body) });
}

/** @type {Stream|Replay|null} */ let open = null;

/** What happens now. */
function watch() {
  const dashboard = (shown = new Dashboard(ask, aloud, turnScheme)), { head } = dashboard;
  page.replaceChildren(...dashboard.elements);
  let stale = 0;
  const stream = new Stream(() => token, {
    hello: (told) => dashboard.allowed(told.right),
    scene: (told) => dashboard.scene(told),
    past: (told) => dashboard.takePast(told),
    happened: (told) => dashboard.take(told),
    reading: (told) => {
      dashboard.reading(told);
      dashboard.remember();
      clearTimeout(stale);
      head.connection(stream.held ? "held" : "live");
      stale = setTimeout(() => head.connection("stale"), STALE_MS);
    },
    said: (told) => dashboard.operate.said(told),
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

/** What was. */
function replay() {
  const player = new Replay(ask, { refused: gate }), dashboard = (shown = new Dashboard(ask, aloud, turnScheme, player.element));
  page.replaceChildren(...dashboard.elements);
  open = player;
  player.begin(dashboard);
}

function begin() {
  open?.stop();
  if (recorded) replay();
  else watch();
}

/** Without a token that is good. @param {string} why */
function gate(why) {
  const input = /** @type {HTMLInputElement} */ (h("input", { type: "password", "aria-label": "Token", autocomplete: "off", name: "token" }));
  const form = h("form", { onsubmit: (event) => {
    event.preventDefault();
    token = input.value.trim();
    begin();
  } }, input, h("button.button.first", { type: "submit" }, "Look"));
  page.replaceChildren(h("main.card.gate", {}, h("h1", {}, "Who asks?"), h("p.soft", {}, "The command that opened this page printed an address that ends in #token=… Open that one, or give the token here."), why && token ? h("p.wrong", { role: "alert" }, why) : null, form));
  input.focus();
}

if (token) begin();
else gate("");
addEventListener("hashchange", () => {
  const again = new URLSearchParams(location.hash.slice(1)).get("token");
  if (again && again !== token) {
    token = again;
    begin();
  }
});
