// Elements by hand: small, and without a framework where nothing but numbers changes.

/**
 * @param {string} tag  `div.card.wide`: with its classes
 * @param {Record<string, any>} [attributes]  `on...`: listeners; null and false are left out
 * @param {...(Node|string|null|undefined|false|(Node|string)[])} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name);
  if (classes.length) element.className = classes.join(" ");
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Write a text only where it differs: the browser lays nothing out again. @param {Node} node @param {string} text */
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** @param {HTMLElement} element @param {string} name @param {string|number} value */
export function css(element, name, value) {
  const text = String(value);
  if (element.style.getPropertyValue(name) !== text) element.style.setProperty(name, text);
}

/** @param {Element} element @param {string} name @param {string|null} value */
export function mark(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/** Rows of a list by key: made once, moved only where their order has changed.
 * @template T
 * @param {HTMLElement} parent @param {T[]} items @param {(item: T) => string} key
 * @param {(item: T) => HTMLElement} make @param {(element: HTMLElement, item: T) => void} update */
export function keyed(parent, items, key, make, update) {
  const there = new Map([...parent.children].map((child) => [child.getAttribute("data-key"), /** @type {HTMLElement} */ (child)]));
  let at = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    let element = there.get(name);
    if (!element) {
      element = make(item);
      element.setAttribute("data-key", name);
    }
    there.delete(name);
    update(element, item);
    if (element === at) at = at.nextElementSibling;
    else parent.insertBefore(element, at);
  }
  for (const gone of there.values()) gone.remove();
}

const quiet = matchMedia("(prefers-reduced-motion: reduce)");
/** Whether things may move. */
export const mayMove = () => !quiet.matches;

/** @type {Map<string, string>} */ const colours = new Map();
/** Another scheme: colours are asked for anew. */
export const forgetColours = () => colours.clear();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", forgetColours);

/** What a colour of the style sheet is now, in this scheme. Asked once: the browser computes styles for it. @param {string} name */
export function colour(name) {
  const known = colours.get(name);
  if (known) return known;
  const probe = document.body.appendChild(h("i.unseen", { "aria-hidden": "true" }));
  probe.style.color = `var(${name})`;
  const found = getComputedStyle(probe).color;
  probe.remove();
  colours.set(name, found);
  return found;
}
