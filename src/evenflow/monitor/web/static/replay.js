// A recording is played: readings are fetched in stretches and shown as if they came now. Time is the recording's own; a person moves in it.

import { h, mark, mayMove, write } from "./dom.js";
import { at, counted } from "./format.js";
import { kindOf } from "./kinds.js";

/** @typedef {import("./dashboard.js").Dashboard} Dashboard @typedef {import("./dashboard.js").Ask} Ask */
/** @typedef {{scene: any, reading: any}} Turn */

const STRETCH = 40;
/** Stretches that are kept. */
const KEPT = 12;
/** So many readings at once are told one after the other; more are a leap. */
const NEAR = 120;
/** What is shown is of so much of the past. */
const OVER_US = 10_500_000;
const TICK_MS = 100;
const SPEEDS = [0.25, 1, 4, 16, 64];
/** Marks on the scrubber. */
const MARKS = 200;
/** It begins so long before the first misfortune. */
const LEAD_US = 2_000_000;

export class Replay {
  /** @param {Ask} ask @param {{refused: (why: string) => void}} listener */
  constructor(ask, listener) {
    this.ask = ask;
    this.listener = listener;
    /** @type {any} */ this.index = { at_us: [], events: [], past: {}, whole: false, ends: null };
    /** @type {Map<number, Promise<Turn[]>>} */ this.stretches = new Map();
    /** The reading that is shown. */ this.place = -1;
    /** Moments of the recording, microseconds since 1970. */ this.clock = 0;
    this.playing = false;
    this.busy = false;
    /** Where to go next, while something is fetched. @type {number|null} */ this.wanted = null;
    this.over = false;
    this.button = h("button.button.first", { type: "button", onclick: () => this.play(!this.playing) }, "Play");
    this.before = h("button.button.small", { type: "button", "aria-label": "The event before", title: "The event before", onclick: () => this.leap(-1) }, "‹");
    this.after = h("button.button.small", { type: "button", "aria-label": "The next event", title: "The next event", onclick: () => this.leap(1) }, "›");
    this.speed = /** @type {HTMLSelectElement} */ (h("select", { "aria-label": "Speed" }, ...SPEEDS.map((each) => h("option", { value: each, selected: each === 1 }, `${each}×`))));
    this.range = /** @type {HTMLInputElement} */ (h("input", { type: "range", min: "0", max: "0", value: "0", step: "1", "aria-label": "Moment of the recording", oninput: () => this.seek(Number(this.range.value)) }));
    this.marks = h("div.marks", { "aria-hidden": "true" });
    this.now = h("span.now");
    this.ends = h("p.ends", { role: "status", hidden: true });
    this.element = h("section.card.replay", { "aria-label": "Recording" }, h("div.controls", {}, this.button, this.before, this.after, this.speed), h("div.track", {}, this.range, this.marks), this.now, this.ends);
  }

  stop() {
    this.over = true;
    this.play(false);
  }

  /** @param {Dashboard} dashboard */
  async begin(dashboard) {
    this.dashboard = dashboard;
    dashboard.head.connection("recording");
    dashboard.marks = (run) => this.index.events.filter((event) => event.run === run);
    dashboard.curves.span("all of the recording", (seconds) => this.seek(this.placeOf(seconds)));
    if (!(await this.fetchIndex())) return;
    const bad = this.index.events.find((event) => kindOf(event.kind).tone === "bad"), from = this.index.at_us[0];
    await this.go(this.behind(bad ? Math.max(from, this.index.at_us[bad.place] - LEAD_US) : from + LEAD_US));
    if (mayMove()) this.play(true);
  }

  /** What there is; again, until the file has been read to its end. @returns {Promise<boolean>} */
  async fetchIndex() {
    const answer = await this.ask("recording").catch(() => null);
    if (this.over) return false;
    if (!answer?.ok) {
      if (answer && [401, 403, 421].includes(answer.status)) this.listener.refused((await answer.json()).detail);
      else this.say("Nobody answers: start `evenflow ui` again.");
      return false;
    }
    this.index = await answer.json();
    const { at_us: times, whole, ends } = this.index;
    if (this.dashboard) this.dashboard.past = this.index.past;
    this.range.max = String(times.length - 1);
    this.mark();
    if (ends) this.say(ends);
    else if (!whole) this.say(`The file is being read: ${counted(times.length, "reading")} so far.`);
    else this.ends.hidden = true;
    if (!whole) setTimeout(() => this.over || this.fetchIndex(), 1500);
    return times.length > 0;
  }

  /** @param {string} text */
  say(text) {
    this.ends.hidden = false;
    write(this.ends, text.charAt(0).toUpperCase() + text.slice(1));
  }

  mark() {
    const last = Math.max(1, this.index.at_us.length - 1);
    // Of what happens at one moment the worst is on top.
    const grave = (/** @type {any} */ event) => ["good", "warn", "bad"].indexOf(kindOf(event.kind).tone ?? "good");
    const shown = this.index.events.filter((event) => kindOf(event.kind).marked).slice(0, MARKS).sort((one, other) => grave(one) - grave(other));
    this.marks.replaceChildren(...shown.map((event) => {
      const element = h("i", { "data-tone": kindOf(event.kind).tone, title: `${kindOf(event.kind).name}, ${at(event.at_s)}` });
      element.style.left = `${(event.place / last) * 100}%`;
      return element;
    }));
  }

  /** The last reading at or before a moment. @param {number} moment */
  behind(moment) {
    const times = this.index.at_us;
    let low = 0, high = times.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (times[middle] <= moment) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** The reading nearest to a time of the run that is shown. @param {number} seconds */
  placeOf(seconds) {
    const past = this.index.past[this.dashboard?.shown ?? ""];
    if (!past) return this.place;
    let best = 0;
    past.seconds.forEach((each, i) => { if (Math.abs(each - seconds) < Math.abs(past.seconds[best] - seconds)) best = i; });
    return past.place[best];
  }

  /** @param {boolean} on */
  play(on) {
    if (on && this.place >= this.index.at_us.length - 1) this.go(0);
    this.playing = on;
    write(this.button, on ? "Pause" : "Play");
    clearInterval(this.timer);
    if (!on) return;
    let last = performance.now();
    this.timer = setInterval(() => {
      const now = performance.now(), passed = Math.min(1000, now - last);
      last = now;
      if (this.busy) return;
      this.clock += passed * 1000 * Number(this.speed.value);
      const place = this.behind(this.clock);
      if (place !== this.place) this.go(place, this.clock);
      if (place >= this.index.at_us.length - 1 && this.index.whole) this.play(false);
    }, TICK_MS);
  }

  /** By hand. @param {number} place */
  seek(place) {
    this.go(Math.max(0, Math.min(this.index.at_us.length - 1, place)));
  }

  /** To the event before or behind. @param {number} way */
  leap(way) {
    const places = this.index.events.filter((event) => kindOf(event.kind).marked).map((event) => event.place);
    const next = way > 0 ? places.find((place) => place > this.place) : places.findLast((place) => place < this.place);
    if (next !== undefined) this.seek(next);
  }

  /** Show a reading; what is asked for meanwhile comes then, the newest wish only. @param {number} place @param {number} [clock] */
  async go(place, clock) {
    if (this.busy) return void (this.wanted = place);
    this.busy = true;
    try {
      this.clock = clock ?? this.index.at_us[place];
      await this.turnTo(place);
    } catch (error) {
      this.play(false);
      this.say(error instanceof Gone ? error.message : `This cannot be shown: ${error}`);
    } finally {
      this.busy = false;
    }
    const next = this.wanted;
    this.wanted = null;
    if (next !== null && next !== this.place && !this.over) await this.go(next);
  }

  /** @param {number} place */
  async turnTo(place) {
    const dashboard = /** @type {Dashboard} */ (this.dashboard), { at_us: times, events } = this.index;
    const on = place > this.place && place - this.place <= NEAR && this.place >= 0;
    const first = on ? this.place + 1 : Math.max(0, place - NEAR, this.behind(times[place] - OVER_US));
    const turns = await this.turns(first, place);
    if (this.over || !turns.length) return;
    const { model } = dashboard;
    if (!on) {
      model.forget();
      dashboard.exchange.before = new Map();
      dashboard.events = Map.groupBy(events.filter((event) => event.place <= place), (event) => event.run);
      dashboard.shown = null;
    }
    for (const { scene, reading } of turns) {
      if (scene.number !== model.scene?.number || scene.engine !== model.scene?.engine) model.takeScene(scene); // The same may be told twice.
      if (reading !== turns.at(-1)?.reading) model.takeReading(reading);
    }
    if (on) dashboard.take(events.filter((event) => event.place > this.place && event.place <= place));
    this.place = place;
    dashboard.reading(/** @type {Turn} */ (turns.at(-1)).reading);
    dashboard.curves.now(model.view()?.seconds ?? null, model.point());
    this.range.value = String(place);
    const text = this.told(place);
    mark(this.range, "aria-valuetext", text);
    write(this.now, `${text} · ${new Date(times[place] / 1000).toLocaleString()}`);
  }

  /** Which moment a reading is of, in the time of the run that is shown, as its events and curves have it. A recording may have begun long
   * after the run. @param {number} place */
  told(place) {
    const { at_us: times } = this.index, seconds = this.dashboard?.model.view()?.seconds;
    if (seconds === undefined || seconds === null) return `${at((times[place] - times[0]) / 1e6)} of the recording`;
    const [first, last] = [times[0], times[times.length - 1]].map((moment) => at(Math.max(0, seconds + (moment - times[place]) / 1e6)));
    return `${at(seconds)} of the run, recorded from ${first} to ${last}`;
  }

  /** Readings with their scenes, from `first` to `last`. @param {number} first @param {number} last @returns {Promise<Turn[]>} */
  async turns(first, last) {
    const numbers = [];
    for (let number = Math.floor(first / STRETCH); number <= Math.floor(last / STRETCH); number++) numbers.push(number);
    const found = (await Promise.all(numbers.map((number) => this.stretch(number, last)))).flat();
    const start = Math.floor(first / STRETCH) * STRETCH;
    if (this.playing) this.stretch(Math.floor(last / STRETCH) + 1, 0).catch(() => {});
    return found.slice(first - start, last - start + 1);
  }

  /** @param {number} number @param {number} needed  one that must be there, if it is in this stretch @returns {Promise<Turn[]>} */
  stretch(number, needed) {
    const first = number * STRETCH, known = this.stretches.get(number);
    if (known) return known;
    const made = this.fetchStretch(first, Math.min(STRETCH, this.index.at_us.length - first));
    this.stretches.set(number, made);
    made.then((turns) => { if (turns.length < STRETCH && !this.index.whole) this.stretches.delete(number); }, () => this.stretches.delete(number)); // More may have come by then.
    for (const old of [...this.stretches.keys()].slice(0, -KEPT)) if (old !== number && old !== Math.floor(needed / STRETCH)) this.stretches.delete(old);
    return made;
  }

  /** @param {number} first @param {number} count @returns {Promise<Turn[]>} */
  async fetchStretch(first, count) {
    /** @type {Turn[]} */ const turns = [];
    while (turns.length < count) {
      const answer = await this.ask(`recording/part?first=${first + turns.length}&count=${count - turns.length}`).catch(() => null);
      if (!answer?.ok) throw new Gone(answer ? (await answer.json()).detail : "Nobody answers: start `evenflow ui` again.");
      let scene = turns.at(-1)?.scene ?? null, came = 0;
      for (const each of await answer.json()) {
        if (each.kind === "scene") scene = scene && scene.number === each.number && scene.engine === each.engine ? scene : each;
        else came = turns.push({ scene, reading: each });
      }
      if (!came) break;
    }
    return turns;
  }
}

class Gone extends Error {}
