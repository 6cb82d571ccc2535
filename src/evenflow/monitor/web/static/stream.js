// The stream of scenes, readings and events: server-sent events read with fetch, since EventSource sends no Authorization.
// It goes on by id where it was cut off, pauses while the page is hidden, and asks for single readings where a proxy holds the stream back.

/** @typedef {{hello?: (told: any) => void, scene?: (told: any) => void, past?: (told: any) => void, reading?: (told: any) => void,
 *             happened?: (told: any) => void, said?: (told: any) => void, ended?: (told: any) => void,
 *             state: (state: "connecting"|"live"|"held"|"lost"|"ended"|"refused"|"paused", why?: string) => void}} Listener */

const SILENCE_MS = 15_000;
/** Readings come twice a second: after so long without any it is asked whether there are newer ones. */
const HELD_MS = 2500;
const POLL_MS = 500;

export class Stream {
  /** @param {() => string|null} token @param {Listener} listener */
  constructor(token, listener) {
    this.token = token;
    this.listener = listener;
    this.id = null;
    this.wait = 250;
    this.over = false;
    /** Whether something between here and the server keeps the stream back; scenes and readings are asked for one by one. */
    this.held = false;
    /** Numbers of what was shown last. @type {{scene: number, reading: number}} */ this.last = { scene: -1, reading: -1 };
    this.heard = 0;
    /** How many events of which server have been told, since a stream that was held back brings them again. */ this.told = { nonce: "", end: 0 };
    this.greeted = false;
    /** @type {AbortController|null} */
    this.open = null;
    this.turn = () => (document.hidden ? this.pause() : this.begin());
    document.addEventListener("visibilitychange", this.turn);
  }

  /** For good. */
  stop() {
    this.over = true;
    this.open?.abort();
    document.removeEventListener("visibilitychange", this.turn);
  }

  pause() {
    this.open?.abort();
    this.open = null;
    if (!this.over) this.listener.state("paused");
  }

  async begin() {
    if (this.open || this.over || document.hidden) return;
    const mine = (this.open = new AbortController());
    while (this.open === mine && !this.over) {
      this.last = { scene: -1, reading: -1 };
      const asking = this.asking(mine);
      try {
        await this.read(mine);
        this.wait = 250;
      } catch (error) {
        if (this.open !== mine) return;
        if (error instanceof Refused) {
          this.open = null;
          this.listener.state("refused", error.message);
          return;
        }
      } finally {
        clearInterval(asking);
        this.held = false;
      }
      if (this.over || this.open !== mine) return;
      this.listener.state("lost");
      await new Promise((done) => setTimeout(done, this.wait));
      this.wait = Math.min(this.wait * 2, 4000);
    }
  }

  /** Asks for single readings for as long as the stream says nothing. @param {AbortController} mine @returns {number} of its timer */
  asking(mine) {
    this.heard = performance.now();
    let under = false;
    return setInterval(async () => {
      if (under || performance.now() - this.heard < HELD_MS) return;
      under = true;
      const told = await this.newest(mine.signal).catch(() => null);
      under = false;
      if (this.open !== mine || performance.now() - this.heard < HELD_MS) return;
      if (!told) return void (this.held = false);
      if (!told.scene && !this.isNewer(told.reading)) return;
      this.held = true;
      this.listener.state("held");
      if (told.scene) this.hand("scene", told.scene);
      this.hand("reading", told.reading);
      await this.events(mine.signal).catch(() => {});
    }, POLL_MS);
  }

  /** What has happened, and what this token may do: asked for where the stream does not say it. @param {AbortSignal} signal */
  async events(signal) {
    const answer = await fetch(`api/v1/happened?since=${this.told.end}`, { headers: { Authorization: `Bearer ${this.token() ?? ""}` }, signal, cache: "no-store" });
    if (!answer.ok || !this.held) return;
    const told = await answer.json();
    if (!this.greeted) this.hand("hello", told);
    this.greeted = true;
    if (this.told.nonce && told.nonce !== this.told.nonce) this.told = { nonce: told.nonce, end: 0 }; // Another server: all of it, next time.
    else this.happened(told.nonce, told.end, told.events);
  }

  /** Those that are new. @param {string} nonce @param {number} end  how many there are with them @param {any[]} events */
  happened(nonce, end, events) {
    if (nonce !== this.told.nonce && this.told.nonce) this.told.end = 0;
    const fresh = events.slice(Math.max(0, events.length - Math.max(0, end - this.told.end)));
    this.told = { nonce, end: Math.max(end, this.told.end) };
    if (fresh.length) this.hand("happened", fresh);
  }

  /** The newest reading, and its scene where that is another; null: there is none, or nobody answers. @param {AbortSignal} signal */
  async newest(signal) {
    const get = async (path) => {
      const answer = await fetch(`api/v1/${path}`, { headers: { Authorization: `Bearer ${this.token() ?? ""}` }, signal, cache: "no-store" });
      return answer.ok ? answer.json() : null;
    };
    const first = await get("reading");
    if (!first || first.scene === this.last.scene) return first && { scene: null, reading: first };
    const scene = await get("scene"), reading = await get("reading");
    return scene && reading?.scene === scene.number ? { scene, reading } : null;
  }

  /** @param {any} reading */
  isNewer(reading) {
    return reading.scene !== this.last.scene || reading.number > this.last.reading;
  }

  /** @param {string} kind @param {any} told */
  hand(kind, told) {
    if (kind === "scene") this.last.scene = told.number;
    if (kind === "reading") this.last.reading = told.number;
    try {
      this.listener[kind]?.(told);
    } catch (error) {
      reportError(error); // A fault of the page is no fault of the connection.
    }
  }

  /** @param {AbortController} mine */
  async read(mine) {
    const headers = { Authorization: `Bearer ${this.token() ?? ""}`, Accept: "text/event-stream" };
    if (this.id) headers["Last-Event-ID"] = this.id;
    const answer = await fetch("api/v1/stream", { headers, signal: mine.signal, cache: "no-store" });
    this.heard = performance.now();
    if (answer.status === 401 || answer.status === 403 || answer.status === 421) throw new Refused((await answer.json()).detail);
    if (!answer.ok || !answer.body) throw new Error(`status ${answer.status}`);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    let timer = 0;
    const watch = () => {
      clearTimeout(timer);
      timer = setTimeout(() => (this.held ? watch() : void reader.cancel().catch(() => {})), SILENCE_MS);
    };
    watch();
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        watch();
        this.heard = performance.now();
        this.held = false;
        text += value;
        let end = text.indexOf("\n\n");
        const ready = [];
        for (let from = 0; ; from = end + 2, end = text.indexOf("\n\n", from)) {
          if (end < 0) {
            text = text.slice(from);
            break;
          }
          ready.push(text.slice(from, end));
        }
        this.take(ready);
      }
    } finally {
      clearTimeout(timer);
    }
  }

  /** Of several readings that came together only the newest is shown. @param {string[]} blocks */
  take(blocks) {
    const events = blocks.map(parsed).filter((event) => event.kind);
    const lastReading = events.findLastIndex((event) => event.kind === "reading");
    events.forEach((event, place) => {
      if (event.id) this.id = event.id;
      if (event.kind === "reading" && place !== lastReading) return;
      const told = JSON.parse(event.data);
      if (event.kind === "ended") this.over = true;
      if (event.kind === "hello") {
        this.greeted = true;
        this.listener.state("live");
      }
      if (event.kind === "happened") {
        const [nonce, , , end] = (events.slice(place).find((each) => each.id)?.id ?? "").split(".");
        return this.happened(nonce, Number(end), told);
      }
      if (event.kind === "reading" && told.scene === this.last.scene && told.number < this.last.reading) return; // It was held back.
      this.hand(event.kind, told);
      if (event.kind === "ended") this.listener.state("ended", told.why);
    });
  }
}

class Refused extends Error {}

/** @param {string} block */
function parsed(block) {
  const event = { kind: "", data: "", id: "" };
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) event.kind = line.slice(7);
    else if (line.startsWith("data: ")) event.data = line.slice(6);
    else if (line.startsWith("id: ")) event.id = line.slice(4);
  }
  return event;
}
