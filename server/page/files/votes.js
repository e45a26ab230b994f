// The votes: grouped by the answer that they elect, the chosen one explained by its classes of equal answers.
import { byId, counted, el } from "./dom.js";
import { answer } from "./mathtext.js";
import STRATEGIES from "./strategies.json" with { type: "json" };

/** The vote that is explained, and whether somebody chose it. */
export const choice = { strategy: "wrf", named: false };

/** How WRF is to weigh. */
export function weights() {
  return { alpha: byId("alpha").valueAsNumber, normalization: byId("normalization").value };
}

/** Chooses what is given and possible; the rest stays. */
export function choose({ strategy, alpha, normalization }) {
  if (Object.hasOwn(STRATEGIES, strategy ?? "")) Object.assign(choice, { strategy, named: true });
  if (alpha >= 0 && alpha <= 1) byId("alpha").value = String(alpha);
  const known = [...byId("normalization").options].some(({ value }) => value === normalization);
  if (known) byId("normalization").value = normalization;
  showAlpha();
}

/** Chooses a strategy as long as nobody has named one. */
export function suggest(strategy) {
  if (!choice.named && Object.hasOwn(STRATEGIES, strategy)) choice.strategy = strategy;
}

/** Shows α while it is moved. */
export function showAlpha() {
  byId("alpha").previousElementSibling.value = weights().alpha.toFixed(2);
}

/**
 * Shows a response of `/vote/compare`, null for none, that was requested with the `weights` of WRF. `onChoice` is called
 * when another vote is chosen, `onShow` with the first member of the class whose solutions are to be shown.
 */
export function showVotes({ votes, weights: by, byMajority }, onChoice, onShow) {
  for (const id of ["sides", "reasons"]) byId(id).hidden = votes === null;
  if (votes === null) return;
  if (!Object.hasOwn(votes.strategies, choice.strategy)) choice.strategy = "majority";
  const explain = () => explainVote(votes, { ...by, outside: byMajority }, onShow);
  const focused = document.activeElement?.name === "strategy";
  showSides(votes, ({ target }) => {
    Object.assign(choice, { strategy: target.value, named: true });
    explain();
    onChoice();
  });
  if (focused) byId("sides").querySelector(":checked").focus();
  explain();
}

// votes that elect the same answer are one card: that of the chosen vote first, then the largest
function showSides({ strategies, solutions }, onChange) {
  const names = Object.keys(STRATEGIES).filter((name) => Object.hasOwn(strategies, name));
  const sides = [...Map.groupBy(names, (name) => strategies[name].candidates[0].members[0]).values()];
  const chosen = (side) => Number(side.includes(choice.strategy));
  sides.sort((one, other) => chosen(other) - chosen(one) || other.length - one.length);
  const cards = sides.map((side) => {
    const ties = side.filter((name) => strategies[name].tie).length;
    const by = names.length === 1 ? "elected" : `elected by ${side.length === names.length ? "all" : `${side.length} of`} ${names.length} votes`;
    const number = ties === side.length ? "" : `${ties} of them `;
    const tied = ties === 0 ? null : el("strong", { class: "tie" }, `${number}by a tie`);
    const flawed = side.every((name) => strategies[name].supported === false);
    const unsupported = flawed ? el("strong", { class: "tie" }, ", with an error in each solution") : null;
    const head = el("p", { class: "head" }, strong(strategies[side[0]].answer), " ", by, tied && ", ", tied, unsupported);
    return el("div", { class: "side card" }, head, ...side.map((name) => tile(strategies[name], solutions.length, onChange)));
  });
  byId("sides").replaceChildren(el("legend", { class: "unseen" }, "Votes"), ...cards);
}

function tile(outcome, total, onChange) {
  const { strategy, tied_answers: tied } = outcome;
  const checked = strategy === choice.strategy;
  const radio = el("input", { type: "radio", name: "strategy", value: strategy, checked, onchange: onChange });
  const how = [tied.length > 0 ? `tie of ${tied.length}` : leads(outcome, total), ...verdict(outcome)].join("; ");
  const name = el("span", { class: "name" }, STRATEGIES[strategy].title);
  return el("label", { class: "tile" }, radio, name, " ", el("span", { class: tied.length > 0 ? "how tie" : "how" }, how));
}

function leads(outcome, total) {
  const { candidates, margin, decided_by: decidedBy } = outcome;
  if (margin !== null) return `lead ${lead(outcome)}`;
  if (candidates.length > 1) return "no other answer can win";
  return decidedBy === "only_answer" ? readable(candidates[0].count, total) : "no other answer";
}

// ---- why a vote elects its answer

function explainVote(votes, by, onShow) {
  const outcome = votes.strategies[choice.strategy];
  const { candidates, tied_answers: tied } = outcome;
  const [{ answer: elected }] = candidates;
  byId("why-title").replaceChildren(`Why ${STRATEGIES[choice.strategy].title} elects `, strong(elected));
  byId("explanation").replaceChildren(...explanation(votes, outcome, by));
  byId("weights").hidden = choice.strategy !== "wrf";
  const classes = candidates.map((candidate, rank) => {
    const { answer: text, count, members } = candidate;
    const mark = rank === 0 ? "★ elected" : rank < tied.length ? "tied" : "";
    const onclick = () => onShow(members[0]);
    const show = el("button", { type: "button", class: "quiet", onclick }, count === 1 ? "Show it" : `Show all ${count}`);
    show.append(el("span", { class: "unseen" }, ` with the answer ${text}`));
    const head = el("div", { class: "row" }, strong(text), el("span", { class: "vote" }, mark), show);
    return el("li", { class: rank === 0 ? "class card winner" : "class card" }, head, measures(votes, outcome, candidate, by));
  });
  byId("classes").replaceChildren(...classes);
}

function explanation({ solutions, without_answer_count: silent }, outcome, by) {
  const { decided_by: decidedBy, margin, tied_answers: tied, supported, notes } = outcome;
  const sentences = reason(outcome, solutions.length, by);
  if (tied.length > 0) {
    const checked = by.outside && solutions.some(({ step_scores: scores }) => scores !== null);
    const fewest = checked ? "fewer solutions with a false equation win, then " : "";
    const order = decidedBy === "majority" ? fewest : "more candidates win, then the higher mean reward, then ";
    sentences.push(` It is a tie of ${tied.length} answers: ${order}who comes first.`);
  } else if (margin !== null) {
    sentences.push(` It is ahead of the next answer by ${lead(outcome)}.`);
  }
  if (supported === false) {
    const other = notes === undefined ? "" : ", but not in each with another answer";
    sentences.push(el("strong", {}, ` There is an error in each of its solutions${other}.`));
  }
  for (const word of verdict(outcome)) sentences.push(judgement(word, outcome.calibration));
  const have = silent === 1 ? "has" : "have";
  if (silent > 0) sentences.push(` ${silent} of the ${solutions.length} candidates ${have} no answer; they can’t win, but count.`);
  return sentences;
}

// what is not special to a strategy follows from `decided_by` and the name of its score
function reason({ strategy, decided_by: decidedBy, candidates, solution_index: elected }, total, { alpha, normalization }) {
  const [{ answer: text, count, max_reward: best, score, ...winner }] = candidates;
  const { score: measure, why_frequency: often, why_reward: high } = STRATEGIES[strategy];
  const name = strong(text);
  const share = `${count} of ${total} candidates`;
  if (decidedBy === "unanimous") return [name, " wins without a vote: no candidate has another answer."];
  if (decidedBy === "only_answer") return [name, ` wins without a vote: only ${readable(count, total)}.`];
  if (decidedBy === "majority") return [name, ` has ${share}; ${often}.`];
  if (decidedBy === "reward") return [`${high}: `, name, `, solution ${elected + 1} with ${figure(best)}.`];
  if (strategy !== "wrf") return [name, ` has the highest ${measure}, ${figure(score)} from ${share}.`];
  const [reward, frequency] = [figure(winner.normalized_reward), figure(winner.normalized_frequency)];
  const sum = `${alpha.toFixed(2)} × ${reward} + ${(1 - alpha).toFixed(2)} × ${frequency} = ${figure(score)}`;
  if (normalization === "share") return [name, ` has the highest α × mean reward + (1 − α) × share of candidates: ${sum}.`];
  return [name, ` has the highest α × reward + (1 − α) × frequency, both normalised: ${sum}.`];
}

/** Whether the answer is accepted, in a word or two; nothing if that was not asked. */
function verdict({ accept }) {
  return typeof accept === "boolean" ? [accept ? "accepted" : "not accepted"] : [];
}

function judgement(word, { pool, problems, date, risk, certainty, threshold, outside }) {
  const beyond = `the candidates lie outside the calibration in ${outside.map((name) => name.replace("_", " ")).join(" and ")}`;
  const needed = threshold === null ? "no certainty is enough" : `${figure(threshold)} is needed`;
  const why = outside.length > 0 ? beyond : `its certainty is ${figure(certainty)}, ${needed}`;
  const risked = `${Number((100 * risk).toPrecision(6))} %`;
  return ` It is ${word} at a risk of ${risked}, by ${problems} problems of “${pool}” (${date}): ${why}.`;
}

// what the strategy compares: of WRF its two parts, of votes by the highest reward that; `outside`: rewards mean nothing
function measures({ solutions }, { strategy, candidates }, candidate, { normalization, outside }) {
  const { count, mean_reward: mean, max_reward: best, score } = candidate;
  const { score: title, decided_by: decidedBy } = STRATEGIES[strategy];
  const rows = [measure("candidates", count / solutions.length, `${count} of ${solutions.length}`)];
  if (strategy !== "majority" || !outside) rows.push(measure("mean reward", mean));
  // the score of a vote by the highest reward is a frequency where that alone decides
  if (decidedBy === "reward") rows.push(measure(title, best));
  else if (strategy === "wrf") {
    if (normalization === "minmax") {
      rows.push(measure("normalised reward", candidate.normalized_reward));
      rows.push(measure("normalised frequency", candidate.normalized_frequency));
    }
    rows.push(measure(title, score));
  } else if (strategy !== "majority") {
    const highest = Math.max(...candidates.map((each) => each.score));
    rows.push(measure(title, highest > 0 ? score / highest : 0, figure(score)));
  }
  return el("dl", {}, ...rows);
}

/** A number with its name, and a bar that a share in [0, 1] fills. */
function measure(name, value, text = figure(value)) {
  const bar = el("progress", { value: value ?? 0, "aria-hidden": "true" });
  return el("div", {}, el("dt", {}, name), el("dd", {}, bar, " ", text));
}

function strong(text) {
  return el("strong", {}, answer(text));
}

function readable(count, total) {
  return `${count} of ${total} candidates ${count === 1 ? "is" : "are"} readable`;
}

function figure(value) {
  return value === null ? "none" : value.toFixed(3);
}

// the margin of a vote that has one, with the measure that it is taken in: votes differ in it
function lead({ strategy, decided_by: decidedBy, margin }) {
  return decidedBy === "majority" ? counted(margin, "candidate") : `${figure(margin)} (${STRATEGIES[strategy].score})`;
}
