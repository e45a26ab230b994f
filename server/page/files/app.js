// The page: what is asked on the left, scores and votes on the right.
import { ask, key } from "./api.js";
import { asCurl } from "./curl.js";
import { byId, counted, el } from "./dom.js";
import { Problem } from "./errors.js";
import { EXAMPLES } from "./examples.js";
import * as input from "./input.js";
import { fromFragment, toFragment } from "./permalink.js";
import { Results } from "./results.js";
import { NORMALIZATIONS, STRATEGIES } from "./votes.js";

/** Milliseconds after which a page without a model asks for it again. */
const LOOK_AGAIN = 1000;

const results = new Results();
let running = null;
let limits = null;
/** The code of what keeps the page from knowing the model. */
let trouble = null;
/** Whether candidates are to be scored once the model is ready. */
let waiting = false;

// ---- telling

function say(text) {
  byId("status").textContent = text;
}

function complain(error) {
  const problem = error instanceof Problem ? error : new Problem("unexpected", { detail: String(error) });
  const told = problem.particulars.map((text) => el("li", {}, text));
  byId("problem-details").replaceChildren(
    el("div", { class: "complaint", "data-code": problem.code }, el("p", {}, problem.sentence), el("ul", {}, ...told)),
  );
  if (problem.code === "unauthorized") {
    byId("options").open = true;
    byId("key").focus();
  } else if (byId("results").getBoundingClientRect().top > window.innerHeight) {
    byId("results").scrollIntoView({ block: "start" }); // one column: the complaint would be out of sight
  }
}

function content() {
  byId("problem-details").replaceChildren();
}

/** An action whose errors are told. */
function guarded(action) {
  return async (...given) => {
    try {
      content();
      await action(...given);
    } catch (error) {
      if (error.name !== "AbortError") complain(error);
    }
  };
}

// ---- scoring

async function score() {
  const request = input.request();
  running?.abort();
  const own = (running = new AbortController());
  waiting = false;
  busy(true);
  try {
    await scoreAndVote(request, own.signal);
  } catch (error) {
    if (error.code !== "model_unavailable" || trouble !== "model_unavailable") throw error;
    waiting = true;
    say("The model is not ready yet. These candidates are scored as soon as it is.");
  } finally {
    if (running === own) busy(false);
  }
}

async function scoreAndVote(request, signal) {
  say(`Scoring ${counted(request.solutions.length, "candidate")} …`);
  const scored = await send("score_steps", request, signal).catch((error) => {
    say(results.there ? "The results below are those of before." : "");
    throw error;
  });
  byId("empty").hidden = true;
  results.showScores(request.problem ?? "", scored.solutions, input.weights());
  const { computed_tokens: computed, cached_tokens: cached } = scored.usage;
  const number = scored.solutions.filter((own) => own.step_scores !== null).length;
  say(`${counted(number, "solution")} scored by ${scored.model}: ${computed} tokens run, ${cached} known from before.`);
  reveal();
  // it needs no scores, and names the classes of equal answers, from which all votes follow
  const { candidates, compared_as_text: asText } = await send("vote/majority", request, signal);
  results.showVotes(classesOf(candidates, request.solutions.length), asText);
}

function send(address, request, signal) {
  const size = new Blob([JSON.stringify(request)]).size;
  if (limits !== null && size > limits.max_body_bytes) {
    // a server that refuses a body while it is sent closes the connection, and its answer is lost
    throw new Problem("body_too_large", { detail: `${size} bytes would be sent, the limit is ${limits.max_body_bytes}.` });
  }
  return ask(address, request, signal);
}

function classesOf(candidates, total) {
  const classes = new Array(total).fill(null);
  for (const { members } of candidates) for (const index of members) classes[index] = members[0];
  return classes;
}

function busy(is) {
  byId("score").setAttribute("aria-disabled", String(is));
  byId("results").setAttribute("aria-busy", String(is));
}

function reveal() {
  const place = byId("results");
  if (place.getBoundingClientRect().top < window.innerHeight / 2) return;
  place.scrollIntoView({ block: "start" });
  place.focus({ preventScroll: true });
}

// ---- the model

async function showModel() {
  try {
    const name = input.modelName();
    const model = await ask(name === null ? "model" : `model?name=${encodeURIComponent(name)}`);
    limits = model.limits;
    input.offerModels(model.models);
    input.offerThreshold(model.calibration);
    byId("model-line").textContent = `${model.name} on ${model.device}`;
    byId("demo").hidden = !model.demo;
    if (trouble !== null) content();
    trouble = null;
    if (waiting) guarded(score)();
  } catch (error) {
    trouble = error.code;
    if (trouble === "model_unavailable") {
      byId("model-line").textContent = `no model yet: ${error.detail}`;
      setTimeout(showModel, LOOK_AGAIN);
    } else {
      byId("model-line").textContent = "no model yet";
      complain(error);
    }
  }
}

/** Leads to the report, if the server has one; where it asks for a key, nothing is said of it here. */
async function showReport() {
  const { name } = await ask("report").catch(() => ({ name: null }));
  byId("report-link").hidden = name === null;
}

// ---- taking it elsewhere

async function link() {
  const { strategy, alpha, normalization } = results.ballot;
  const state = { ...input.fields(), strategy, alpha, normalization };
  const address = new URL(location.href);
  address.hash = await toFragment(state);
  history.replaceState(null, "", address);
  await copy(address.href, "The link is copied. It holds the input, not the scores.");
}

async function curl() {
  const { strategy, alpha, normalization } = results.ballot;
  const weighed = { alpha, ...(normalization === "minmax" ? {} : { normalization }) };
  const request = { ...input.request(), ...(strategy === "wrf" ? weighed : {}) };
  const address = new URL(`vote/${strategy}`, document.baseURI).href;
  await copy(asCurl(address, request, key.get() !== ""), "The command is copied.");
}

async function copy(text, told) {
  try {
    await navigator.clipboard.writeText(text);
    say(told);
  } catch {
    byId("copy-text").value = text; // no clipboard without HTTPS, or without the user's leave
    byId("copy").showModal();
    byId("copy-text").select();
  }
}

async function openLink() {
  const fragment = location.hash.slice(1);
  if (!fragment.startsWith("v")) return;
  const told = await fromFragment(fragment);
  if (told === null) throw new Problem("bad_link");
  input.fillFields(told);
  if (STRATEGIES.includes(told.strategy)) results.ballot.strategy = told.strategy;
  if (told.alpha >= 0 && told.alpha <= 1) results.ballot.alpha = told.alpha;
  if (NORMALIZATIONS.includes(told.normalization)) results.ballot.normalization = told.normalization;
  // a link of somebody else must not set the model to work by itself
  say("The input of the link is filled in. Score it when you are ready.");
}

// ---- wiring

function listen() {
  byId("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    guarded(score)();
  });
  byId("ask").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) guarded(score)();
  });
  byId("candidates").addEventListener("input", input.showCount);
  for (const id of ["problem", "candidates"]) {
    byId(id).addEventListener("input", () => {
      if (results.there) say("The input has changed since it was scored.");
    });
  }
  byId("aggregate").addEventListener("change", guarded(async () => results.weigh(input.weights())));
  byId("threshold").addEventListener("change", guarded(async () => results.weigh(input.weights())));
  byId("model").addEventListener("change", guarded(switchModel));
  for (const id of ["split", "extraction"]) byId(id).addEventListener("change", guarded(scoreAgain));
  byId("key").addEventListener("change", guarded(setKey));
  byId("file").addEventListener("change", guarded(readFile));
  byId("link").addEventListener("click", guarded(link));
  byId("curl").addEventListener("click", guarded(curl));
  byId("copy-close").addEventListener("click", () => byId("copy").close());
  window.addEventListener("hashchange", guarded(openLink));
}

async function switchModel() {
  await showModel();
  await scoreAgain();
}

async function scoreAgain() {
  if (results.there) await score();
}

async function setKey() {
  key.set(byId("key").value.trim());
  await showModel();
  await showReport();
}

async function readFile() {
  const [file] = byId("file").files;
  byId("file").value = ""; // the same file may be chosen again
  if (file === undefined) return;
  const number = await input.upload(file);
  say(number > 1 ? `${number} questions were read; choose one of them.` : `${byId("count").textContent} read from the file.`);
}

function offerExamples() {
  for (const { name, problem, solutions } of EXAMPLES) {
    const button = el("button", { type: "button", class: "quiet" }, name);
    const show = async () => {
      input.fill({ problem, solutions });
      await score();
    };
    button.addEventListener("click", guarded(show));
    byId("examples").append(button);
  }
}

offerExamples();
listen();
byId("key").value = key.get();
input.showCount();
await showModel();
await openLink().catch(complain);
await showReport();
