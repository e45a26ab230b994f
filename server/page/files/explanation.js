// Why a vote elects its answer, in words; what is not special to a strategy follows from `decided_by` and the score.
import { counted } from "./dom.js";
import STRATEGIES from "./strategies.json" with { type: "json" };

/**
 * Sentences, as texts and elements, about one strategy's result in a response `votes` of `/vote/compare`; `name` is the
 * elected answer as an element, `weights` what WRF was taken with.
 */
export function explanation(votes, strategy, name, weights) {
  const outcome = votes.strategies[strategy];
  const { decided_by: decidedBy, margin, tied_answers: tied } = outcome;
  const total = votes.solutions.length;
  const sentences = reason(outcome, total, name, weights);
  if (tied.length > 0) {
    const order = decidedBy === "majority" ? "" : "more candidates win, then the higher mean reward, then ";
    sentences.push(` It is a tie of ${tied.length} answers: ${order}who comes first.`);
  } else if (margin !== null) {
    sentences.push(` It is ahead of the next answer by ${lead(outcome)}.`);
  }
  sentences.push(...judgement(outcome));
  const silent = votes.without_answer_count;
  if (silent > 0) sentences.push(` ${silent} of the ${total} candidates ${silent === 1 ? "has" : "have"} no answer; they can’t win, but count.`);
  return sentences;
}

/** Whether the answer is accepted, in a word or two; nothing if that was not asked. */
export function verdict({ accept }) {
  return typeof accept === "boolean" ? [accept ? "accepted" : "not accepted"] : [];
}

function judgement(outcome) {
  const { calibration } = outcome;
  return verdict(outcome).map((word) => {
    const { pool, problems, date, risk, certainty, threshold, outside } = calibration;
    const beyond = `the candidates lie outside the calibration in ${outside.map((name) => name.replace("_", " ")).join(" and ")}`;
    const needed = threshold === null ? "no certainty is enough" : `it takes ${figure(threshold)}`;
    const why = outside.length > 0 ? beyond : `its certainty is ${figure(certainty)}, ${needed}`;
    const risked = `${Number((100 * risk).toPrecision(6))} %`;
    return ` It is ${word} at a risk of ${risked}, by ${problems} problems of “${pool}” (${date}): ${why}.`;
  });
}

function reason({ strategy, decided_by: decidedBy, candidates, solution_index: elected }, total, name, weights) {
  const [winner] = candidates;
  const share = `${winner.count} of ${total} candidates`;
  if (decidedBy === "unanimous") return [name, " wins without a vote: no candidate has another answer."];
  if (decidedBy === "only_answer") return [name, ` wins without a vote: only ${readable(winner.count, total)}.`];
  if (decidedBy === "majority") {
    return [name, ` has ${share}; ${STRATEGIES[strategy].why_frequency}.`];
  }
  if (decidedBy === "reward") {
    return [`${STRATEGIES[strategy].why_reward}: `, name, `, solution ${elected + 1} with ${figure(winner.max_reward)}.`];
  }
  if (strategy !== "wrf") return [name, ` has the highest ${STRATEGIES[strategy].score}, ${figure(winner.score)} from ${share}.`];
  const { normalized_reward: reward, normalized_frequency: frequency } = winner;
  const { alpha, normalization } = weights;
  const sum = `${alpha.toFixed(2)} × ${figure(reward)} + ${(1 - alpha).toFixed(2)} × ${figure(frequency)} = ${figure(winner.score)}`;
  if (normalization === "share") return [name, ` has the highest α × mean reward + (1 − α) × share of candidates: ${sum}.`];
  return [name, ` has the highest α × reward + (1 − α) × frequency, both normalised: ${sum}.`];
}

/** In how many candidates an answer could be read, in words. */
export function readable(count, total) {
  return `${count} of ${total} candidates ${count === 1 ? "is" : "are"} readable`;
}

/** A number to three places; null where there is none. */
export function figure(value) {
  return value === null ? "none" : value.toFixed(3);
}

/** The margin of a vote that has one, with the measure that it is taken in: votes differ in it. */
export function lead({ strategy, decided_by: decidedBy, margin }) {
  return decidedBy === "majority" ? counted(margin, "candidate") : `${figure(margin)} (${STRATEGIES[strategy].score})`;
}
