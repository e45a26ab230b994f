// Best-of-N, question by question: lanes, and the one that is chosen with its votes and its candidates.
import { byId, counted, el, offer } from "./dom.js";
import { Lanes } from "./lanes.js";
import { answer, typeset } from "./mathtext.js";
import { Results } from "./results.js";
import { beside, nearest, record, records } from "./run.js";

const WEIGHTS = { aggregate: "min", threshold: 0.5 };

/** The sections of lanes and of the question that is open; `guarded` wraps actions whose errors are told. */
export class Questions {
  /** `results`: `{path, name, told}` of every evaluation; shown are those with a record for each question. */
  constructor(results, files, guarded) {
    const complete = results.map((own) => ({ ...own, solutions: nearest(own.path, "solutions.jsonl", files) }));
    this.runs = complete.filter(({ path, solutions }) => solutions && files.includes(beside(path, "elections.jsonl")));
    this.guarded = guarded;
    this.lanes = new Lanes(guarded((id) => this._open(id)));
  }

  async show() {
    if (this.runs.length === 0) return;
    byId("questions").hidden = false;
    this.results = new Results();
    const choose = (path) => this._choosePrm(path);
    offer(byId("judge"), this.runs.map(({ path, name }) => [path, name]), this.guarded(choose));
    await choose(this.runs[0].path);
  }

  async _choosePrm(path) {
    const elections = await records(beside(path, "elections.jsonl"));
    if (byId("judge").value !== path) return; // another one was chosen meanwhile
    this.run = this.runs.find((own) => own.path === path);
    this.results.ballot.alpha = this.run.told.alpha;
    this.results.ballot.normalization = this.run.told.normalization ?? "minmax";
    this.lanes.show(elections, `${this.run.name}: questions and the votes that are right`);
    if (this.lanes.chosen !== null && this.lanes.has(this.lanes.chosen)) await this._show(this.lanes.chosen);
    else byId("asked-one").hidden = true;
  }

  async _open(id) {
    await this._show(id);
    byId("asked-one").scrollIntoView({ block: "start" });
    byId("asked-one-title").focus({ preventScroll: true });
  }

  async _show(id) {
    const { run } = this;
    this.lanes.mark(id);
    const [asked, judged] = await Promise.all([record(run.solutions, id), record(beside(run.path, "candidates.jsonl"), id)]);
    if (run !== this.run || id !== this.lanes.chosen) return; // another one was chosen meanwhile
    byId("asked-one").hidden = false;
    byId("asked-one-title").textContent = `Question ${id}`;
    byId("problem").textContent = asked.problem;
    typeset([byId("problem")]);
    const right = judged.correct.filter(Boolean).length;
    const nobody = judged.classes.every((name) => name === null);
    byId("gold").replaceChildren(
      "Gold answer ",
      el("strong", {}, answer(asked.gold)),
      `, given by ${right} of ${counted(judged.correct.length, "candidate")}. PRM: ${run.name}.`,
      nobody ? " No candidate has an answer, so no vote elects one." : "",
    );
    this.results.showScores("", candidates(asked, judged, run.told.logistic), WEIGHTS);
    if (!nobody) this.results.showVotes(judged.classes);
  }
}

function candidates({ solutions }, { correct, rewards, scores }, logistic) {
  return solutions.map(({ steps, answer: own }, k) => ({
    id: null,
    steps,
    answer: own,
    correct: correct[k],
    reward: logistic && rewards[k] !== null ? 1 / (1 + Math.exp(-rewards[k])) : rewards[k],
    step_scores: steps.length > 0 && scores?.[k]?.length === steps.length ? scores[k] : null,
    unscored: scores?.[k] === null ? { code: steps.length > 0 ? "solution_too_long" : "blank" } : null,
  }));
}
