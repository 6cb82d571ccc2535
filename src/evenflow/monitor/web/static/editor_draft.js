// What is drawn: the document, what the server says of it, what was before, and what was undone.

const KEPT = 200;

/** Totals are typed by the server, as their columns change. @param {any} document */
function untyped(document) {
  for (const box of document.boxes)
    for (const call of Array.isArray(box.params?.calls) ? box.params.calls : []) if (call.$call && !call.$call.made) delete call.$call.type;
  return document;
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

  /** @param {(document: any) => void} alter */
  change(alter) {
    this.before.push(JSON.stringify(this.document));
    if (this.before.length > KEPT) this.before.shift();
    this.behind = [];
    alter(this.document);
    this.number++;
    this.onChange();
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
