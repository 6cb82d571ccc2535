// Asked a second time: the name of what something is done to is written by hand, before its button can be pressed.

import { h, write } from "./dom.js";

/** @param {HTMLElement} go  the button */
export function writtenAgain(go) {
  const input = /** @type {HTMLInputElement} */ (h("input", { autocomplete: "off", spellcheck: "false", name: "again" }));
  const asked = h("span"), element = h("label.again", {}, asked, input);
  let name = "";
  const check = () => void go.toggleAttribute("disabled", !name || input.value.trim() !== name);
  input.addEventListener("input", check);
  check();
  return {
    element,
    check,
    /** @param {string} wanted  "": nobody knows yet what it is done to, and it cannot be done */
    ask(wanted) {
      name = wanted.trim();
      write(asked, name ? `Write ${name} to go on` : "Say first what it is done to");
      check();
    },
  };
}
