// Best-of-N, question by question: lanes, and the one that is chosen with its votes and its candidates.
import { fetchJson } from "./api.js";
import { guarded } from "./complaints.js";
import { byId, counted, el, offer } from "./dom.js";
import { Lanes } from "./lanes.js";
import { answer, typeset } from "./mathtext.js";
import { Results } from "./results.js";
import { beside, nearest, record, records } from "./run.js";

const THRESHOLD = 0.5;

/** The sections of lanes and of the question that is open. */
export class Questions {
  /** `evaluations`: `{path, name, results}` of every evaluation; shown are those with a record for each question. */
  constructor(evaluations, files) {
    this.runs = evaluations
      .map((evaluation) => ({ ...evaluation, solutions: nearest(evaluation.path, "solutions.jsonl", files) }))
      .filter(({ path, solutions }) => solutions && files.includes(beside(path, "elections.jsonl")));
    this.lanes = new Lanes(guarded((id) => this._open(id)));
  }

  async show() {
    if (this.runs.length === 0) return;
    byId("questions").hidden = false;
    this.results = new Results((body, signal) => fetchJson("../vote/compare", body, signal));
    const choose = (path) => this._choosePrm(path);
    offer(byId("judge"), this.runs.map(({ path, name }) => [path, name]), guarded(choose));
    await choose(this.runs[0].path);
  }

  async _choosePrm(path) {
    const elections = await records(beside(path, "elections.jsonl"));
    if (byId("judge").value !== path) return; // another one was chosen meanwhile
    this.run = this.runs.find((run) => run.path === path);
    this.results.ballot.choose({ normalization: "minmax", ...this.run.results });
    this.lanes.show(elections, `${this.run.name}: questions and the votes that are right`);
    if (this.lanes.chosen !== null && this.lanes.has(this.lanes.chosen)) await this._show(this.lanes.chosen);
    else byId("chosen-question").hidden = true;
  }

  async _open(id) {
    await this._show(id);
    byId("chosen-question").scrollIntoView({ block: "start" });
    byId("chosen-question-title").focus({ preventScroll: true });
  }

  async _show(id) {
    const { run } = this;
    this.lanes.mark(id);
    const [question, judged] = await Promise.all([record(run.solutions, id), record(beside(run.path, "candidates.jsonl"), id)]);
    if (run !== this.run || id !== this.lanes.chosen) return; // another one was chosen meanwhile
    byId("chosen-question").hidden = false;
    byId("chosen-question-title").textContent = `Question ${id}`;
    byId("problem").textContent = question.problem;
    typeset([byId("problem")]);
    const right = judged.correct.filter(Boolean).length;
    const answered = judged.classes.some((name) => name !== null);
    const rewarded = judged.rewards.some((reward) => reward !== null);
    byId("gold").replaceChildren(
      "Gold answer ",
      el("strong", {}, answer(question.gold ?? question.answer)),
      `, given by ${right} of ${counted(judged.correct.length, "candidate")}. PRM: ${run.name}.`,
      answered ? "" : " No candidate has an answer, so no vote elects one.",
      answered && !rewarded ? " No candidate has a reward, so the votes are not compared." : "",
    );
    const solutions = candidates(question, judged, run.results.logistic);
    this.results.showScores("", solutions, THRESHOLD, voteRequest(question.problem, solutions, judged.classes));
    if (answered && rewarded) await this.results.vote();
  }
}

function candidates({ solutions }, { correct, rewards, scores }, logistic) {
  // older files have the gold answer as `gold` and a candidate's own as `answer`
  return solutions.map(({ steps, answer, predicted = answer }, k) => ({
    id: null,
    steps,
    answer: predicted,
    correct: correct[k],
    reward: logistic && rewards[k] !== null ? 1 / (1 + Math.exp(-rewards[k])) : rewards[k],
    step_scores: steps.length > 0 && scores?.[k]?.length === steps.length ? scores[k] : null,
    unscored: scores?.[k] === null ? { code: steps.length > 0 ? "solution_too_long" : "blank" } : null,
  }));
}

/**
 * The votes by the rewards and the classes of equal answers that the run recorded. A reward is sent as the score of a
 * single step; a candidate without one is sent blank, so that its answer alone counts.
 */
function voteRequest(problem, solutions, classes) {
  const recordedAnswer = (k) => (classes[k] === null ? "" : solutions[classes.indexOf(classes[k])].answer);
  const candidate = ({ reward }, k) => {
    return { answer: recordedAnswer(k), ...(reward === null ? { text: "" } : { steps: ["…"], step_scores: [reward] }) };
  };
  return { problem, solutions: solutions.map(candidate) };
}
