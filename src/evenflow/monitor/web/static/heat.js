// One ramp for how busy something is: the same in the network, the bars and the heat maps. Numbers stand beside colours wherever they are.

import { colour } from "./dom.js";

/** A colour of the style sheet between cool and hot. @param {number|null|undefined} share  from 0 to 1 */
export function heat(share) {
  if (share === null || share === undefined) return "var(--line)";
  const x = Math.min(1, Math.max(0, share));
  return x < 0.5 ? `color-mix(in oklab, var(--cool), var(--mid) ${Math.round(x * 200)}%)` : `color-mix(in oklab, var(--mid), var(--hot) ${Math.round((x - 0.5) * 200)}%)`;
}

/** The same as 256 pixels, RGBA as a number of 32 bits, for a canvas. */
export function ramp() {
  const [cool, mid, hot] = ["--cool", "--mid", "--hot"].map((name) => numbers(colour(name)));
  const table = new Uint32Array(256);
  for (let i = 0; i < 256; i++) {
    const x = i / 255, [a, b, share] = x < 0.5 ? [cool, mid, x * 2] : [mid, hot, x * 2 - 1];
    const [r, g, blue] = [0, 1, 2].map((c) => Math.round(a[c] + (b[c] - a[c]) * share));
    table[i] = ((255 << 24) | (blue << 16) | (g << 8) | r) >>> 0;
  }
  return table;
}

/** @param {string} rgb */
export const numbers = (rgb) => (rgb.match(/[\d.]+/g) ?? []).map(Number);

/** @param {number} pixel */
export const cssOf = (pixel) => `rgb(${pixel & 255} ${(pixel >> 8) & 255} ${(pixel >> 16) & 255})`;
