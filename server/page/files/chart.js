// Curves of accuracy against N, each told apart by its dashes and its name as well as its colour.
import { svg } from "./dom.js";

const [WIDTH, HEIGHT] = [760, 380];
const FRAME = { left: 52, right: 130, top: 16, bottom: 44 };
/** Least distance between the names at the curves' ends. */
const APART = 17;

/** `curves`: `{name, points: [[n, share]]}` with the same rising n; shares in [0, 1]. */
export function chart(curves, title) {
  const sizes = curves[0].points.map(([n]) => n);
  const shares = curves.flatMap(({ points }) => points.map(([, share]) => share));
  const low = Math.floor(10 * Math.min(...shares)) / 10;
  const high = Math.max(Math.ceil(10 * Math.max(...shares)) / 10, low + 0.1);
  const across = WIDTH - FRAME.left - FRAME.right;
  const down = HEIGHT - FRAME.top - FRAME.bottom;
  const x = (n) => FRAME.left + (sizes.length === 1 ? across / 2 : (across * sizes.indexOf(n)) / (sizes.length - 1));
  const y = (share) => FRAME.top + (down * (high - share)) / (high - low);
  return svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "img", "aria-label": title },
    ...grid(low, high, y),
    ...sizes.map((n) => label(String(n), x(n), HEIGHT - FRAME.bottom + 20, "middle")),
    label("candidates N", FRAME.left + across / 2, HEIGHT - 6, "middle"),
    ...curves.map(({ points }, k) => curve(points, k, x, y)),
    ...names(curves, y),
  );
}

function grid(low, high, y) {
  const ticks = [];
  for (let tenth = Math.round(10 * low); tenth <= Math.round(10 * high); tenth += 1) {
    const at = y(tenth / 10);
    ticks.push(svg("line", { x1: FRAME.left, x2: WIDTH - FRAME.right, y1: at, y2: at, class: "grid" }));
    ticks.push(label(`${10 * tenth} %`, FRAME.left - 8, at + 4, "end"));
  }
  return ticks;
}

function curve(points, k, x, y) {
  const line = points.map(([n, share]) => `${x(n)},${y(share)}`).join(" ");
  const dots = points.map(([n, share]) => svg("circle", { cx: x(n), cy: y(share), r: 3 }));
  return svg("g", { class: `curve c${k}` }, svg("polyline", { points: line }), ...dots);
}

// at the curves' ends, moved down where two would overlap
function names(curves, y) {
  const ends = curves.map(({ name, points }, k) => ({ name, k, at: y(points[points.length - 1][1]) }));
  ends.sort((one, other) => one.at - other.at);
  ends.forEach((end, place) => {
    if (place > 0) end.at = Math.max(end.at, ends[place - 1].at + APART);
  });
  const over = Math.max(0, ends[ends.length - 1].at - (HEIGHT - FRAME.bottom));
  return ends.flatMap(({ name, k, at }) => {
    const left = WIDTH - FRAME.right + 8;
    const key = svg("polyline", { points: `${left},${at - over} ${left + 26},${at - over}` });
    return [svg("g", { class: `curve c${k}` }, key), label(name, left + 32, at - over + 4, "start")];
  });
}

function label(text, x, y, anchor) {
  return svg("text", { x, y, "text-anchor": anchor }, text);
}
