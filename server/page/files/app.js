// The page: the input on the left, scores and votes on the right.
import { fetchJson, key } from "./api.js";
import { asked } from "./asking.js";
import { clearComplaint, complain, guarded } from "./complaints.js";
import { asCurl } from "./curl.js";
import { byId, counted, el } from "./dom.js";
import { Problem } from "./errors.js";
import { EXAMPLES } from "./examples.js";
import * as input from "./input.js";
import { fromFragment, toFragment } from "./permalink.js";
import { Results } from "./results.js";
import { waitingCard } from "./solutions.js";

/** Milliseconds after which a page without a model asks for it again. */
const LOOK_AGAIN = 1000;

const results = new Results((body, signal) => post("vote/compare", body, signal));
/** Of the request for scores that is under way, if there is one. */
let running = null;
let limits = null;
/** The request that was scored last, with the scores that came back. */
let scoredRequest = null;
/** What stops the model behind the gateway while it is being asked. */
let asking = null;
/** The code of what keeps the page from knowing the model. */
let trouble = null;
/** Whether candidates are to be scored once the model is ready. */
let waiting = false;

function say(text) {
  byId("status").textContent = text;
}

function sayOld() {
  say(results.there ? "The results below are from before." : "");
}

// ---- scoring

async function score() {
  const request = input.request();
  waiting = false;
  try {
    await alone((signal) => scoreAndVote(request, signal));
  } catch (error) {
    if (error.code !== "model_unavailable" || trouble !== "model_unavailable") throw error;
    waiting = true;
    say("The model is not ready yet. These candidates will be scored as soon as it is.");
  }
}

/** Runs an action in place of the one that is under way. */
async function alone(action) {
  running?.abort();
  const controller = new AbortController();
  running = controller;
  busy(true);
  try {
    await action(controller.signal);
  } finally {
    if (running === controller) {
      running = null;
      busy(false);
    }
  }
}

async function scoreAndVote(request, signal) {
  say(`Scoring ${counted(request.solutions.length, "candidate")} …`);
  const response = await scoreAndShow(request, signal).catch((error) => {
    if (!signal.aborted) sayOld();
    throw error;
  });
  say(whoScored(request.solutions, response));
  reveal();
  await results.vote();
}

/** Shows a request's scores. With `more` it is the one of before with more candidates, and the votes stay. */
async function scoreAndShow(request, signal, more = false) {
  const response = await post("score_steps", request, signal);
  const { solutions, demonstration } = response;
  scoredRequest = withScores(request, solutions);
  byId("empty").hidden = true;
  byId("shown").hidden = false;
  if (demonstration || !more) byId("demonstration").textContent = demonstration?.detail ?? "";
  if (more) results.showRewards(solutions, request.threshold, scoredRequest);
  else {
    results.ballot.suggest(demonstration?.in_domain === false ? "majority" : "wrf");
    results.showScores(request.problem ?? "", solutions, request.threshold, scoredRequest);
  }
  return response;
}

/** Where the scores of candidates come from. */
function whoScored(sent, { solutions, usage, model }) {
  const scored = sent.filter((_, index) => solutions[index].step_scores !== null);
  const given = scored.filter((solution) => solution.step_scores).length;
  const number = scored.length - given;
  const came = given > 0 ? `${counted(given, "candidate")} came with scores` : "";
  if (number === 0) return `${came}: no model was run.`;
  const { tokens, computed_tokens: computed, cached_tokens: cached } = usage;
  const before = cached > 0 ? `, ${cached} known from before` : "";
  const cost = cached === tokens ? `all ${tokens} tokens known from before` : `${computed} tokens run${before}`;
  return `${counted(number, "solution")} scored by ${model}: ${cost}${came && `; ${came}`}.`;
}

/** The request with the scores that came back, so that no model runs for it. What can't be scored stays as it was. */
function withScores(request, scored) {
  const solutions = scored.map(({ id, steps, answer, step_scores }, index) => {
    return step_scores === null ? request.solutions[index] : { id, steps, answer: answer ?? "", step_scores };
  });
  return { ...request, solutions };
}

/** Takes rewards and votes from the same scores in another way. */
async function reward() {
  if (asking !== null) return; // what arrives next is scored so
  if (running !== null) return score(); // what is under way was requested with the reward of before
  const weights = input.weights();
  if (!results.there) return;
  scoredRequest = { ...scoredRequest, ...weights };
  await alone(async (signal) => {
    const { solutions } = await post("score_steps", scoredRequest, signal);
    results.showRewards(solutions, weights.threshold, scoredRequest);
    await results.vote();
  });
}

// ---- asking

/** Asks the model behind the gateway, in place of what is under way. */
async function ask() {
  waiting = false;
  if (byId("upstream").value === "") await offerUpstream(); // it may not have answered before
  const question = input.question();
  await alone(async (signal) => {
    const stop = new AbortController();
    asking = stop;
    byId("ask").textContent = "Stop";
    byId("shown").hidden = byId("empty").hidden = true;
    say(`Asking ${question.model} for ${counted(question.budget, "candidate")} …`);
    reveal();
    try {
      await askAndVote(question, stop, signal);
    } finally {
      if (asking === stop) asking = null;
      byId("ask").textContent = asking === null ? "Ask" : "Stop";
      byId("waiting").replaceChildren();
      byId("shown").hidden = !results.there;
      byId("empty").hidden = results.there;
    }
  });
}

/** What has arrived is scored while the rest is written; in the end all are as if they had been pasted. */
async function askAndVote(question, stop, signal) {
  const arrived = []; // `scored`: as it is sent once it has been scored
  let scoring = Promise.resolve();
  let outcome = null;

  const waitingOnes = () => arrived.filter(({ scored }) => scored === undefined);
  const showWaiting = () => byId("waiting").replaceChildren(...waitingOnes().map(({ text }) => waitingCard(text)));
  const scoreArrived = async () => {
    const candidates = [...arrived];
    const request = input.request(candidates.map(({ text, scored }) => scored ?? text), question);
    const { solutions } = await scoreAndShow(request, signal, candidates.some(({ scored }) => scored !== undefined));
    candidates.forEach((candidate, place) => {
      candidate.scored = scoredRequest.solutions[place];
    });
    showWaiting();
    if (solutions.some(({ answer }) => answer !== null)) await results.vote();
  };

  try {
    for await (const { candidate, progress, ...report } of asked(question, AbortSignal.any([signal, stop.signal]))) {
      if (candidate) {
        arrived.push(candidate);
        showWaiting();
        // what goes wrong now goes wrong again in the end, if it matters
        scoring = scoring.then(() => (waitingOnes().length > 0 ? scoreArrived() : null)).catch(() => null);
      } else if (progress) {
        const { sampled, budget, answer } = progress;
        say(`${sampled} of ${counted(budget, "candidate")}: ${answer === null ? "no answer yet" : `${answer} leads`}.`);
      } else {
        outcome = outcomeOf(report);
        results.ballot.suggest(report.strategy);
      }
    }
  } finally {
    await scoring;
    if (!signal.aborted && arrived.length === 0) sayOld();
    if (!signal.aborted && arrived.length > 0) {
      arrived.sort((one, other) => one.index - other.index);
      input.fill({ problem: question.problem, solutions: arrived.map(({ text }) => text) });
      say(outcome ?? `${counted(arrived.length, "candidate")} had arrived.`);
      await scoreArrived();
    }
  }
}

function outcomeOf({ strategy, sampled, answer, notes }) {
  const number = counted(sampled, "candidate");
  const elected = answer === null ? `${number} arrived` : `Of ${number}, the gateway elects ${answer} by ${strategy}`;
  return `${[elected, ...notes].join("; ")}.`;
}

function post(address, request, signal) {
  const size = new Blob([JSON.stringify(request)]).size;
  if (limits !== null && size > limits.max_body_bytes) {
    // a server that refuses a body while it is sent closes the connection, and its answer is lost
    throw new Problem("body_too_large", { detail: `${size} bytes would be sent, the limit is ${limits.max_body_bytes}.` });
  }
  return fetchJson(address, request, signal);
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
    const model = await fetchJson(name === null ? "model" : `model?name=${encodeURIComponent(name)}`);
    limits = model.limits;
    input.offerModels(model.models);
    input.offerRisk(model.vote_calibration);
    byId("model-line").textContent = `${model.name} on ${model.device}${model.demo ? ", a demonstration" : ""}`;
    byId("asking").hidden = !limits.max_candidates;
    if (limits.max_candidates) await offerUpstream().catch(() => null); // asked again when it is needed
    if (trouble !== null) clearComplaint();
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

async function offerUpstream() {
  const { data } = await fetchJson("v1/models");
  input.offerUpstream(data.map(({ id }) => id), limits.max_candidates);
}

// ---- taking it elsewhere

async function link() {
  const { strategy, alpha, normalization } = results.ballot;
  const state = { ...input.fields(), strategy, alpha, normalization };
  const address = new URL(location.href);
  address.hash = await toFragment(state);
  history.replaceState(null, "", address);
  await copy(address.href, "Link copied. It contains the input, not the scores.");
}

async function curl() {
  const { strategy, alpha, normalization } = results.ballot;
  const weights = { alpha, ...(normalization === "minmax" ? {} : { normalization }) };
  const request = { ...input.request(), ...(strategy === "wrf" ? weights : {}), ...input.risk() };
  const address = new URL(`vote/${strategy}`, document.baseURI).href;
  await copy(asCurl(address, request, key.get() !== ""), "Command copied.");
}

async function copy(text, done) {
  try {
    await navigator.clipboard.writeText(text);
    say(done);
  } catch {
    byId("copy-text").value = text; // no clipboard without HTTPS, or without the user's leave
    byId("copy").showModal();
    byId("copy-text").select();
  }
}

async function openLink() {
  const fragment = location.hash.slice(1);
  if (!fragment.startsWith("v")) return;
  const values = await fromFragment(fragment);
  if (values === null) throw new Problem("bad_link");
  input.fillFields(values);
  results.ballot.choose(values);
  // a link of somebody else must not set the model to work by itself
  say("The link's input is filled in. Score it when you are ready.");
}

// ---- wiring

function listen() {
  byId("input").addEventListener("submit", (event) => {
    event.preventDefault();
    guarded(score)();
  });
  byId("input").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) guarded(score)();
  });
  byId("ask").addEventListener("click", guarded(async () => (asking === null ? ask() : asking.abort())));
  byId("candidates").addEventListener("input", input.showCount);
  for (const id of ["problem", "candidates"]) {
    byId(id).addEventListener("input", () => {
      if (results.there) say("The input has changed since it was scored.");
    });
  }
  byId("aggregate").addEventListener("change", guarded(reward));
  byId("threshold").addEventListener("change", guarded(async () => results.showThreshold(input.weights().threshold)));
  byId("risk").addEventListener("change", guarded(async () => (results.there ? results.vote() : null)));
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
  if (results.there && asking === null) await score();
}

async function setKey() {
  key.set(byId("key").value.trim());
  await showModel();
}

async function readFile() {
  const [file] = byId("file").files;
  byId("file").value = ""; // the same file may be chosen again
  if (file === undefined) return;
  const number = await input.upload(file);
  say(number > 1 ? `${number} questions were read; choose one.` : `${byId("count").textContent} read from the file.`);
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
