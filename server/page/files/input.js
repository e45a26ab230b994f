// The left side of the page: the problem, its candidates, and the options.
import { readCandidates, readQuestions, writeCandidates } from "./candidates.js";
import { byId, counted, el, offer } from "./dom.js";
import { Problem } from "./errors.js";

const FIELDS = ["problem", "candidates", "aggregate", "threshold", "split", "extraction", "model", "risk"];
/** In place of a model's name: the mean of all that are served. */
const ALL = "*";

/** What stands in the form, as texts. */
export function fields() {
  return Object.fromEntries(FIELDS.map((name) => [name, byId(name).value]));
}

/** The score below which a step is an error. Raises `Problem`. */
export function threshold() {
  const value = byId("threshold").valueAsNumber;
  if (!(value >= 0 && value <= 1)) throw new Problem("bad_threshold");
  return value;
}

/** The request that the form stands for, or for other candidates than its own. Raises `Problem`. */
export function request(solutions = readCandidates(fields().candidates), { problem } = fields()) {
  if (solutions.length === 0) throw new Problem("no_candidates");
  const scored = solutions.every((solution) => Array.isArray(solution.step_scores));
  if (!problem.trim() && !scored) throw new Problem("no_problem");
  // how steps and answers are read from texts, where it is not left to the server
  const chosen = ["split", "extraction"].map((name) => [name, byId(name).value]);
  const read = Object.fromEntries(chosen.filter(([, value]) => value !== "auto"));
  const terms = { aggregate: byId("aggregate").value, threshold: threshold(), ...read, ...chosenModel() };
  return { ...(problem.trim() ? { problem } : {}), solutions, ...terms };
}

function chosenModel() {
  const select = byId("model");
  const names = [...select.options].map((option) => option.value).filter((name) => name !== ALL);
  if (names.length < 2) return {};
  return { model: select.value === ALL ? names : select.value };
}

/** What share of accepted answers may be wrong, if answers are to be judged. */
export function risk() {
  const { value } = byId("risk");
  return value === "" || byId("risk-field").hidden ? {} : { risk: Number(value) };
}

/** What the gateway is to be asked. Raises `Problem`. */
export function question() {
  const problem = byId("problem").value;
  const budget = byId("budget").valueAsNumber;
  if (!problem.trim()) throw new Problem("no_problem");
  if (!(Number.isInteger(budget) && budget > 0)) throw new Problem("bad_budget");
  return { problem, model: byId("upstream").value, budget };
}

/** Offers the models behind the gateway, and as many candidates as it samples. */
export function offerUpstream(names, most) {
  const budget = byId("budget");
  offer(byId("upstream"), names.map((name) => [name, name]));
  budget.max = String(most);
  budget.value = String(Math.min(most, budget.valueAsNumber));
}

/** Offers what a server with this description has: several models, acceptance at a risk, a gateway. */
export function offerModel({ models, vote_calibration: calibration, limits }) {
  const options = models.map((name) => [name, name]);
  if (models.length > 1) options.push([ALL, `mean of all ${models.length}`]);
  offer(byId("model"), options);
  byId("model-field").hidden = models.length < 2;
  if (models.length > 1) byId("options").open = true;
  byId("risk-field").hidden = !calibration;
  byId("asking").disabled = !limits.max_candidates;
  byId("ask-hint").hidden = !byId("asking").disabled;
}

/** The name of the chosen model, if it is one; else null for the default's. */
export function modelName() {
  const { value } = byId("model");
  return value === ALL || value === "" ? null : value;
}

/** Writes a problem, unless it is null, and candidates into the form. */
export function fill({ problem, solutions }) {
  if (problem !== null) byId("problem").value = problem;
  byId("candidates").value = writeCandidates(solutions);
  changed();
}

/** Writes fields of a link into the form; what it lacks, or can't be, stays. */
export function fillFields(values) {
  for (const name of FIELDS.filter((each) => typeof values[each] === "string")) {
    const node = byId(name);
    if (node.options && ![...node.options].some((option) => option.value === values[name])) continue;
    node.value = values[name];
  }
  changed();
}

function changed() {
  byId("candidates").dispatchEvent(new Event("input", { bubbles: true }));
}

/** Shows the candidates of the text as cards to write in. */
export function showCards() {
  byId("cards").replaceChildren(...readCandidates(byId("candidates").value).map(card));
  if (byId("cards").children.length === 0) byId("cards").append(card(""));
  showCount();
}

/** Adds a blank card, and goes there. */
export function addCard() {
  byId("written").open = true;
  byId("cards").append(card(""));
  byId("cards").lastChild.firstChild.focus();
}

// what was sent with a candidate, as its scores, stays with it until somebody writes into its card
function card(candidate) {
  const steps = Array.isArray(candidate) ? candidate : candidate.steps;
  const value = typeof candidate === "string" ? candidate : steps?.join("\n") ?? String(candidate.text);
  const field = el("textarea", { value, candidate, rows: 1, spellcheck: false, ariaLabel: "Candidate", placeholder: "Step 1: …" });
  const remove = el("button", { type: "button", class: "quiet", ariaLabel: "Remove this candidate" }, "×");
  const node = el("li", {}, field, remove);
  field.onfocus = () => (field.className = "open"); // and stays so: what lies below must not move under a click
  field.oninput = () => {
    field.candidate = field.value;
    writeAll();
  };
  remove.onclick = () => {
    node.remove();
    writeAll();
    byId("cards").dispatchEvent(new Event("input"));
    byId("add").focus();
  };
  return node;
}

function writeAll() {
  const written = [...byId("cards").querySelectorAll("textarea")].map((field) => field.candidate);
  byId("candidates").value = writeCandidates(written.filter((each) => typeof each !== "string" || each.trim()));
  showCount();
}

/** Shows how many candidates there are. */
function showCount() {
  byId("count").textContent = counted(readCandidates(byId("candidates").value).length, "candidate");
}

/** Reads an uploaded file; of several questions one can be chosen. Raises `Problem`. */
export async function upload(file) {
  const questions = readQuestions(await file.text()).filter(({ solutions }) => solutions.length > 0);
  byId("question-field").hidden = questions.length < 2;
  if (questions.length === 0) throw new Problem("bad_file");
  const select = byId("question");
  const title = ({ problem }, k) => `${k + 1}. ${(problem ?? "").replace(/\s+/g, " ").slice(0, 60)}`;
  offer(select, questions.map((question, k) => [String(k), title(question, k)]));
  select.onchange = () => fill(questions[Number(select.value)]);
  select.selectedIndex = 0;
  fill(questions[0]);
  return questions.length;
}
