// The solutions, each step coloured by its score; built once, their formulas set when they come into view.
import { byId, el, listed, percent } from "./dom.js";
import { answer, typeset } from "./mathtext.js";

// thousands of steps are copies of this one, so it is as small as can be: its symbol is of the style sheet
const STEP = el("li", {}, el("span", { class: "chip" }, " "), el("div", { class: "words formulas" }, " "));

const onView = new IntersectionObserver(
  (entries) => {
    const seen = entries.filter((entry) => entry.isIntersecting).map((entry) => entry.target);
    seen.forEach((card) => onView.unobserve(card));
    typeset(seen.flatMap((card) => [...card.querySelectorAll(".words")]));
  },
  { rootMargin: "400px" },
);

let cards = [];
let drawn = {};

/** Shows solutions `{id, steps, step_scores, reward, answer, unscored}` as `/score_steps` returns them. */
export function showSolutions({ request, drawn: solutions, threshold }) {
  if (drawn.solutions === solutions && drawn.threshold === threshold) return;
  drawn = { solutions, threshold };
  const { problem = "" } = request;
  byId("problem-text").textContent = /[\\$]/.test(problem) ? problem : ""; // else it reads as well where it was written
  typeset([byId("problem-text")]);
  cards.forEach((before) => onView.unobserve(before));
  cards = solutions.map((solution, index) => card(solution, index, threshold));
  cards.forEach((node) => onView.observe(node));
  const seen = solutions.filter((solution) => solution.step_scores !== null);
  byId("legend").textContent = seen.length === 0
    ? "Steps are not scored."
    : seen.some((solution) => solution.reward === undefined)
    ? "Equations in the steps are checked, the rest is not. A step with a false one is an error ✗; what follows is dimmed."
    : `A score says how likely everything so far is right. The first below ${percent(threshold)} is an error ✗; what follows is dimmed.`;
}

/** The elected solution comes first, then those of the same answer, folded, then the rest. */
export function arrange({ solutions, votes }, strategy) {
  const outcome = votes?.strategies[strategy];
  const members = outcome?.candidates[0].members ?? [];
  const elected = outcome?.solution_index;
  const same = members.filter((index) => index !== elected);
  cards.forEach((node, index) => {
    const state = index === elected ? "elected" : same.includes(index) ? "agrees" : "";
    node.dataset.vote = state;
    node.querySelector(".vote").textContent = { elected: "★ elected", agrees: "same answer" }[state] ?? "";
  });
  const first = cards.filter((_, index) => index === elected);
  const rest = cards.filter((_, index) => !members.includes(index));
  const fold = same.length === 0 ? [] : [folded(solutions[elected].answer, same)];
  byId("solutions").replaceChildren(...first, ...fold, ...rest);
}

function folded(text, same) {
  const names = listed(same.map((index) => String(index + 1)));
  const title = el("summary", {}, answer(text), ` also in solution${same.length === 1 ? "" : "s"} `, ...names);
  const open = byId("solutions").querySelector(".same")?.open ?? false;
  return el("details", { class: "same", open }, title, ...same.map((index) => cards[index]));
}

function card(solution, index, threshold) {
  const { id, steps, step_scores: scores, unscored } = solution;
  const name = `Solution ${index + 1}`;
  const title = el("h3", {}, name, id === null ? null : el("span", { class: "id" }, ` ${id}`));
  return el(
    "article",
    { class: "solution", id: `solution-${index + 1}`, ariaLabel: title.textContent },
    el("header", { class: "facts row" }, title, ...facts(solution), el("span", { class: "vote" })),
    // the server counts from 0
    unscored ? el("p", { class: "hint" }, `✗ not scored: ${unscored.detail.replace(/^solution \d+/, name)}`) : null,
    el("ol", { class: "steps" }, ...stepsOf(steps, scores, threshold, solution.reward === undefined)),
  );
}

function stepsOf(steps, scores, threshold, checked = false) {
  const wrong = (scores ?? []).findIndex((score) => score !== null && score < threshold);
  const words = (score) => (checked ? (score < threshold ? "false" : "holds") : percent(score));
  return steps.map((text, k) => {
    const score = scores?.[k];
    return typeof score === "number" ? step(text, score, words(score), wrong < 0 ? -1 : k - wrong) : unscoredStep(text);
  });
}

function facts({ answer: text, reward }) {
  const none = () => el("em", {}, "none");
  const shown = reward === null ? none() : percent(reward ?? null);
  return [
    el("span", {}, "answer ", el("strong", {}, text === null ? none() : answer(text))),
    reward === undefined ? null : el("span", { title: reward ?? "" }, "reward ", el("strong", {}, shown)),
  ];
}

// `past`: how many steps after the first error it is; below 0 before it, and where there is none
function step(text, score, said, past) {
  const node = STEP.cloneNode(true);
  const [chip, words] = node.children;
  node.className = past < 0 ? "step" : past === 0 ? "step first-error" : "step after";
  node.style.setProperty("--score", `${100 * score}%`);
  chip.title = `score ${score.toFixed(4)}`;
  chip.firstChild.data = said;
  words.firstChild.data = text;
  if (past === 0) node.append(el("strong", { class: "badge" }, "first error"));
  return node;
}

function unscoredStep(text) {
  return el("li", { class: "step unscored" }, el("span", { class: "chip" }), el("div", { class: "words formulas" }, text));
}

/** The card of a candidate that is being written, or has arrived and is being scored: its scored steps, and the rest. */
export function draftCard(rest, { steps = [], scores = [], threshold } = {}) {
  const items = [...stepsOf(steps, scores, threshold), unscoredStep(rest)];
  const hint = el("p", { class: "hint" }, "being written and scored …");
  return el("article", { class: "solution", ariaLabel: "Candidate" }, hint, el("ol", { class: "steps" }, ...items));
}
