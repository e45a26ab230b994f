// The page of a run: what `training lab` or `training evaluate` left in a directory.
import { ask, key } from "./api.js";
import { chart } from "./chart.js";
import { byId, counted, el } from "./dom.js";
import { Problem } from "./errors.js";
import { typeset } from "./mathtext.js";
import { firstError, reward } from "./scores.js";
import { showSolutions } from "./solutions.js";
import { STRATEGIES } from "./votes.js";

const THRESHOLD = 0.5;

// ---- the run's files

async function fetched(path) {
  const headers = key.get() ? { Authorization: `Bearer ${key.get()}` } : {};
  const response = await fetch(`../report/${path.split("/").map(encodeURIComponent).join("/")}`, { headers });
  if (!response.ok) throw new Problem("not_found", { detail: path });
  return response;
}

const json = async (path) => (await fetched(path)).json();

// a record that is being written has no end of line yet
async function records(path) {
  const lines = (await (await fetched(path)).text()).split("\n").slice(0, -1);
  return lines.filter(Boolean).map((line) => JSON.parse(line));
}

async function imageOf(path) {
  const blob = await (await fetched(path)).blob();
  return new Promise((resolve) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve(reader.result));
    reader.readAsDataURL(blob);
  });
}

const folder = (path) => path.split("/").slice(0, -1).join("/");
const prmOf = (path) => folder(path).replace(/^(best-of-n|processbench)\//, "");
const inPercent = (share) => (100 * share).toFixed(1);

function table(title, columns, rows) {
  const head = el("tr", {}, ...columns.map((column) => el("th", { scope: "col" }, column)));
  const body = rows.map((row) => el("tr", {}, ...row.map((cell) => el("td", {}, String(cell)))));
  const own = el("table", {}, el("caption", {}, title), el("thead", {}, head), el("tbody", {}, ...body));
  return el("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": title }, own);
}

function offer(select, options, onChange) {
  select.replaceChildren(...options.map(([value, text]) => el("option", { value }, text)));
  select.onchange = () => onChange(select.value);
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
    offer(byId("prm"), this.runs.map(({ path, name }) => [path, name]), () => this._choosePrm());
    await this._choosePrm();
  }

  _subsets(results) {
    const place = folder(results);
    return this.benchmarks.filter((path) => this.files.includes(`${place}/${path.split("/").pop()}`));
  }

  async _choosePrm() {
    const name = (path) => path.split("/").pop().replace(".jsonl", "");
    const before = byId("subset").value;
    const subsets = this._subsets(byId("prm").value);
    offer(byId("subset"), subsets.map((path) => [path, name(path)]), () => this._chooseSubset());
    if (subsets.includes(before)) byId("subset").value = before;
    await this._chooseSubset();
  }

  async _chooseSubset() {
    const path = byId("subset").value;
    const [rows, scores] = await Promise.all([
      records(path),
      records(`${folder(byId("prm").value)}/${path.split("/").pop()}`),
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
    byId("asked").textContent = problem;
    typeset([byId("asked")]);
    const rows = this.questions.get(problem);
    const scored = rows.filter((own) => own.step_scores !== null);
    const derived = scored.map(({ step_scores: own }) => ({ reward: reward(own, "min"), firstError: firstError(own, THRESHOLD) }));
    showSolutions(byId("solutions"), scored, derived, THRESHOLD);
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

// ---- findings and figures

function showFindings(findings) {
  byId("findings").hidden = findings.length === 0;
  byId("findings-list").replaceChildren(
    ...findings.map(({ question, answer, columns, rows }) => {
      const own = el("details", {}, el("summary", {}, "Table"), table(question, columns, rows));
      return el("article", {}, el("h3", {}, question), el("p", { class: "told" }, answer), own);
    }),
  );
}

async function showFigures(paths) {
  byId("figures").hidden = paths.length === 0;
  const figures = paths.map(async (path) => {
    const name = path.split("/").pop().replace(".png", "").replaceAll("-", " ");
    const image = el("img", { src: await imageOf(path), alt: `Figure: ${name}; its numbers stand in the tables` });
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
      .filter((path) => path.split("/").pop() === "results.json")
      .map(async (path) => ({ path, name: prmOf(path) || name, told: await json(path) })),
  );
  showCurves(results.filter(({ told }) => told.accuracy !== undefined));
  await new FirstErrors(results.filter(({ told }) => told.fixed !== undefined), files).show();
  showFindings(files.includes("findings.json") ? await json("findings.json") : []);
  await showFigures(files.filter((path) => /^figures\/[^/]+\.png$/.test(path)));
  const empty = byId("main").querySelectorAll("section:not([hidden])").length === 0;
  byId("status").textContent = empty
    ? "There is nothing to show. Start the server with --report and the directory of a training lab or evaluate run."
    : "";
}

try {
  await show();
} catch (error) {
  const problem = error instanceof Problem ? error : new Problem("unexpected", { detail: String(error) });
  const told = problem.code === "unauthorized" ? "Enter the API key on the page of scores and votes, and come back." : problem.sentence;
  byId("status").textContent = "";
  byId("problem-details").replaceChildren(el("p", { class: "complaint" }, told));
}
