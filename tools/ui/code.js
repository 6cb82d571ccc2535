// The editor of SQL cells and expressions.
export { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
export { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
export { sql, StandardSQL, SQLDialect } from "@codemirror/lang-sql";
export { bracketMatching, defaultHighlightStyle, HighlightStyle, indentOnInput, syntaxHighlighting } from "@codemirror/language";
export { lintGutter, linter, lintKeymap, setDiagnostics } from "@codemirror/lint";
export { Compartment, EditorState } from "@codemirror/state";
export {
  drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers, placeholder, rectangularSelection,
} from "@codemirror/view";
