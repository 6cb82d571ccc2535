// What is drawn: the document, what the server says of it, what was before, and what was undone.

const KEPT = 200;

/** Totals are typed by the server, as their columns change. @param {any} document */
function untyped(document) {
  for (const box of document.boxes)
    for (const call of Array.isArray(box.params?.calls) ? box.params.calls : []) if (call.$call && !call.$call.made) delete call.$call.type;
  return document;
}

/** What was drawn of each SQL cell: its text, and its boxes as they stand there. @param {any} document @returns {Map<string, {text: any, boxes: string}>} */
function cellsOf(document) {
  const grouped = Map.groupBy(document.boxes.filter((box) => typeof box.cell === "string"), (box) => box.cell);
  return new Map([...grouped].map(([cell, boxes]) => [cell, { text: document.cells?.[cell], boxes: JSON.stringify(boxes.map(({ name, kind, inputs, params }) => [name, kind, inputs, params])) }]));
}

export class Draft {
  /** @param {any} document @param {string} tag */
  constructor(document, tag) {
    this.document = untyped(document);
    this.tag = tag;
    this.number = 0;
    this.judgedNumber = -1;
    this.savedNumber = 0;
    /** @type {string[]} */ this.before = [];
    /** @type {string[]} */ this.behind = [];
    /** @type {string|null} */ this.chosen = null;
    /** @type {any} */ this.told = { boxes: [], loose: [] };
    /** @type {Map<string, any>} */ this.judged = new Map();
    this.onChange = () => {};
    /** The boxes of a cell were edited by hand: they are boxes as others from now on. @param {string} cell */ this.onDetach = (cell) => {};
  }

  get boxes() {
    return this.document.boxes;
  }

  get dirty() {
    return this.number !== this.savedNumber;
  }

  /** @param {string|null} name */
  box(name) {
    return this.boxes.find((box) => box.name === name) ?? null;
  }

  /** The first free name that begins so. @param {string} stem */
  free(stem) {
    let name = stem, number = 1;
    while (this.box(name)) name = `${stem}_${++number}`;
    return name;
  }

  /** @param {(document: any) => void} alter @param {string|null} [drawn]  the SQL cell that is drawn by it */
  change(alter, drawn = null) {
    const was = cellsOf(this.document);
    this.before.push(JSON.stringify(this.document));
    if (this.before.length > KEPT) this.before.shift();
    this.behind = [];
    alter(this.document);
    const now = cellsOf(this.document);
    for (const [cell, { text, boxes }] of was) if (cell !== drawn && now.get(cell)?.text === text && now.get(cell)?.boxes !== boxes) this.detach(cell);
    this.number++;
    this.onChange();
  }

  /** Its statement says no more what stands there. @param {string} cell */
  detach(cell) {
    for (const box of this.boxes) if (box.cell === cell) delete box.cell;
    if (this.document.cells) delete this.document.cells[cell];
    this.onDetach(cell);
  }

  undo() {
    this.turn(this.before, this.behind);
  }

  redo() {
    this.turn(this.behind, this.before);
  }

  turn(from, to) {
    const text = from.pop();
    if (!text) return;
    to.push(JSON.stringify(this.document));
    this.document = JSON.parse(text);
    if (!this.box(this.chosen)) this.chosen = null;
    this.number++;
    this.onChange();
  }

  /** @param {string|null} name */
  choose(name) {
    if (this.chosen === name) return;
    this.chosen = name;
    this.onChange();
  }

  /** @param {any} told @param {number} number */
  take(told, number) {
    this.told = told;
    this.judgedNumber = number;
    const before = this.judged;
    this.judged = new Map(told.boxes.map((box) => [box.name, box.ports ? box : { ...box, was: before.get(box.name)?.ports ?? before.get(box.name)?.was }]));
  }

  saved(tag, number) {
    this.tag = tag;
    this.savedNumber = number;
  }

  /** @param {string} name */
  remove(name) {
    const at = this.chosen === name ? null : this.chosen;
    this.chosen = at;
    this.change((document) => {
      document.boxes = document.boxes.filter((box) => box.name !== name);
      for (const box of document.boxes) if (box.inputs) box.inputs = box.inputs.filter(([up]) => up !== name);
    });
  }

  /** @param {string} name @param {string} wanted */
  rename(name, wanted) {
    if (!wanted.trim() || wanted === name || this.box(wanted)) return false;
    this.chosen = wanted;
    this.change((document) => {
      for (const box of document.boxes) {
        if (box.name === name) box.name = wanted;
        if (box.inputs) box.inputs = box.inputs.map(([up, port]) => [up === name ? wanted : up, port]);
      }
    });
    return true;
  }

  /** Columns of what goes into a box, by name: those of its input `which`. @param {any} box */
  columns(box, which = 0) {
    const arrow = box.inputs?.[which], ports = arrow && (this.judged.get(arrow[0])?.ports ?? this.judged.get(arrow[0])?.was);
    return ports?.[arrow[1]]?.columns ?? [];
  }
}
