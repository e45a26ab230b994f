// Elements, built without markup: whatever text they are given stays text.

/** An element with properties (`class`, `data-…` and `aria-…` as attributes), around elements and texts. */
export function el(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") node.className = value;
    else if (name.includes("-") || name === "for" || name === "role") node.setAttribute(name, value);
    else node[name] = value;
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** An SVG element with attributes, around others. */
export function svg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  node.append(...children);
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

/**
 * Fills a select with options `[value, text]`; the chosen value stays chosen if it is still offered. `onChange` gets
 * the value that is chosen.
 */
export function offer(select, options, onChange = null) {
  const before = select.value;
  select.replaceChildren(...options.map(([value, text]) => el("option", { value }, text)));
  if (options.some(([value]) => value === before)) select.value = before;
  if (onChange !== null) select.onchange = () => onChange(select.value);
}

/** A table that scrolls where it is too wide; cells are texts, numbers or elements. */
export function table(title, columns, rows) {
  const head = el("tr", {}, ...columns.map((column) => el("th", { scope: "col" }, column)));
  const cell = (content) => el("td", {}, content instanceof Node ? content : String(content));
  const body = rows.map((row) => el("tr", {}, ...row.map(cell)));
  const grid = el("table", {}, el("caption", {}, title), el("thead", {}, head), el("tbody", {}, ...body));
  return el("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": title }, grid);
}

/** A bar that parts in [0, 1] fill one after the other; what it shows has to be said in words beside it. */
export function bar(parts, kind) {
  const node = el("span", { class: `bar ${kind}`, "aria-hidden": "true" });
  for (const part of parts) {
    const fill = el("span");
    fill.style.width = `${100 * Math.min(1, Math.max(0, part))}%`;
    node.append(fill);
  }
  return node;
}
