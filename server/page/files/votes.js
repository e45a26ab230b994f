// The votes: what the chosen one elects, in a sentence and in figures, and what the others do.
import { byId, counted, el, listed, percent } from "./dom.js";
import { answer } from "./mathtext.js";
import STRATEGIES from "./strategies.json" with { type: "json" };

/** First mistakes, tied answers and links to solutions beyond which a number stands for all. */
const NAMED = 4;

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
 * Shows a response of `/vote/compare`, null for none, that was requested with the `weights` of WRF; `solutions`: as they
 * were scored; `byMajority`: rewards mean nothing. `onChoice` is called when another vote is chosen.
 */
export function showVotes(shown, onChoice) {
  const { votes } = shown;
  for (const id of ["ballot", "votes", "classes"]) byId(id).hidden = votes === null;
  if (votes === null) return;
  if (!Object.hasOwn(votes.strategies, choice.strategy)) choice.strategy = "majority";
  const focused = document.activeElement?.name === "strategy";
  const names = Object.keys(STRATEGIES).filter((name) => Object.hasOwn(votes.strategies, name));
  const tiles = names.map((name) => {
    return tile(votes.strategies[name], () => {
      Object.assign(choice, { strategy: name, named: true });
      explain(shown);
      onChoice();
    });
  });
  byId("votes").replaceChildren(el("legend", {}, names.length === 1 ? "The vote" : `What ${names.length} votes elect`), ...tiles);
  if (focused) byId("votes").querySelector(":checked").focus();
  explain(shown);
}

function tile(outcome, onchange) {
  const { strategy: name, tie } = outcome;
  const radio = el("input", { type: "radio", name: "strategy", value: name, checked: name === choice.strategy, onchange });
  const said = [...(tie ? ["tie"] : []), ...verdict(outcome)].join(", ");
  const { title } = STRATEGIES[name];
  const how = said === "" ? null : el("span", { class: tie ? "how tie" : "how" }, said);
  return el("label", { class: "tile", title }, radio, el("code", {}, name), el("span", { class: "title" }, title), how, strong(outcome.answer));
}

function explain(shown) {
  const { votes, solutions, byMajority } = shown;
  const outcome = votes.strategies[choice.strategy];
  const { candidates, tied_answers: tied, supported, strategy } = outcome;
  byId("winner").replaceChildren(strong(outcome.answer), ...tags(outcome));
  byId("story").replaceChildren(...story(shown, outcome));
  byId("because").replaceChildren(...(byMajority ? [] : comparison(outcome)));
  if (supported === false) {
    const other = outcome.notes === undefined ? "" : ", but not in each with another answer";
    byId("because").append(el("strong", {}, ` There is an error in each of its solutions${other}.`));
  }
  for (const word of verdict(outcome)) byId("because").append(judgement(word, outcome.calibration));
  byId("why").firstElementChild.textContent = `How ${strategy} decides`;
  byId("explanation").replaceChildren(...explanation(votes, outcome, shown));
  byId("weights").hidden = strategy !== "wrf";
  const rows = candidates.map((candidate) => measures(outcome, candidate, shown));
  const heads = rows[0].map(([name]) => el("th", { scope: "col" }, name));
  byId("measures").hidden = heads.length === 0;
  const cells = (row, k) => [el("th", { scope: "row" }, answer(candidates[k].answer)), ...row.map(([, text]) => el("td", {}, text))];
  byId("measures").replaceChildren(
    el("tr", {}, el("th", { scope: "col" }, "answer"), ...heads),
    ...rows.map((row, k) => el("tr", {}, ...cells(row, k))),
  );
  byId("classes").replaceChildren(...candidates.map((candidate, rank) => {
    const mark = rank === 0 ? "★ elected" : rank < tied.length ? "tied" : "";
    return answerCard(candidate, mark, solutions.length, byMajority);
  }));
}

function tags({ supported, tie, ...outcome }) {
  const marks = verdict(outcome).map((word) => ["", word]);
  if (tie) marks.push(["tie", "by a tie"]);
  if (supported === true) marks.push(["", "✓ supported"]);
  if (supported === false) marks.push(["tie", "✗ unsupported"]);
  return marks.map(([name, text]) => el("span", { class: `tag ${name}` }, text));
}

function answerCard({ answer: text, count, members, mean_reward: mean }, mark, total, byMajority) {
  const links = members.slice(0, NAMED).map((index) => el("a", { href: `#solution-${index + 1}` }, `${index + 1}`));
  const more = count > NAMED ? [`${count - NAMED} more`] : [];
  const where = el("span", { class: "how" }, count === 1 ? "solution " : "solutions ", ...listed([...links, ...more]));
  const bars = [["candidates", count / total, `${count} of ${total}`]];
  if (!byMajority) bars.push(["mean reward", mean ?? 0, percent(mean)]);
  const rows = bars.map(([name, value, said]) => {
    const bar = el("progress", { value, "aria-hidden": "true" });
    return el("div", {}, el("dt", {}, name), el("dd", {}, bar, " ", said));
  });
  const head = el("div", { class: "row" }, strong(text), el("span", { class: "vote" }, mark), where);
  return el("li", { class: "class" }, head, el("dl", {}, ...rows));
}

// ---- why a vote elects its answer

/** What happened, in two or three sentences: the majority, what the steps make of it, where solutions go wrong. */
function story({ votes, solutions, threshold, byMajority }, outcome) {
  const { majority } = votes.strategies;
  const total = counted(solutions.length, "candidate");
  const elected = strong(outcome.answer);
  const [{ count, members }] = majority.candidates;
  const said = [];
  if (majority.candidates.length === 1) {
    const all = solutions.length === 1 ? "it answers " : "all answer ";
    said.push(`${total}: `, count === solutions.length ? all : `only ${count} of them can be read, `, elected, ".");
  } else {
    const tied = majority.tied_answers;
    const names = tied.length > NAMED ? [counted(tied.length, "answer")] : listed(tied.map(answer));
    if (majority.tie) said.push(`${total}: the majority is tied between `, ...names, ". ");
    else said.push(`${total}: the majority, ${count} of them, answers `, strong(majority.answer), ". ");
    const others = outcome.candidates[0].members[0] !== members[0];
    if (outcome.strategy === "majority") {
      const checked = byMajority && solutions.some(({ step_scores: scores }) => scores !== null);
      if (majority.tie) said.push(checked ? "False equations count against an answer: " : "The first candidate decides: ", elected, ".");
    } else if (outcome.tie) said.push("The steps leave a tie, and the first candidate decides: ", elected, ".");
    else if (majority.tie) said.push("The steps decide: ", elected, ".");
    else said.push(others ? "The steps elect another: " : "The steps agree: ", elected, ".");
  }
  return [...said, ` ${mistakes(solutions, threshold)}`];
}

function mistakes(solutions, threshold) {
  const scored = solutions.filter(({ step_scores: scores }) => scores !== null);
  const found = solutions.flatMap(({ step_scores: scores }, index) => {
    const step = (scores ?? []).findIndex((score) => score !== null && score < threshold);
    return step < 0 ? [] : [{ step: step + 1, solution: index + 1 }];
  });
  if (scored.length === 0) return "";
  if (found.length === 0) return "No step is marked as a mistake.";
  if (found.length > NAMED) return `${found.length} of ${counted(solutions.length, "solution")} have a mistake.`;
  const [steps, places] = ["step", "solution"].map((name) => listed(found.map((each) => String(each[name]))).join(""));
  return found.length === 1 ? `First mistake: step ${steps} of solution ${places}.` : `First mistakes: steps ${steps} of solutions ${places}.`;
}

/** The two foremost answers beside each other. */
function comparison({ candidates, strategy }) {
  const [name, field] = STRATEGIES[strategy].decided_by === "reward" ? ["highest", "max_reward"] : ["mean", "mean_reward"];
  const [first, second] = candidates;
  if (second === undefined || first[field] === null || second[field] === null) return [];
  const both = [`${counted(first.count, "candidate")} and a ${name} reward of ${percent(first[field])}`, `${second.count} and ${percent(second[field])}`];
  return [strong(first.answer), ` has ${both[0]}; `, strong(second.answer), ` has ${both[1]}.`];
}

function explanation({ solutions, without_answer_count: silent }, outcome, { weights: by, byMajority }) {
  const { decided_by: decidedBy, margin, tied_answers: tied } = outcome;
  const sentences = reason(outcome, solutions.length, by);
  if (tied.length > 0) {
    const checked = byMajority && solutions.some(({ step_scores: scores }) => scores !== null);
    const fewest = checked ? "fewer solutions with a false equation win, then " : "";
    const order = decidedBy === "majority" ? fewest : "more candidates win, then the higher mean reward, then ";
    sentences.push(` It is a tie between ${tied.length} answers: ${order}the first candidate wins.`);
  } else if (margin !== null) {
    sentences.push(` It leads the next answer by ${lead(outcome)}.`);
  }
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
  if (decidedBy === "only_answer") return [name, ` wins without a vote: only ${share} ${count === 1 ? "is" : "are"} readable.`];
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
  const risked = `${Number((100 * risk).toPrecision(6))}%`;
  return ` It is ${word} at a risk of ${risked}, by ${problems} problems of “${pool}” (${date}): ${why}.`;
}

// what the strategy compares beside numbers of candidates: of WRF its two parts, of votes by the highest reward that
function measures({ strategy }, candidate, { weights: { normalization }, byMajority }) {
  const { score: title, decided_by: decidedBy } = STRATEGIES[strategy];
  const rows = byMajority ? [] : [["mean reward", figure(candidate.mean_reward)]];
  if (strategy === "wrf" && normalization === "minmax") {
    rows.push(["normalised reward", figure(candidate.normalized_reward)]);
    rows.push(["normalised frequency", figure(candidate.normalized_frequency)]);
  }
  // the score of a vote by the highest reward is a frequency where that alone decides
  if (strategy !== "majority") rows.push([title, figure(decidedBy === "reward" ? candidate.max_reward : candidate.score)]);
  return rows;
}

function strong(text) {
  return el("strong", {}, answer(text));
}

function figure(value) {
  return value === null ? "none" : value.toFixed(3);
}

// the margin of a vote that has one, with the measure that it is taken in: votes differ in it
function lead({ strategy, decided_by: decidedBy, margin }) {
  return decidedBy === "majority" ? counted(margin, "candidate") : `${figure(margin)} (${STRATEGIES[strategy].score})`;
}
