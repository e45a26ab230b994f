// LaTeX between its delimiters becomes formulas; what is hostile, too long or not understood stays text.
import { el } from "./dom.js";
import "./vendor/katex-0.19.1/katex.min.js"; // an old-style script: defines `katex` for all

/** Characters of a formula, of a text, and formulas of a text, beyond which text stays text. */
const MOST = { formula: 1000, text: 50_000, formulas: 100 };

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

const PAIRS = [
  { open: "$$", close: "$$", display: true },
  { open: "\\[", close: "\\]", display: true },
  { open: "\\(", close: "\\)", display: false },
];

/** The stretches of a text: `{text}`, or `{text, source, display}` for what stands between LaTeX's delimiters. */
export function segments(text) {
  if (text.length > MOST.text) return [{ text }];
  const found = [];
  let start = 0;
  let at = nextMark(text, 0);
  while (at >= 0 && found.length < 2 * MOST.formulas) {
    const formula = formulaAt(text, at);
    if (formula !== null) {
      if (at > start) found.push({ text: text.slice(start, at) });
      found.push(formula);
      start = at + formula.text.length;
    }
    at = nextMark(text, formula === null ? at + (text[at] === "\\" ? 2 : 1) : start);
  }
  if (start < text.length || found.length === 0) found.push({ text: text.slice(start) });
  return found;
}

function nextMark(text, from) {
  const dollar = text.indexOf("$", from);
  const slash = text.indexOf("\\", from);
  return dollar < 0 || slash < 0 ? Math.max(dollar, slash) : Math.min(dollar, slash);
}

function formulaAt(text, at) {
  for (const { open, close, display } of PAIRS) {
    if (!text.startsWith(open, at)) continue;
    const end = text.indexOf(close, at + open.length);
    return end < 0 ? null : formula(text.slice(at, end + close.length), open.length, display);
  }
  if (text[at] === "$") return between(text, at);
  return boxed(text, at);
}

// as in Pandoc, so that prices stay text: no space inside of the dollars, no digit after them
function between(text, at) {
  const found = /^\$(?![\s$])(?:[^$\\]|\\[^])*?(?<!\s)\$(?!\d)/.exec(text.slice(at, at + MOST.formula + 2));
  return found && formula(found[0], 1, false);
}

// an answer often stands without delimiters
function boxed(text, at) {
  if (!text.startsWith("\\boxed{", at)) return null;
  let depth = 0;
  for (let k = at + 6; k < Math.min(text.length, at + MOST.formula); k += 1) {
    if (text[k] === "\\") k += 1;
    else if (text[k] === "{") depth += 1;
    else if (text[k] === "}" && (depth -= 1) === 0) return formula(text.slice(at, k + 1), 0, false);
  }
  return null;
}

function formula(text, around, display) {
  const source = text.slice(around, text.length - around);
  return source.trim() && source.length <= MOST.formula ? { text, source, display } : null;
}

/** Replaces the texts of elements by the same with their formulas typeset. */
export function typeset(nodes) {
  const changed = nodes.filter((node) => /[\\$]/.test(node.textContent));
  for (const node of changed) {
    const pieces = segments(node.textContent);
    node.replaceChildren(...pieces.map(({ text, source, display }) => typesetPiece(text, source, display)));
  }
  // all are measured after all have changed: each measurement after a change lays out the page
  for (const node of changed.filter(({ scrollWidth, clientWidth }) => scrollWidth > clientWidth + 1)) {
    // what scrolls has to be reached by keys
    node.tabIndex = 0;
    node.setAttribute("role", "group");
    node.setAttribute("aria-label", "Text with wide formulas");
  }
}

/** An answer, set as a formula if it looks like one. */
export function answer(text) {
  const node = el("span", { class: "answer" });
  node.append(/[\\^_]/.test(text) ? typesetPiece(text, text, false) : text);
  return node;
}

function typesetPiece(text, source, display) {
  if (source === undefined || source.length > MOST.formula) return text;
  const node = el("span", { class: display ? "formula display" : "formula" });
  try {
    globalThis.katex.render(source, node, { ...OPTIONS, displayMode: display });
    return node;
  } catch {
    return text;
  }
}
