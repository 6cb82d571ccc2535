// Where boxes stand on this page. The server's drawing has room for texts on its arrows, which are not written here: gaps are drawn in; and on
// a narrow page segments stand one below the other. Pure.

const GAP = 32;
const SIDE = 20;
/** Height of a box on this page: its name, what it does now, and so much for each line between them. */
const BOX = { height: 47, line: 14 };
const TALLER = 1.25;
const CARD = { width: 320, height: 62, gap: 34 };

/** The same drawing with narrower gaps, and boxes high enough for what this page writes into them. @param {any} geometry */
export function squeezed(geometry) {
  const solid = geometry.boxes.map((box) => [box.x, box.x + box.width]);
  for (const group of geometry.groups) solid.push([group.x, group.x + SIDE], [group.x + group.width - SIDE, group.x + group.width]);
  const spans = merged(solid);
  /** @type {[number, number][]} */ const steps = [];
  let gone = 0;
  spans.forEach(([start, end], i) => {
    if (i > 0) gone += Math.max(0, start - spans[i - 1][1] - GAP);
    steps.push([start, gone], [end, gone]);
  });
  const to = (x) => {
    let before = steps[0];
    for (const step of steps) {
      if (x < step[0]) {
        const [a, lost] = before, [b, more] = step;
        return b > a ? x - lost - ((x - a) / (b - a)) * (more - lost) : x - lost;
      }
      before = step;
    }
    return x - gone;
  };
  const place = (item) => ({ ...item, x: to(item.x), width: to(item.x + item.width) - to(item.x), y: item.y * TALLER, height: item.height * TALLER });
  const high = (box) => {
    const height = BOX.height + BOX.line * box.lines.length;
    return { ...box, y: box.y + (box.height - height) / 2, height };
  };
  return {
    ...geometry, width: geometry.width - gone, height: geometry.height * TALLER, boxes: geometry.boxes.map(place).map(high), groups: geometry.groups.map(place),
    arrows: geometry.arrows.map((arrow) => ({ ...arrow, points: arrow.points.map(([x, y]) => [to(x), y * TALLER]) })),
  };
}

/** @param {number[][]} spans */
function merged(spans) {
  /** @type {number[][]} */ const found = [];
  for (const [start, end] of [...spans].sort((a, b) => a[0] - b[0])) {
    const last = found.at(-1);
    if (last && start <= last[1]) last[1] = Math.max(last[1], end);
    else found.push([start, end]);
  }
  return found;
}

/** @param {any} box @param {any} group */
export const inside = (box, group) => box.x >= group.x - 1 && box.y >= group.y - 1 && box.x + box.width <= group.x + group.width + 1 && box.y + box.height <= group.y + group.height + 1;

/** Segments one below the other, in the order in which rows pass them; arrows that pass a segment go round it on the left. @param {any} geometry */
export function stacked(geometry) {
  const order = [...geometry.groups].sort((a, b) => a.x - b.x || a.y - b.y);
  const groups = order.map((group, i) => ({ ...group, x: 0, y: i * (CARD.height + CARD.gap), width: CARD.width, height: CARD.height }));
  const home = new Map(geometry.boxes.map((box) => [box.name, order.findIndex((group) => inside(box, group))]));
  const boxes = geometry.boxes.map((box) => {
    const group = groups[home.get(box.name)] ?? groups[0];
    return { ...box, x: group.x + 4, y: group.y + 4, width: group.width - 8, height: group.height - 8 };
  });
  const arrows = geometry.arrows.map((arrow, i) => {
    const [a, b] = [home.get(arrow.start), home.get(arrow.end)], [start, end] = [groups[a] ?? groups[0], groups[b] ?? groups[0]];
    const x = CARD.width / 2, lane = -14 - (i % 4) * 8;
    const near = b === a + 1, from = [x, start.y + start.height], into = [x, end.y];
    return { ...arrow, down: true, points: near ? [from, into] : [[0, start.y + start.height / 2], [lane, start.y + start.height / 2], [lane, end.y - CARD.gap / 2], [x, end.y - CARD.gap / 2], into] };
  });
  return { ...geometry, width: CARD.width, height: groups.length * (CARD.height + CARD.gap), groups, boxes, arrows };
}

const FOLD = { width: 214, height: 66, across: 54, down: 20 };

/** Segments as cards of one size, from left to right; a column with many is folded into several, so that all of it fits into a place.
 * @param {any} geometry @param {number} width @param {number} height  pixels of the place */
export function folded(geometry, width, height) {
  const home = new Map(geometry.boxes.map((box) => [box.name, geometry.groups.findIndex((group) => inside(box, group))]));
  const links = geometry.arrows.map((arrow) => [home.get(arrow.start), home.get(arrow.end)]).filter(([a, b]) => a !== b && a >= 0 && b >= 0);
  const rank = geometry.groups.map(() => 0);
  for (let turn = 0, changed = true; changed && turn < rank.length; turn++) {
    changed = false;
    for (const [a, b] of links) if (rank[b] <= rank[a]) [rank[b], changed] = [rank[a] + 1, true];
  }
  /** @type {number[][]} */ const columns = Array.from({ length: Math.max(0, ...rank) + 1 }, () => []);
  rank.forEach((r, i) => columns[r].push(i));
  for (const column of columns) column.sort((a, b) => geometry.groups[a].y - geometry.groups[b].y);
  const [across, down] = [FOLD.width + FOLD.across, FOLD.height + FOLD.down];
  const most = Math.max(1, ...columns.map((column) => column.length));
  const size = (rows) => {
    const wide = columns.reduce((sum, column) => sum + Math.ceil(column.length / rows), 0);
    return [wide * across - FOLD.across, Math.min(rows, most) * down - FOLD.down];
  };
  const zoom = (rows) => Math.min(width / size(rows)[0], height / size(rows)[1]);
  let best = 1;
  for (let rows = 2; rows <= most; rows++) if (zoom(rows) > zoom(best)) best = rows;
  const [total, tall] = size(best);
  const groups = geometry.groups.map((group) => ({ ...group }));
  /** Cards by column and row: all stand on one grid, so that what is free between rows is free in every column. */
  const cells = new Map();
  let x = 0;
  for (const column of columns) {
    const wide = Math.ceil(column.length / best), rows = Math.ceil(column.length / wide);
    column.forEach((place, i) => {
      const inColumn = Math.min(rows, column.length - Math.floor(i / rows) * rows);
      const at = { column: x + Math.floor(i / rows), row: Math.floor((Math.min(best, most) - inColumn) / 2) + (i % rows) };
      cells.set(`${at.column} ${at.row}`, place);
      Object.assign(groups[place], { ...at, x: at.column * across, y: at.row * down, width: FOLD.width, height: FOLD.height });
    });
    x += wide;
  }
  /** Whether no card stands in a row between two columns. */
  const free = (row, from, to) => {
    for (let column = from + 1; column < to; column++) if (cells.has(`${column} ${row}`)) return false;
    return true;
  };
  const boxes = geometry.boxes.map((box) => {
    const group = groups[home.get(box.name)] ?? groups[0];
    return { ...box, x: group.x + 4, y: group.y + 4, width: group.width - 8, height: group.height - 8 };
  });
  const arrows = geometry.arrows.map((arrow) => {
    const [start, end] = [groups[home.get(arrow.start)] ?? groups[0], groups[home.get(arrow.end)] ?? groups[0]];
    const from = [start.x + start.width, start.y + start.height / 2], into = [end.x, end.y + end.height / 2], leaves = from[0] + FOLD.across / 3, comes = into[0] - FOLD.across / 2;
    if (end.column <= start.column + 1) return { ...arrow, curved: true, points: [from, into] };
    if (free(start.row, start.column, end.column)) return { ...arrow, points: [from, [comes, from[1]], [comes, into[1]], into] };
    if (free(end.row, start.column, end.column)) return { ...arrow, points: [from, [leaves, from[1]], [leaves, into[1]], into] };
    const between = (end.row + (end.row < start.row ? 1 : 0)) * down - FOLD.down / 2;
    return { ...arrow, points: [from, [leaves, from[1]], [leaves, between], [comes, between], [comes, into[1]], into] };
  });
  return { ...geometry, width: total, height: tall, groups, boxes, arrows, zoom: zoom(best) };
}
