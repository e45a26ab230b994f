// Elements, built without markup: whatever text is given stays text.

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

/** The element of this id, which is there. */
export function byId(id) {
  return document.getElementById(id);
}

/** `1 step`, `2 steps`. */
export function counted(number, noun, plural = `${noun}s`) {
  return `${number} ${number === 1 ? noun : plural}`;
}

/** Fills a select with options `[value, text]`; `onChange` gets the value that is chosen. */
export function offer(select, options, onChange) {
  select.replaceChildren(...options.map(([value, text]) => el("option", { value }, text)));
  select.onchange = () => onChange(select.value);
}

/** A table that scrolls where it is too wide; cells are texts, numbers or elements. */
export function table(title, columns, rows) {
  const head = el("tr", {}, ...columns.map((column) => el("th", { scope: "col" }, column)));
  const body = rows.map((row) => el("tr", {}, ...row.map((cell) => el("td", {}, cell instanceof Node ? cell : String(cell)))));
  const own = el("table", {}, el("caption", {}, title), el("thead", {}, head), el("tbody", {}, ...body));
  return el("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": title }, own);
}

/** A bar that parts in [0, 1] fill one after the other; what it shows has to be told in words beside it. */
export function bar(parts, kind) {
  const node = el("span", { class: `bar ${kind}`, "aria-hidden": "true" });
  for (const part of parts) {
    const fill = el("span");
    fill.style.width = `${100 * Math.min(1, Math.max(0, part))}%`;
    node.append(fill);
  }
  return node;
}
