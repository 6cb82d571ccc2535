// Scenes and readings as the page shows them: rates are differences of readings, columns get their names. Pure; nothing here knows the DOM.

/** @typedef {{site: number, role: string|null, host: string, executor: string, busy: number|null, cpu: number|null, rowsPerS: number|null, state: number|null,
 *   spilled: number|null, waiting: number|null, memory: number|null, partitions: number, coming: number, waited: number|null}} SiteView */
/** @typedef {{id: number, name: string, kind: string, keyed: boolean, partitions: number, hosts: number[][], coming: (number[]|undefined)[],
 *   sources: (number|undefined)[], rows: (number|null)[], state: (number|null)[], skew: number|null, waiting: number|null, boxes: string[], rowsPerS: number|null,
 *   busy: number|null, behind: number|null}} SegmentView */
/** @typedef {{busy: number|null, rowsIn: number|null, rowsOut: number|null, failed: number, late: number, cost: number|null, segments: number[]}} BoxView */
/** @typedef {{label?: string, what: string, why: string, tone: "none"|"good"|"warn"|"bad", site: number|null, box: string|null}} Held */
/** @typedef {{run: string, dataflow: string, version: number|null, active: boolean, failure: string|null, seconds: number, replicas: number, redundancy: number, delivered: number|null,
 *   p50: number|null, p99: number|null, rowsIn: number, rowsOut: number, lateRows: number, failedRows: number, rowsInPerS: number|null, rowsOutPerS: number|null,
 *   nowMs: number, lagS: number|null, epoch: number, epochsPerS: number|null, inFlight: number, held: Held, sites: SiteView[], segments: SegmentView[], boxes: Map<string, BoxView>, boxNames: string[],
 *   arrows: {rowsPerS: number|null, epochs: number|null, bytes: number|null}[], geometry: any, scene: number, checkpoint: any, journal: any, behind: any[], tables: any[], slow: any[],
 *   movedWhole: any[], failed: {box: string, row: string, error: string}[], logs: {number: number, at_us: number, site: number, level: string, logger: string, text: string}[], logsCount: number}} View */

const OVER_US = 10_000_000;
const SITE_SHORT_US = 3_000_000;
const BUCKETS = 8;

export class Model {
  constructor() {
    /** @type {any} */ this.scene = null;
    /** @type {{reading: any, scene: any}[]} */ this.kept = [];
    /** @type {Map<string, {rows: number|null}>} */ this.replicaRates = new Map();
    /** @type {string|null} */ this.chosen = null;
  }

  /** Of another time: what was before says nothing of it. */
  forget() {
    this.scene = null;
    this.kept = [];
    this.replicaRates.clear();
  }

  /** @param {any} scene */
  takeScene(scene) {
    if (this.scene && (scene.number <= this.scene.number || scene.engine !== this.scene.engine)) this.kept = [];
    this.scene = scene;
  }

  /** @param {any} reading */
  takeReading(reading) {
    if (!this.scene || reading.scene !== this.scene.number) return;
    if (this.kept.length && reading.number <= (this.kept.at(-1)?.reading.number ?? 0)) this.kept = [];
    this.kept.push({ reading, scene: this.scene });
    while (this.kept[0].reading.at_us < reading.at_us - OVER_US) this.kept.shift();
  }

  /** The run that is shown: the one that was chosen, else the newest active one. @returns {string|null} */
  run() {
    const runs = this.scene?.runs ?? [];
    const found = runs.find((run) => run.run === this.chosen) ?? runs.findLast((run) => run.active) ?? runs.at(-1);
    return found?.run ?? null;
  }

  /** @returns {View|null} */
  view() {
    const newest = this.kept.at(-1), name = this.run();
    const run = newest?.scene.runs.find((each) => each.run === name), now = newest?.reading.runs.find((each) => each.run === name);
    if (!newest || !run || !now) return null;
    const span = (over_us) => {
      const first = this.kept.find((each) => each.reading.at_us >= newest.reading.at_us - over_us && comparable(each, newest, name));
      return first && first !== newest ? { first, was: first.reading.runs.find((each) => each.run === name), seconds: (newest.reading.at_us - first.reading.at_us) / 1e6 } : null;
    };
    const long = span(OVER_US), brief = span(SITE_SHORT_US) ?? long;
    const rate = (read) => (long ? Math.max(0, (read(now) - read(long.was)) / long.seconds) : null);
    const sites = this.sites(newest, run, now, brief);
    const segments = this.segments(newest, run, now, brief, name);
    const boxes = boxesOf(run, now, long, sites);
    const latency = latencies(now.latency, long?.was.latency);
    const watermarks = now.sources.watermark_us.filter((each) => each !== null);
    return {
      run: run.run, dataflow: run.dataflow, version: run.version || null, active: run.active, failure: run.failure ?? null, seconds: now.elapsed_us / 1e6, replicas: run.replicas, redundancy: run.redundancy,
      delivered: now.delivered_ppm === null ? null : now.delivered_ppm / 1e6, p50: quantile(latency, 0.5), p99: quantile(latency, 0.99), rowsIn: now.rows_in, rowsOut: now.rows_out,
      lateRows: now.late_rows, failedRows: now.failed_rows, rowsInPerS: rate((each) => each.rows_in), rowsOutPerS: rate((each) => each.rows_out),
      nowMs: newest.reading.at_us / 1000, lagS: run.active && watermarks.length ? Math.max(0, (newest.reading.at_us - Math.min(...watermarks)) / 1e6) : null, epoch: now.epoch, epochsPerS: rate((each) => each.epoch), inFlight: now.epochs_in_flight,
      held: ended(run) ?? atRisk(run, sites) ?? held(sites, boxes), sites, segments, boxes, boxNames: run.boxes.map((each) => each.name), arrows: arrowsOf(run, now, boxes), geometry: run.geometry, scene: newest.scene.number,
      checkpoint: now.checkpoint, journal: now.journal, behind: behindOf(run, now), tables: now.tables ?? [], slow: now.slow, movedWhole: [], failed: now.failed ?? [], logs: newest.reading.logs ?? [], logsCount: newest.reading.logs_count ?? 0,
    };
  }

  /** One value per curve, of a short past of a run. @param {string|null} [name]  else of the one that is shown @returns {Record<string, number|null>|null} */
  point(name = this.run()) {
    const newest = this.kept.at(-1);
    const first = newest && this.kept.find((each) => each.reading.at_us >= newest.reading.at_us - 2_100_000 && comparable(each, newest, name));
    const [now, was] = [newest, first].map((each) => each?.reading.runs.find((run) => run.run === name));
    if (!newest || !first || first === newest || !now || !was) return null;
    const seconds = (newest.reading.at_us - first.reading.at_us) / 1e6, latency = latencies(now.latency, was.latency);
    return {
      seconds: now.elapsed_us / 1e6, p50_ms: quantile(latency, 0.5), p99_ms: quantile(latency, 0.99),
      rows_in_per_s: Math.max(0, (now.rows_in - was.rows_in) / seconds), rows_out_per_s: Math.max(0, (now.rows_out - was.rows_out) / seconds),
    };
  }

  /** @returns {SiteView[]} */
  sites(newest, run, now, span) {
    const { scene, reading } = newest;
    const hosted = new Map(), coming = new Map();
    run.replicas_of.site.forEach((site, i) => {
      const state = run.replicas_of.state[i], count = state === "live" ? hosted : state === "joining" ? coming : null;
      count?.set(site, (count.get(site) ?? 0) + 1);
    });
    return scene.sites.map((site, i) => {
      const role = site.state !== "live" ? site.state : run.roles[i] === "gone" ? "dead" : run.roles[i];
      const j = span ? span.first.scene.sites.findIndex((each) => each.site === site.site) : -1;
      const grown = (read) => (j < 0 ? null : read(now)?.[i] - read(span.was)?.[j]);
      const measured = grown((each) => each.sites.measured_us), busy = grown((each) => each.sites.busy_us), rows = grown((each) => each.sites.rows_in);
      // Before its first report a site has used nothing only because it has said nothing.
      const cpu = j < 0 || span.first.reading.sites.heard_us[j] === null ? null : reading.sites.cpu_us[i] - span.first.reading.sites.cpu_us[j];
      const waited = j < 0 || now.sites.waited_us[i] === null || span.was.sites.waited_us[j] === null ? null : now.sites.waited_us[i] - span.was.sites.waited_us[j];
      const per = (value) => (value === null || !span ? null : Math.max(0, value / span.seconds));
      return {
        site: site.site, role, host: site.host, executor: site.executor, busy: busy === null || !((measured ?? 0) > 0) ? null : Math.min(1, Math.max(0, busy / (measured ?? 1))),
        cpu: cpu === null ? null : per(cpu / 1e6), rowsPerS: per(rows), state: now.sites.state_bytes[i], spilled: now.sites.spilled_bytes[i], waiting: now.sites.waiting_bytes[i],
        memory: reading.sites.memory_bytes[i] || null, partitions: hosted.get(site.site) ?? 0, coming: coming.get(site.site) ?? 0, waited: waited === null ? null : Math.min(1, Math.max(0, per(waited / 1e6) ?? 0)),
      };
    });
  }

  /** @returns {SegmentView[]} */
  segments(newest, run, now, span, name) {
    const of = run.replicas_of;
    const was = span && span.first.scene.number === newest.scene.number ? span.was : null;
    const found = run.segments.map((segment, place) => {
      const boxes = [...new Set(run.steps.filter((step) => step.segment === segment.segment).map((step) => step.box))];
      const rows = span ? Math.max(0, (now.segments.rows[place] - (span.was.segments.rows[place] ?? 0)) / span.seconds) : null;
      const busy = span ? (now.segments.busy_us[place] - (span.was.segments.busy_us[place] ?? 0)) / 1e6 / span.seconds : null;
      const behind = run.streams.filter((stream) => stream.consumer === segment.segment).map((stream) => now.streams.waiting_epochs[stream.stream]).filter((each) => each !== null && each !== undefined);
      const skew = now.segments.skew_ppm?.[place] ?? null;
      return {
        id: segment.segment, name: segment.name, kind: segment.kind, keyed: run.streams.some((stream) => stream.consumer === segment.segment && stream.route === "keyed"),
        partitions: segment.partitions, hosts: Array.from({ length: segment.partitions }, () => []), coming: Array(segment.partitions).fill(undefined), sources: Array(segment.partitions).fill(undefined),
        rows: Array(segment.partitions).fill(null), state: Array(segment.partitions).fill(null), skew: skew === null ? null : skew / 1e6, waiting: sum(run.streams.filter((stream) => stream.consumer === segment.segment).map((stream) => now.streams.waiting_bytes[stream.stream])), boxes: boxes.length ? boxes : [segment.source ?? segment.sink ?? segment.name],
        rowsPerS: rows === null ? null : rows / Math.max(1, run.replicas), busy, behind: behind.length ? Math.max(...behind) : null,
      };
    });
    of.segment.forEach((number, i) => {
      const segment = found[number], partition = of.partition[i], state = of.state[i];
      if (!segment || state === "lost") return;
      const key = `${name}.${number}.${partition}.${of.site[i]}`;
      let rows = this.replicaRates.get(key)?.rows ?? null;
      if (was) this.replicaRates.set(key, { rows: (rows = Math.max(0, (now.replicas.rows[i] - was.replicas.rows[i]) / span.seconds)) });
      if (state === "joining") (segment.coming[partition] ??= []).push(of.site[i]);
      else segment.hosts[partition][of.rank[i]] = of.site[i];
      if (rows !== null) segment.rows[partition] = Math.max(segment.rows[partition] ?? 0, rows);
      segment.state[partition] = Math.max(segment.state[partition] ?? 0, now.replicas.state_bytes[i]);
    });
    for (const copy of run.copies) for (const partition of copy.partitions) if (found[copy.segment]) found[copy.segment].sources[partition] = copy.source;
    for (const segment of found) {
      segment.hosts = segment.hosts.map((sites) => sites.filter((site) => site !== undefined));
    }
    return found;
  }
}

/** Whether the counters of two readings can be taken from each other. */
function comparable(first, newest, name) {
  const [a, b] = [first, newest].map((each) => each.scene.runs.find((run) => run.run === name)), [was, now] = [first, newest].map((each) => each.reading.runs.find((run) => run.run === name));
  return a && b && was && now && a.version === b.version && a.boxes.length === b.boxes.length && now.rows_in >= was.rows_in && now.epoch >= was.epoch && now.elapsed_us >= was.elapsed_us;
}

/** @returns {Map<string, BoxView>} */
function boxesOf(run, now, span, sites) {
  const from = run.segments.filter((segment) => segment.source !== null).map((segment) => segment.source);
  const working = Math.max(1, sites.filter((site) => site.role === "live").length);
  /** @type {Map<string, BoxView>} */
  const found = new Map(run.boxes.map((box, i) => {
    const grown = (column) => (span ? Math.max(0, now.boxes[column][i] - span.was.boxes[column][i]) : null);
    const busy = grown("busy_us"), rowsIn = grown("rows_in");
    let rowsOut = grown("rows_out");
    const per = (value) => (value === null ? null : value / span.seconds / (box.source || box.sink ? 1 : Math.max(1, run.replicas)));
    const source = from.indexOf(box.name);
    if (box.source && span && source >= 0) rowsOut = Math.max(0, now.sources.rows_in[source] - span.was.sources.rows_in[source]);
    return [box.name, {
      busy: busy === null ? null : busy / 1e6 / span.seconds / working, rowsIn: per(rowsIn), rowsOut: per(rowsOut), failed: now.boxes.rows_failed[i], late: now.boxes.rows_late?.[i] ?? 0,
      cost: busy === null || !rowsIn ? null : busy / rowsIn, segments: box.segments,
    }];
  }));
  for (const box of run.boxes) {
    const sink = found.get(box.name);
    if (!box.sink || !sink || sink.rowsIn) continue;
    const above = run.arrows.filter((arrow) => arrow.end === box.name && arrow.port === 0).map((arrow) => found.get(arrow.start)?.rowsOut ?? null);
    sink.rowsIn = above.includes(null) ? null : above.reduce((a, b) => a + b, 0);
  }
  return found;
}

/** Of those that are known. @param {(number|null|undefined)[]} values */
function sum(values) {
  const known = values.filter((each) => each !== null && each !== undefined);
  return known.length ? known.reduce((a, b) => a + b, 0) : null;
}

function arrowsOf(run, now, boxes) {
  return run.arrows.map((arrow) => {
    const waiting = arrow.streams.map((stream) => now.streams.waiting_epochs[stream]).filter((each) => each !== null && each !== undefined);
    return { rowsPerS: arrow.port === 0 ? boxes.get(arrow.start)?.rowsOut ?? null : null, epochs: waiting.length ? Math.max(...waiting) : null, bytes: sum(arrow.streams.map((stream) => now.streams.waiting_bytes[stream])) };
  });
}

function behindOf(run, now) {
  return run.segments.filter((segment) => segment.source !== null).map((segment, i) => ({ source: segment.source, topic: segment.source, messages: now.sources.behind[i] })).filter((each) => each.messages !== null && each.messages !== undefined);
}

/** Nothing holds back what is over. Pure. @param {any} run @returns {Held|null} */
export function ended(run) {
  if (run.active) return null;
  if (run.failure) return { label: "Failed", what: "the run has failed", why: run.failure, tone: "bad", site: null, box: null };
  return { label: "Over", what: "the run is over", why: "it has ended as it should, or somebody has stopped it", tone: "none", site: null, box: null };
}

/** Whether one more death could end it. Pure. @param {any} run @param {SiteView[]} sites @returns {Held|null} */
export function atRisk(run, sites) {
  if (!run.active || run.redundancy >= run.replicas) return null;
  const coming = sites.filter((site) => site.coming > 0), count = coming.reduce((all, site) => all + site.coming, 0);
  const to = coming.length === 1 ? `site ${coming[0].site}` : `${coming.length} sites`;
  const why = count ? `${count} replicas are on their way to ${to}` : sites.some((site) => site.role === "spare") ? "no replica is on its way yet" : "there is no site to put the missing replicas at: add one";
  return { label: "At risk", what: run.redundancy > 0 ? `redundancy ${run.redundancy} of ${run.replicas}` : "partitions without a replica", why, tone: run.redundancy > 0 ? "warn" : "bad", site: null, box: null };
}

/** What holds the query back: for whom the ingress waits, else who works nearly all of the time. Pure. @param {SiteView[]} sites @param {Map<string, BoxView>} boxes @returns {Held} */
export function held(sites, boxes) {
  const there = sites.filter((site) => !["dead", "left", "spare", "starting"].includes(site.role ?? "starting"));
  const most = (read) => there.reduce((best, site) => ((read(site) ?? -1) > (best ? read(best) ?? -1 : -1) ? site : best), /** @type {SiteView|null} */ (null));
  const waited = most((site) => site.waited), busiest = most((site) => site.busy);
  const box = [...boxes].reduce((best, [name, each]) => ((each.busy ?? 0) > (best ? boxes.get(best)?.busy ?? 0 : 0) ? name : best), /** @type {string|null} */ (null));
  const share = (value) => `${Math.round((value ?? 0) * 100)}%`;
  if (waited && (waited.waited ?? 0) > 0.05)
    return { what: `site ${waited.site}${box ? `, ${box}` : ""}`, why: `sources wait for it ${share(waited.waited)} of the time; it is busy ${share(waited.busy)}`, tone: (waited.waited ?? 0) > 0.3 ? "bad" : "warn", site: waited.site, box };
  if (busiest && (busiest.busy ?? 0) > 0.85)
    return { what: `site ${busiest.site}${box ? `, ${box}` : ""}`, why: `it is busy ${share(busiest.busy)}; sources do not wait yet`, tone: (busiest.busy ?? 0) > 0.95 ? "bad" : "warn", site: busiest.site, box };
  if (!busiest || busiest.busy === null) return { what: "not known yet", why: "no site has said how busy it is", tone: "none", site: null, box: null };
  return { what: "nothing", why: `the busiest, site ${busiest.site}, works ${share(busiest.busy)} of the time${box ? `, most of it for ${box}` : ""}`, tone: "good", site: null, box: null };
}

/** Counts by bucket of what came between. @param {[number, number][]} now @param {[number, number][]|undefined} was */
function latencies(now, was) {
  const before = new Map(was ?? []);
  return now.map(([bucket, count]) => /** @type {[number, number]} */ ([bucket, count - (before.get(bucket) ?? 0)])).filter(([, count]) => count > 0);
}

/** @param {[number, number][]} counts @param {number} q */
function quantile(counts, q) {
  const wanted = q * counts.reduce((sum, [, count]) => sum + count, 0);
  let seen = 0;
  for (const [bucket, count] of counts) if ((seen += count) >= wanted && wanted > 0) return 2 ** ((bucket + 0.5) / BUCKETS) / 1000;
  return null;
}
