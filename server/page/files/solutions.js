// The solutions, each step coloured by its score; built once, their formulas set when they come into view.
import { counted, el } from "./dom.js";
import { answer, typeset } from "./mathtext.js";

// thousands of steps are copies of this one, so it is as small as can be: its symbol is of the style sheet
const STEP = el("li", {}, el("span", { class: "chip" }, " "), el("div", { class: "words" }, " "));

const onView = new IntersectionObserver(
  (entries) => {
    const seen = entries.filter((entry) => entry.isIntersecting).map((entry) => entry.target);
    seen.forEach((card) => onView.unobserve(card));
    typeset(seen.flatMap((card) => [...card.querySelectorAll(".words")]));
  },
  { rootMargin: "400px" },
);

/** Why a solution was not scored, by the code of the reason. */
const REASONS = {
  blank: "it has no steps",
  solution_too_long: "it is too long for the model",
  too_many_steps: "it has too many steps",
  no_verdict: "the judge gave no verdict on a step",
  no_logprobs: "it came without log-probabilities, by which the model scores",
};

/** The index of the first score below the threshold; null if there is none, or no scores. */
export function firstError(scores, threshold) {
  const index = scores?.findIndex((score) => score < threshold) ?? -1;
  return index < 0 ? null : index;
}

/**
 * Shows solutions `{id, steps, step_scores, reward, answer, unscored}`. `step_scores` are null where there are none, and
 * so may rewards be; `answer` may be undefined; `unscored` is
 * `{code, detail}` where the solution could not be scored. Returns the cards, in the same order.
 */
export function showSolutions(place, solutions, threshold) {
  for (const before of place.children) onView.unobserve(before);
  const cards = solutions.map((solution, index) => card(solution, index, threshold));
  place.replaceChildren(...cards);
  cards.forEach((node) => onView.observe(node));
  return cards;
}

/** Marks the solution that stands for the elected answer, and those that agree with it. */
export function markElected(cards, elected, members) {
  const agreeing = new Set(members);
  cards.forEach((node, index) => {
    const state = index === elected ? "elected" : agreeing.has(index) ? "agrees" : "";
    if (node.dataset.vote === state) return;
    node.dataset.vote = state;
    node.querySelector(".vote").textContent = { elected: "★ elected", agrees: "same answer" }[state] ?? "";
  });
}

function card(solution, index, threshold) {
  const title = el("h3", {}, `Solution ${index + 1}`);
  if (solution.id !== null) title.append(" ", el("span", { class: "id" }, solution.id));
  const steps = el("ol", { class: "steps" });
  const scores = solution.step_scores;
  const wrong = firstError(scores, threshold);
  const shown = scores === null ? unscoredStep : (text, k) => step(text, scores[k], threshold, k === wrong);
  steps.append(...solution.steps.map(shown));
  return el(
    "article",
    { class: "solution", "aria-label": title.textContent },
    el("header", { class: "row" }, title, el("span", { class: "vote" }), facts(solution, wrong)),
    solution.unscored?.detail ? el("p", { class: "hint" }, numbered(solution.unscored.detail, index)) : null,
    steps,
  );
}

// the server counts from 0
function numbered(detail, index) {
  return detail.replace(/^solution \d+/, `Solution ${index + 1}`);
}

function facts(solution, wrong) {
  const { reward } = solution;
  const stated = () => (solution.answer === null ? el("em", {}, "none") : answer(solution.answer));
  return el(
    "p",
    { class: "facts row" },
    solution.answer === undefined ? null : el("span", {}, "answer ", el("strong", {}, stated())),
    el("span", {}, "reward ", el("strong", {}, reward === null ? el("em", {}, "none") : reward.toFixed(3))),
    verdict(solution, wrong),
  );
}

function verdict({ steps, step_scores: scores, unscored }, wrong) {
  if (unscored) {
    const reason = REASONS[unscored.code] ?? "unknown reason";
    return el("span", { class: "verdict wrong" }, `✗ not scored: ${reason}`);
  }
  if (scores === null) return null;
  if (wrong === null) return el("span", { class: "verdict fine" }, "✓ no error found");
  return el("span", { class: "verdict wrong" }, `✗ first error: step ${wrong + 1} of ${steps.length}`);
}

function step(text, score, threshold, isFirst) {
  const node = STEP.cloneNode(true);
  const words = node.lastChild;
  node.className = `step p${Math.round(10 * score)}${score < threshold ? " wrong" : ""}${isFirst ? " first-error" : ""}`;
  node.firstChild.firstChild.data = score.toFixed(3);
  words.firstChild.data = text;
  if (isFirst) words.before(el("strong", { class: "badge" }, "first error"));
  return node;
}

/** The card of a solution that is yet to be scored. */
export function waitingCard(text) {
  const steps = el("ol", { class: "steps" }, unscoredStep(text));
  return el("article", { class: "solution", "aria-label": "Candidate" }, el("p", { class: "hint" }, "being scored …"), steps);
}

function unscoredStep(text) {
  return el("li", { class: "step unscored" }, el("div", { class: "words" }, text));
}

/** What the colours and symbols of the steps mean. */
export function legend(threshold, solutions) {
  const steps = solutions.reduce((sum, solution) => sum + solution.steps.length, 0);
  const count = el("span", {}, `${counted(solutions.length, "solution")}, ${counted(steps, "step")}. `);
  if (solutions.every((solution) => solution.step_scores === null)) return [count, el("span", {}, "Steps are not scored.")];
  return [
    count,
    el("span", { class: "scale", "aria-hidden": "true" }),
    el("span", {}, `0 to 1: how likely a step is right. ✓ at least ${threshold}, ✗ below it: an error.`),
  ];
}
