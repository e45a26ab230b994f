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
