// The page of a run: what `training lab` or `training evaluate` left in a directory.
import { ask } from "./api.js";
import { chart } from "./chart.js";
import { bar, byId, counted, el, offer, table } from "./dom.js";
import { Problem } from "./errors.js";
import { typeset } from "./mathtext.js";
import { Questions } from "./questions.js";
import { beside, json, nameOf, picture, prmOf, records } from "./run.js";
import { firstError, reward } from "./scores.js";
import { showSolutions } from "./solutions.js";
import { STRATEGIES } from "./votes.js";

const THRESHOLD = 0.5;

const inPercent = (share) => (100 * share).toFixed(1);

// ---- telling

function complain(error) {
  const problem = error instanceof Problem ? error : new Problem("unexpected", { detail: String(error) });
  const told = problem.code === "unauthorized" ? "Enter the API key on the page of scores and votes, and come back." : problem.sentence;
  byId("status").textContent = "";
  byId("problem-details").replaceChildren(el("p", { class: "complaint" }, told));
}

/** An action whose errors are told. */
function guarded(action) {
  return async (...given) => {
    try {
      byId("problem-details").replaceChildren();
      await action(...given);
    } catch (error) {
      complain(error);
    }
  };
}

// ---- best of N

function showCurves(results) {
  if (results.length === 0) return;
  byId("curves").hidden = false;
  const show = (path) => {
    const { told, name } = results.find((own) => own.path === path);
    const curves = [...STRATEGIES.map((own) => [own, told.accuracy[own]]), ["any right", told.any_right]];
    const sizes = Object.keys(told.any_right).map(Number).sort((one, other) => one - other);
    const title = `${name}: accuracy against N over ${counted(told.questions, "question")}`;
    const points = ([vote, own]) => ({ name: vote, points: sizes.map((n) => [n, own[n].mean]) });
    byId("chart").replaceChildren(chart(curves.map(points), title));
    const cell = ({ mean, low, high }) => `${inPercent(mean)} (${inPercent(low)}–${inPercent(high)})`;
    const rows = curves.map(([vote, own]) => [vote, ...sizes.map((n) => cell(own[n]))]);
    const columns = ["vote", ...sizes.map((n) => `N = ${n}`)];
    byId("chart-table").replaceChildren(table(`${title}, in % with 95 % intervals`, columns, rows));
  };
  offer(byId("curve"), results.map(({ path, name }) => [path, name]), show);
  show(results[0].path);
}

// ---- first errors: what a PRM says of solutions whose first wrong step is known

class FirstErrors {
  constructor(results, files) {
    this.files = files;
    this.benchmarks = files.filter((path) => /(^|\/)benchmark\/[^/]+\.jsonl$/.test(path));
    this.runs = results.filter(({ path }) => this._subsets(path).length > 0);
  }

  async show() {
    if (this.runs.length === 0) return;
    byId("errors").hidden = false;
    offer(byId("prm"), this.runs.map(({ path, name }) => [path, name]), guarded(() => this._choosePrm()));
    await this._choosePrm();
  }

  _subsets(results) {
    return this.benchmarks.filter((path) => this.files.includes(beside(results, nameOf(path))));
  }

  async _choosePrm() {
    const name = (path) => nameOf(path).replace(".jsonl", "");
    const before = byId("subset").value;
    const subsets = this._subsets(byId("prm").value);
    offer(byId("subset"), subsets.map((path) => [path, name(path)]), guarded(() => this._chooseSubset()));
    if (subsets.includes(before)) byId("subset").value = before;
    await this._chooseSubset();
  }

  async _chooseSubset() {
    const path = byId("subset").value;
    const [rows, scores] = await Promise.all([
      records(path),
      records(beside(byId("prm").value, nameOf(path))),
    ]);
    const scoreOf = new Map(scores.map((own) => [own.id, own.scores]));
    this.questions = new Map();
    for (const row of rows) {
      const own = this.questions.get(row.problem) ?? [];
      this.questions.set(row.problem, [...own, { ...row, step_scores: scoreOf.get(row.id) ?? null }]);
    }
    const before = byId("question").value;
    const problems = [...this.questions.keys()];
    offer(byId("question"), problems.map((own, k) => [own, `${k + 1}. ${own.slice(0, 80)}`]), () => this._chooseQuestion());
    if (problems.includes(before)) byId("question").value = before;
    this._chooseQuestion();
  }

  _chooseQuestion() {
    const problem = byId("question").value;
    byId("errors-asked").textContent = problem;
    typeset([byId("errors-asked")]);
    const rows = this.questions.get(problem);
    const scored = rows.filter((own) => own.step_scores !== null);
    const derived = scored.map(({ step_scores: own }) => ({ reward: reward(own, "min"), firstError: firstError(own, THRESHOLD) }));
    showSolutions(byId("errors-solutions"), scored, derived, THRESHOLD);
    const truths = scored.map(({ label }, k) => truth(k, label, derived[k].firstError));
    const unread = rows.length - scored.length;
    if (unread > 0) truths.push(el("li", {}, `${counted(unread, "solution")} did not fit the model.`));
    byId("truths").replaceChildren(...truths);
  }
}

function truth(index, label, found) {
  const said = (step) => (step === null || step < 0 ? "no wrong step" : `step ${step + 1} is the first wrong one`);
  const agrees = (found ?? -1) === label;
  const text = agrees ? `✓ the PRM is right: ${said(label)}` : `✗ in truth ${said(label)}; the PRM says ${said(found)}`;
  return el("li", { class: agrees ? "fine" : "wrong" }, `Solution ${index + 1}: ${text}.`);
}

// ---- cost

function showCost({ finding, baseline, per_solution: shares, tables }) {
  byId("cost").hidden = false;
  byId("cost-finding").textContent = `${finding}.`;
  const panels = Object.values(shares);
  const most = panels.map((own) => Math.max(...Object.values(own), Number.MIN_VALUE));
  const cost = (own, k) => {
    const number = baseline === null ? own.toFixed(1) : `${(100 * own).toFixed(0)} %`;
    return el("span", { class: "share" }, el("span", { class: "number" }, number), bar([own / most[k]], "reward"));
  };
  const rows = Object.keys(panels[0]).map((name) => [name, ...panels.map((own, k) => cost(own[name], k))]);
  const title = baseline === null ? "Rollouts per solution" : `Rollouts per solution, as shares of ${baseline}`;
  byId("cost-tables").replaceChildren(
    table(title, ["run", ...Object.keys(shares)], rows),
    ...tables.map((own) => folded(own.title, table(own.title, own.columns, own.rows))),
  );
}

// ---- findings and figures

function folded(title, content) {
  return el("details", {}, el("summary", {}, title), content);
}

function showFindings(findings) {
  byId("findings").hidden = findings.length === 0;
  byId("findings-list").replaceChildren(
    ...findings.map(({ question, answer, columns, rows }) => {
      const own = folded("Table", table(question, columns, rows));
      return el("article", {}, el("h3", {}, question), el("p", { class: "told" }, answer), own);
    }),
  );
}

async function showFigures(paths) {
  byId("figures").hidden = paths.length === 0;
  const figures = paths.map(async (path) => {
    const name = nameOf(path).replace(".png", "").replaceAll("-", " ");
    const image = el("img", { src: await picture(path), alt: `Figure: ${name}; its numbers stand in the tables` });
    return el("figure", {}, image, el("figcaption", {}, name));
  });
  byId("figures-list").replaceChildren(...(await Promise.all(figures)));
}

// ---- the whole

async function show() {
  const { name, files } = await ask("../report");
  byId("run").textContent = name === null ? "a report" : `report of ${name}`;
  const results = await Promise.all(
    files
      .filter((path) => nameOf(path) === "results.json")
      .map(async (path) => ({ path, name: prmOf(path) || name, told: await json(path) })),
  );
  const votes = results.filter(({ told }) => told.accuracy !== undefined);
  showCurves(votes);
  await new Questions(votes, files, guarded).show();
  await new FirstErrors(results.filter(({ told }) => told.fixed !== undefined), files).show();
  if (files.includes("cost.json")) showCost(await json("cost.json"));
  showFindings(files.includes("findings.json") ? await json("findings.json") : []);
  await showFigures(files.filter((path) => /^figures\/[^/]+\.png$/.test(path)));
  const empty = byId("main").querySelectorAll("section:not([hidden])").length === 0;
  byId("status").textContent = empty
    ? "There is nothing to show. Start the server with --report and the directory of a training lab or evaluate run."
    : "";
}

await guarded(show)();
