// A lane for each question of best-of-N: which votes elect a right answer among all its candidates.
import { bar, byId, el, offer, svg } from "./dom.js";

const agrees = ({ elected }) => new Set(Object.values(elected)).size === 1;

/** What the lanes may be narrowed to; but for the first, every question is in one of them. */
const FILTERS = {
  all: ["all questions", () => true],
  differ: ["where the votes differ", (question) => !agrees(question)],
  right: ["where every vote is right", (question) => agrees(question) && question.elected.majority],
  wrong: [
    "where none is, though a candidate is",
    (question) => agrees(question) && !question.elected.majority && question.right > 0,
  ],
  nothing: ["where no candidate is right", (question) => question.right === 0],
};
const MOVES = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity };

/** The lanes; `onOpen` is called with the id of the question that is chosen. */
export class Lanes {
  constructor(onOpen) {
    this.onOpen = onOpen;
    this.chosen = null;
    this.rows = [];
    byId("lanes").addEventListener("click", (event) => this._clicked(event));
    byId("lanes").addEventListener("keydown", (event) => this._move(event));
    byId("overview").addEventListener("click", (event) => this._pointed(event));
  }

  /** Shows questions `{id, problem, candidates, right, elected}`, those with most right candidates first. */
  show(questions, title) {
    const share = ({ right, candidates }) => right / candidates;
    this.questions = [...questions].sort((one, other) => share(other) - share(one));
    this.rows = this.questions.map(lane);
    this.votes = Object.keys(questions[0]?.elected ?? {});
    const columns = ["question", "right", ...this.votes];
    const head = el("tr", {}, ...columns.map((column) => el("th", { scope: "col" }, el("span", {}, column))));
    const caption = el("caption", { class: "unseen" }, title);
    byId("lanes").replaceChildren(
      el("table", { class: "lanes" }, caption, el("thead", {}, head), el("tbody", {}, ...this.rows)),
    );
    const options = Object.entries(FILTERS).map(([name, [text, holds]]) => {
      return [name, `${text} (${questions.filter(holds).length})`];
    });
    offer(byId("lanes-filter"), options, () => this._narrow());
    this._narrow();
    this.mark(this.chosen);
  }

  /** Whether a question of this id is among them. */
  has(id) {
    return this.questions.some((question) => question.id === id);
  }

  /** Marks the question that is open. */
  mark(id) {
    this.chosen = id;
    byId("overview").replaceChildren(...this.votes.map((vote) => glance(vote, this.questions, id)));
    this.rows.forEach((row, index) => {
      const isChosen = this.questions[index].id === id;
      row.classList.toggle("chosen", isChosen);
      if (isChosen) buttonOf(row).setAttribute("aria-current", "true");
      else buttonOf(row).removeAttribute("aria-current");
    });
    this._makeReachable();
  }

  _narrow() {
    const [, holds] = FILTERS[byId("lanes-filter").value];
    this.rows.forEach((row, index) => {
      row.hidden = !holds(this.questions[index]);
    });
    this._makeReachable();
  }

  _shown() {
    return this.rows.filter((row) => !row.hidden);
  }

  // the tabulator key reaches one lane, the arrows the others
  _makeReachable(lane = this._shown().find((row) => row.classList.contains("chosen")) ?? this._shown()[0]) {
    for (const row of this.rows) buttonOf(row).tabIndex = row === lane ? 0 : -1;
  }

  _clicked(event) {
    const index = this.rows.indexOf(event.target.closest("tr"));
    if (index >= 0) this.onOpen(this.questions[index].id);
  }

  // one of so many narrow columns: whoever can't point at it finds its lane below
  _pointed(event) {
    const picture = event.target.closest("svg");
    if (picture === null) return;
    const { left, width } = picture.getBoundingClientRect();
    const index = Math.floor((this.questions.length * (event.clientX - left)) / width);
    if (index in this.questions) this.onOpen(this.questions[index].id);
  }

  _move(event) {
    const shown = this._shown();
    const from = shown.indexOf(event.target.closest("tr"));
    if (from < 0 || !(event.key in MOVES)) return;
    event.preventDefault();
    const to = shown[Math.min(shown.length - 1, Math.max(0, from + MOVES[event.key]))];
    this._makeReachable(to);
    buttonOf(to).focus();
  }
}

const buttonOf = (row) => row.querySelector("button");

function lane({ problem, candidates, right, elected }) {
  const count = el("span", { class: "number" }, `${right}/${candidates}`);
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, el("button", { type: "button", class: "lane" }, problem)),
    el("td", {}, el("span", { class: "share" }, count, bar([right / candidates], "frequency"))),
    ...Object.values(elected).map(mark),
  );
}

function mark(right) {
  const words = el("span", { class: "unseen" }, right ? "right" : "wrong");
  return el("td", { class: right ? "mark fine" : "mark wrong" }, el("span", { "aria-hidden": "true" }, right ? "✓" : "✗"), words);
}

/** All questions by one vote, side by side: right ones up, wrong ones down, as in the report's figure. */
function glance(vote, questions, chosen) {
  const column = (k, top, height) => `M${k} ${top}h1v${height}h-1z`;
  const columns = (holds, top, height = 1) => {
    return questions.map((question, k) => (holds(question) ? column(k, top, height) : "")).join("");
  };
  const right = questions.filter(({ elected }) => elected[vote]).length;
  const words = `${right} of ${questions.length} right`;
  const picture = svg(
    "svg",
    { viewBox: `0 0 ${questions.length} 2`, preserveAspectRatio: "none", role: "img", "aria-label": `${vote}: ${words}` },
    svg("path", { class: "open", d: columns(({ id }) => id === chosen, 0, 2) }),
    svg("path", { class: "up", d: columns(({ elected }) => elected[vote], 0) }),
    svg("path", { class: "down", d: columns(({ elected }) => !elected[vote], 1) }),
  );
  return el("li", {}, el("strong", {}, vote), picture, el("span", { class: "number" }, words));
}
