// Elements, built without markup: whatever text they are given stays text.

const AND = new Intl.ListFormat("en");

/** An element with properties (`class`, `data-…` and `aria-…` as attributes), around elements and texts. */
export function el(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") node.className = value;
    else if (name.includes("-")) node.setAttribute(name, value);
    else node[name] = value;
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

/** The element of this id. */
export function byId(id) {
  return document.getElementById(id);
}

/** `1 step`, `2 steps`. */
export function counted(number, noun) {
  return `${number} ${number === 1 ? noun : `${noun}s`}`;
}

/** Elements or texts with what stands between those of a list: `a`, `, `, `b`, `, and `, `c`. */
export function listed(items) {
  const parts = AND.formatToParts(items.map((_, place) => String(place)));
  return parts.map(({ type, value }) => (type === "element" ? items[value] : value));
}

/** A score in whole percent. */
export function percent(score) {
  return score === null ? "none" : `${Math.round(100 * score)}%`;
}

/** Fills a select with options `[value, text]`; the chosen value stays chosen if it is still offered. */
export function offer(select, options) {
  const before = select.value;
  select.replaceChildren(...options.map(([value, text]) => el("option", { value }, text)));
  if (options.some(([value]) => value === before)) select.value = before;
}
