// Numbers for people. None (null) is a dash: what is not known is not 0.

export const DASH = "–";
const grouping = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** 20012.4: 20,012 @param {number|null|undefined} value */
export const whole = (value) => (value === null || value === undefined ? DASH : grouping.format(value));

/** 20012.4: 20.0 k, three digits that matter @param {number|null|undefined} value */
export function short(value) {
  if (value === null || value === undefined) return DASH;
  const size = Math.abs(value);
  for (const [unit, name] of /** @type {[number, string][]} */ ([[1e9, " G"], [1e6, " M"], [1e3, " k"]]))
    if (size >= unit * 0.9995) return (value / unit).toPrecision(3) + name;
  return size >= 100 || Number.isInteger(value) ? value.toFixed(0) : size >= 1 ? value.toFixed(1) : value === 0 ? "0" : value.toPrecision(1);
}

/** @param {number|null|undefined} value */
export const perSecond = (value) => (value === null || value === undefined ? DASH : `${short(value)}/s`);

/** @param {number|null|undefined} value */
export function ms(value) {
  if (value === null || value === undefined) return DASH;
  if (value >= 10_000) return `${(value / 1000).toFixed(1)} s`;
  return value < 1 ? `${value.toFixed(2)} ms` : value < 100 ? `${value.toFixed(1)} ms` : `${whole(value)} ms`;
}

/** @param {number|null|undefined} value */
export function seconds(value) {
  if (value === null || value === undefined) return DASH;
  if (value < 1) return `${(value * 1000).toFixed(0)} ms`;
  if (value < 100) return `${value.toFixed(1)} s`;
  const minutes = Math.floor(value / 60), hours = value / 3600;
  if (minutes < 100) return `${minutes} min ${Math.floor(value % 60)} s`;
  if (hours < 100) return `${hours.toFixed(1)} h`;
  return hours < 24_000 ? `${whole(hours / 24)} days` : `${(hours / 8766).toFixed(1)} years`;
}

/** @param {number|null|undefined} value */
export function bytes(value) {
  if (value === null || value === undefined) return DASH;
  for (const [unit, name] of /** @type {[number, string][]} */ ([[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]))
    if (value >= unit) return `${value / unit < 999.5 ? (value / unit).toPrecision(3) : whole(value / unit)} ${name}`;
  return `${whole(value)} B`;
}

/** @param {number|null|undefined} value  from 0 to 1 */
export const percent = (value) => (value === null || value === undefined ? DASH : `${(value * 100).toFixed(value >= 0.995 || value < 0.1 && value > 0 ? 1 : 0).replace(/\.0$/, "")}%`);

/** Since the run's start: 13.10 s, 2:05.1 @param {number} value */
export function at(value) {
  if (value < 100) return `${value.toFixed(2)} s`;
  const digits = value < 3599.95 ? 1 : 0, shown = Number(value.toFixed(digits)), minutes = Math.floor(shown / 60) % 60, hours = Math.floor(shown / 3600);
  const rest = (shown % 60).toFixed(digits).padStart(digits ? 4 : 2, "0");
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${minutes}:${rest}`;
}

/** @param {number} count @param {string} one @param {string} [many] */
export const counted = (count, one, many) => `${whole(count)} ${count === 1 ? one : many ?? `${one}s`}`;
