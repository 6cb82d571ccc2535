// Some browsers say of a system without a language that theirs is "en-US@posix", which is no tag of a language, and who plots curves takes
// them at their word. Imported before that.

try {
  new Intl.NumberFormat(navigator.language);
} catch {
  Object.defineProperty(navigator, "language", { value: "en-US", configurable: true });
}
