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

/**
 * Shows solutions `{id, steps, step_scores, answer}`, without an answer if that is undefined, with what follows from their scores, `{reward, firstError}`.
 * Returns the cards, in the order of the solutions.
 */
export function showSolutions(place, solutions, derived, threshold) {
  onView.disconnect();
  const cards = solutions.map((solution, index) => card(solution, index, derived[index], threshold));
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

function card(solution, index, { reward, firstError }, threshold) {
  const title = el("h3", { id: `solution-${index + 1}` }, `Solution ${index + 1}`);
  if (solution.id !== null) title.append(" ", el("span", { class: "id" }, solution.id));
  const steps = el("ol", { class: "steps" });
  steps.append(...solution.steps.map((text, k) => step(text, solution.step_scores[k], threshold, k === firstError)));
  return el(
    "article",
    { class: "solution", "aria-labelledby": title.id },
    el("header", {}, title, el("span", { class: "vote" }), facts(solution, reward, firstError)),
    steps,
  );
}

function facts(solution, reward, firstError) {
  const told = () => (solution.answer === null ? el("em", {}, "none") : answer(solution.answer));
  const verdict =
    firstError === null
      ? el("span", { class: "verdict fine" }, "✓ no error found")
      : el("span", { class: "verdict wrong" }, `✗ first error: step ${firstError + 1} of ${solution.steps.length}`);
  return el(
    "p",
    { class: "facts" },
    solution.answer === undefined ? null : el("span", {}, "answer ", el("strong", {}, told())),
    el("span", {}, "reward ", el("strong", {}, reward.toFixed(3))),
    verdict,
  );
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

/** What the colours and symbols of the steps mean. */
export function legend(threshold, solutions) {
  const steps = solutions.reduce((sum, solution) => sum + solution.steps.length, 0);
  return [
    el("span", {}, `${counted(solutions.length, "solution")}, ${counted(steps, "step")}. `),
    el("span", { class: "scale", "aria-hidden": "true" }),
    el("span", {}, `0 to 1: how likely a step is right. ✓ at least ${threshold}, ✗ below it: an error.`),
  ];
}
