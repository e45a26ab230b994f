// LaTeX between its delimiters becomes formulas; what is hostile, too long or not understood stays text.
import { el } from "./dom.js";
import "./vendor/katex-0.19.1/katex.min.js"; // an old-style script: defines `katex` for all

/** Characters of a text, and formulas of it, beyond which text stays text; the patterns bound a formula's. */
const MOST = { text: 50_000, formulas: 100 };
// as in Pandoc, so that prices stay text: no space inside of the dollars, no digit after them
const DOLLARS = String.raw`\$(?![\s$])((?:[^$\\]|\\[^]){1,1000}?)(?<!\s)\$(?!\d)`;
// an answer often stands without delimiters; braces in it are paired
const BOXED = [1, 2, 3, 4].reduce((inner) => String.raw`\{(?:[^{}\\]|\\[^]|${inner}){0,1000}\}`, String.raw`\{\}`);
const FORMULA = new RegExp(
  [
    String.raw`\\[\\$]`,
    String.raw`\$\$([^]{1,1000}?)\$\$`,
    String.raw`\\\[([^]{1,1000}?)\\\]`,
    String.raw`\\\(([^]{1,1000}?)\\\)`,
    DOLLARS,
    String.raw`(\\boxed${BOXED})`,
  ].join("|"),
  "g",
);
const OPTIONS = {
  // links, pictures and attributes: no is not enough, for then their commands would be set in red
  trust: () => {
    throw new Error("not trusted");
  },
  throwOnError: true, // caught: the text stays as it was written
  strict: "ignore",
  maxExpand: 100,
  maxSize: 10,
};

/** Replaces the texts of elements by the same with their formulas typeset. */
export function typeset(nodes) {
  const changed = nodes.filter(({ textContent: text }) => text.length <= MOST.text && /[\\$]/.test(text));
  for (const node of changed) {
    const text = node.textContent;
    const pieces = [];
    let start = 0;
    for (const found of text.matchAll(FORMULA)) {
      const [whole, block, bracketed, ...inline] = found;
      const source = block ?? bracketed ?? inline.find(Boolean);
      if (source === undefined) continue; // an escaped sign
      pieces.push(text.slice(start, found.index), formula(whole, source, (block ?? bracketed) !== undefined));
      start = found.index + whole.length;
      if (pieces.length >= 2 * MOST.formulas) break;
    }
    node.replaceChildren(...pieces, text.slice(start));
  }
  // all are measured after all have changed: each measurement after a change lays out the page
  for (const node of changed.filter(({ scrollWidth, clientWidth }) => scrollWidth > clientWidth + 1)) {
    // what scrolls has to be reached by keys
    node.tabIndex = 0;
    node.role = "group";
    node.ariaLabel = "Text with wide formulas";
  }
}

/** An answer, set as a formula if it looks like one. */
export function answer(text) {
  return el("span", { class: "answer" }, /[\\^_]/.test(text) && text.length <= 1000 ? formula(text, text, false) : text);
}

function formula(text, source, displayMode) {
  const node = el("span", { class: displayMode ? "formula display" : "formula" });
  try {
    globalThis.katex.render(source, node, { ...OPTIONS, displayMode });
    return node;
  } catch {
    return text;
  }
}
