// The page of a run: what `training lab` or `training evaluate` left in a directory.
import { fetchJson } from "./api.js";
import { chart } from "./chart.js";
import { guarded } from "./complaints.js";
import { bar, byId, counted, el, offer, table } from "./dom.js";
import { typeset } from "./mathtext.js";
import { Questions } from "./questions.js";
import { beside, json, nameOf, picture, prmOf, records } from "./run.js";
import { firstError, showSolutions } from "./solutions.js";

const THRESHOLD = 0.5;

const inPercent = (share) => (100 * share).toFixed(1);

// ---- best of N

function showCurves(evaluations) {
  if (evaluations.length === 0) return;
  byId("curves").hidden = false;
  const show = (path) => {
    const { results, name } = evaluations.find((evaluation) => evaluation.path === path);
    const curves = Object.entries({ ...results.accuracy, "any right": results.any_right });
    const sizes = Object.keys(results.any_right).map(Number).sort((one, other) => one - other);
    const title = `${name}: accuracy against N over ${counted(results.questions, "question")}`;
    const points = ([vote, shares]) => ({ name: vote, points: sizes.map((n) => [n, shares[n].mean]) });
    byId("chart").replaceChildren(chart(curves.map(points), title));
    const cell = ({ mean, low, high }) => `${inPercent(mean)} (${inPercent(low)}–${inPercent(high)})`;
    const rows = curves.map(([vote, shares]) => [vote, ...sizes.map((n) => cell(shares[n]))]);
    const columns = ["vote", ...sizes.map((n) => `N = ${n}`)];
    byId("chart-table").replaceChildren(table(`${title}, in % with 95 % intervals`, columns, rows));
  };
  offer(byId("curve"), evaluations.map(({ path, name }) => [path, name]), show);
  show(evaluations[0].path);
}

// ---- first errors: what a PRM says of solutions whose first wrong step is known

class FirstErrors {
  constructor(evaluations, files) {
    this.files = files;
    this.benchmarks = files.filter((path) => /(^|\/)benchmark\/[^/]+\.jsonl$/.test(path));
    this.runs = evaluations.filter(({ path }) => this._subsets(path).length > 0);
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
    const subsets = this._subsets(byId("prm").value);
    offer(byId("subset"), subsets.map((path) => [path, name(path)]), guarded(() => this._chooseSubset()));
    await this._chooseSubset();
  }

  async _chooseSubset() {
    const path = byId("subset").value;
    const [rows, scores] = await Promise.all([
      records(path),
      records(beside(byId("prm").value, nameOf(path))),
    ]);
    const scoresOf = new Map(scores.map(({ id, scores: stepScores }) => [id, stepScores]));
    this.questions = new Map();
    for (const row of rows) {
      const before = this.questions.get(row.problem) ?? [];
      this.questions.set(row.problem, [...before, { ...row, step_scores: scoresOf.get(row.id) ?? null }]);
    }
    const options = [...this.questions.keys()].map((problem, k) => [problem, `${k + 1}. ${problem.slice(0, 80)}`]);
    offer(byId("question"), options, () => this._chooseQuestion());
    this._chooseQuestion();
  }

  _chooseQuestion() {
    const problem = byId("question").value;
    byId("errors-problem").textContent = problem;
    typeset([byId("errors-problem")]);
    const rows = this.questions.get(problem);
    const scored = rows
      .filter(({ step_scores: scores }) => scores !== null)
      .map((row) => ({ ...row, reward: Math.min(...row.step_scores) }));
    showSolutions(byId("errors-solutions"), scored, THRESHOLD);
    const truths = scored.map(({ label, step_scores: scores }, k) => truth(k, label, firstError(scores, THRESHOLD)));
    const unread = rows.length - scored.length;
    if (unread > 0) truths.push(el("li", {}, `${counted(unread, "solution")} were too long for the model.`));
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
  const most = panels.map((panel) => Math.max(...Object.values(panel), Number.MIN_VALUE));
  const cell = (cost, k) => {
    const number = baseline === null ? cost.toFixed(1) : `${(100 * cost).toFixed(0)} %`;
    return el("span", { class: "share" }, el("span", { class: "number" }, number), bar([cost / most[k]], "reward"));
  };
  const rows = Object.keys(panels[0]).map((name) => [name, ...panels.map((panel, k) => cell(panel[name], k))]);
  const title = baseline === null ? "Rollouts per solution" : `Rollouts per solution, as shares of ${baseline}`;
  byId("cost-tables").replaceChildren(
    table(title, ["run", ...Object.keys(shares)], rows),
    ...tables.map(({ title: name, columns, rows: cells }) => folded(name, table(name, columns, cells))),
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
      const details = folded("Table", table(question, columns, rows));
      return el("article", { class: "stack" }, el("h3", {}, question), el("p", { class: "finding" }, answer), details);
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
  const { name, files } = await fetchJson("../report");
  byId("run").textContent = name === null ? "a report" : `report of ${name}`;
  const evaluations = await Promise.all(
    files
      .filter((path) => nameOf(path) === "results.json")
      .map(async (path) => ({ path, name: prmOf(path) || name, results: await json(path) })),
  );
  const votes = evaluations.filter(({ results }) => results.accuracy !== undefined);
  showCurves(votes);
  await new Questions(votes, files).show();
  await new FirstErrors(evaluations.filter(({ results }) => results.fixed !== undefined), files).show();
  if (files.includes("cost.json")) showCost(await json("cost.json"));
  showFindings(files.includes("findings.json") ? await json("findings.json") : []);
  await showFigures(files.filter((path) => /^figures\/[^/]+\.png$/.test(path)));
}

await guarded(show)();
const empty = byId("main").querySelector("section:not([hidden]), .complaint") === null;
byId("status").textContent = empty
  ? "There is nothing to show. Start the server with --report and the directory of a `research lab` or `evaluate` run."
  : "";
