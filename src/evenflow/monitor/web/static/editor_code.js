// A field of SQL: an expression of one line, or a statement. What is wrong is underlined, columns and functions are offered.

import { autocompletion, bracketMatching, closeBrackets, closeBracketsKeymap, completionKeymap, defaultKeymap, EditorState, EditorView, history, historyKeymap, keymap, placeholder, setDiagnostics, sql, StandardSQL } from "./vendor/code.js";

const nonce = document.querySelector("meta[name=nonce]")?.getAttribute("content") ?? "";
const FUNCTIONS = ["abs", "array", "case when then else end", "cast( as )", "coalesce", "concat", "date_trunc", "if", "length", "like", "lower", "nullif", "round", "split", "substring", "upper"];

const theme = EditorView.theme({
  "&": { backgroundColor: "var(--card)", color: "var(--ink)", border: "1px solid var(--line)", borderRadius: "8px", fontSize: "12.5px" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "1px" },
  ".cm-content": { padding: "5px 4px", caretColor: "var(--ink)", fontFamily: "ui-monospace, 'DejaVu Sans Mono', Menlo, monospace" },
  ".cm-tooltip": { backgroundColor: "var(--card)", color: "var(--ink)", border: "1px solid var(--line)", borderRadius: "8px" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent-soft)", color: "var(--accent)" },
  ".cm-placeholder": { color: "var(--soft)" },
});

/** @param {{value: string, label: string, columns: () => string[], change: (text: string) => void, lines?: boolean, hint?: string}} given */
export function code({ value, label, columns, change, lines = false, hint = "" }) {
  const offered = (context) => {
    const word = context.matchBefore(/[\w`]+/);
    if (!word && !context.explicit) return null;
    const options = [...columns().map((name) => ({ label: /^\w+$/.test(name) ? name : `\`${name}\``, type: "property" })), ...FUNCTIONS.map((name) => ({ label: name, type: "function" }))];
    return { from: word?.from ?? context.pos, options };
  };
  const view = new EditorView({
    state: EditorState.create({
      doc: value,
      extensions: [
        history(), bracketMatching(), closeBrackets(), sql({ dialect: StandardSQL }), autocompletion({ override: [offered] }), theme, EditorView.cspNonce.of(nonce), EditorView.lineWrapping, placeholder(hint),
        keymap.of([...closeBracketsKeymap, ...completionKeymap, ...historyKeymap, ...defaultKeymap]), EditorView.contentAttributes.of({ "aria-label": label }),
        ...(lines ? [] : [EditorState.transactionFilter.of((tr) => (tr.newDoc.lines > 1 && value.indexOf("\n") < 0 ? [] : tr))]),
        EditorView.updateListener.of((update) => update.docChanged && change(update.state.doc.toString())),
      ],
    }),
  });
  return {
    element: view.dom,
    view,
    /** @param {any} fault */
    mark(fault) {
      const size = view.state.doc.length, from = Math.min(fault?.start ?? 0, size), to = Math.min(fault?.end ?? size, size);
      view.dispatch(setDiagnostics(view.state, fault && to > from ? [{ from, to, severity: "error", message: fault.error }] : []));
    },
  };
}
