// The page: the input on the left, votes and scores on the right.
import { events, fetchJson, fetchResponse, key } from "./api.js";
import { byId, counted, el, listed } from "./dom.js";
import { clearComplaint, complain, guarded, Problem } from "./errors.js";
import { EXAMPLES } from "./examples.js";
import * as input from "./input.js";
import { asCurl, fromFragment, toFragment } from "./link.js";
import { arrange, draftCard, showSolutions } from "./solutions.js";
import { choice, choose, showAlpha, showVotes, suggest, weights } from "./votes.js";

/** Milliseconds after which a page without a model asks for it again. */
const LOOK_AGAIN = 1000;
/** Milliseconds without a change of α after which the votes are taken again. */
const PAUSE = 100;
const NOT_YET = "The model is not ready yet. These candidates will be scored as soon as it is.";
const AT_HOME = "Scored by the built-in demo model, which knows only word problems of this kind.";
const ABROAD =
  "The built-in demo model can’t judge this: only equations are checked. " +
  "For your own problems, load a real model, as with unprm serve --model Qwen/Qwen2.5-Math-PRM-7B.";
/** For steps that can be scored, and an answer that is found. */
const INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}.";

/** What is shown: the request with the scores that came back, `/score_steps`' solutions, and `/vote/compare`'s response. */
const shown = { request: null, solutions: null, threshold: 0.5, demonstration: null, votes: null, weights: null, byMajority: false };
/** Of the request for scores that is under way, if there is one. */
let running = null;
/** Of the votes that are taken. */
let voting = new AbortController();
let pause = null;
let limits = null;
/** What stops the model behind the gateway while it is being asked. */
let asking = null;
/** The code of what keeps the page from knowing the model. */
let trouble = null;
/** Whether steps are scored before their candidate has arrived: where the server holds the model, which knows them then. */
let scoresEarly = false;
/** Whether the server only reads answers: then votes are by these alone. */
let modelless = false;
/** Whether candidates are to be scored once the model is ready. */
let waiting = false;

function render() {
  const { solutions, demonstration, votes } = shown;
  byId("outcome").hidden = solutions === null;
  if (solutions === null) return;
  byId("demonstration").textContent = demonstration === null ? "" : demonstration.in_domain ? AT_HOME : ABROAD;
  byId("demonstration").className = demonstration?.in_domain === false ? "notice warning" : "hint";
  byId("notices").replaceChildren(...notices(solutions, votes).map((text) => el("p", { class: "notice" }, text)));
  showSolutions(shown);
  const mark = () => arrange(shown, choice.strategy);
  showVotes(shown, mark);
  mark();
}

/** What the numbers do not show. */
function notices(solutions, votes) {
  const texts = [];
  const missing = solutions.filter((solution) => solution.reward === null && solution.step_scores === null).length;
  const number = `${missing} of ${counted(solutions.length, "solution")}`;
  if (missing > 0) texts.push(`${number} could not be scored. Their answers count, without a reward.`);
  const which = listed((votes?.compared_as_text ?? []).map((index) => `solution ${index + 1}`)).join("");
  if (which !== "") texts.push(`The answer of ${which} could not be compared as mathematics in time, only as written.`);
  return texts;
}

function say(text) {
  byId("status").textContent = text;
}

function reveal() {
  const place = byId("results");
  if (place.getBoundingClientRect().top < window.innerHeight / 2) return;
  place.scrollIntoView({ block: "start" });
  place.focus({ preventScroll: true });
}

/** Scores what stands in the form, or waits until there is a model that can. */
async function score() {
  waiting = false;
  const request = input.request();
  say(`Scoring ${counted(request.solutions.length, "candidate")} …`);
  const scoreThem = async (signal) => {
    try {
      say(whoScored(request.solutions, await showScores(request, signal)));
    } catch (error) {
      if (!signal.aborted) sayOld();
      throw error;
    }
  };
  try {
    await alone(scoreThem, vote);
  } catch (error) {
    if (error.code !== "model_unavailable" || trouble !== "model_unavailable") throw error;
    waiting = true;
    say(NOT_YET);
  }
}

function sayOld(text = "The results below are from before.") {
  byId("outcome").classList.add("old");
  say(shown.solutions === null ? "" : text);
}

/** Runs actions one after the other, in place of those that are under way. */
async function alone(...actions) {
  running?.abort();
  const controller = new AbortController();
  running = controller;
  byId("results").ariaBusy = true;
  try {
    for (const action of actions) await action(controller.signal);
  } finally {
    if (running === controller) {
      running = null;
      byId("results").ariaBusy = false;
    }
  }
}

/** Shows a request's scores. With `more` it is what is shown in another way or with more candidates, and the votes stay. */
async function showScores(request, signal, more = false) {
  const scored = !modelless || request.solutions.every((solution) => solution.step_scores);
  const response = scored ? await post("score_steps", request, signal) : await answersAlone(request, signal);
  const { solutions } = response;
  const demonstration = response.demonstration ?? (more ? shown.demonstration : null);
  byId("outcome").classList.remove("old");
  clearTimeout(pause);
  voting.abort(); // whatever is under way is of other scores
  const byMajority = !scored || solutions.some(isChecked);
  const drawn = byMajority ? solutions.map((each) => ({ ...each, reward: undefined })) : solutions;
  const known = withScores(request, solutions);
  Object.assign(shown, { request: known, solutions, drawn, threshold: request.threshold, demonstration, byMajority });
  if (!more) {
    shown.votes = null;
    suggest(byMajority ? "majority" : "wrf");
  }
  render();
  return response;
}

/** Whether its equations were checked in place of a model's scores. */
function isChecked({ reward, step_scores: scores }) {
  return reward === null && scores !== null;
}

/** What `/score_steps` would return where no model scores: the answers, and each text as a single step. */
async function answersAlone(request, signal) {
  const outcome = await post("vote/majority", request, signal);
  const stepsOf = (sent) => (typeof sent === "string" ? [sent] : Array.isArray(sent) ? sent : sent.steps ?? [sent.text]);
  const solutions = outcome.solutions.map((each, k) => ({ ...each, steps: stepsOf(request.solutions[k]), reward: undefined }));
  return { ...outcome, solutions };
}

/** Takes the votes; those that are shown stay until the new ones are there. Raises `Problem`. */
async function vote() {
  clearTimeout(pause);
  voting.abort();
  voting = new AbortController();
  const { signal } = voting;
  const by = weights();
  byId("ballot").ariaBusy = true;
  try {
    const request = { ...shown.request, ...input.risk() };
    if (shown.byMajority) {
      const outcome = await post("vote/majority", request, signal);
      shown.votes = { ...outcome, strategies: { majority: outcome } };
    } else {
      shown.votes = await post("vote/compare", { ...request, ...by }, signal);
    }
    shown.weights = by;
    render();
  } finally {
    if (!signal.aborted) byId("ballot").ariaBusy = false;
  }
}

/** Where the scores of candidates come from. */
function whoScored(sent, { solutions, usage, model }) {
  const scored = sent.filter((_, index) => solutions[index].step_scores !== null && !isChecked(solutions[index]));
  const given = scored.filter((solution) => solution.step_scores).length;
  const number = scored.length - given;
  const came = given > 0 ? `${counted(given, "candidate")} came with scores` : "";
  if (number === 0) return came ? `${came}: no model was run.` : "No model was run.";
  const cost = `${usage.computed_tokens} tokens computed, ${usage.cached_tokens} cached`;
  return `${counted(number, "solution")} scored by ${model}: ${cost}${came && `; ${came}`}.`;
}

/** The request with the scores that came back, so that no model runs for it. What can't be scored stays as it was. */
function withScores(request, scored) {
  const solutions = scored.map((each, index) => {
    const { id, steps, answer, step_scores } = each;
    return step_scores === null || isChecked(each) ? request.solutions[index] : { id, steps, answer: answer ?? "", step_scores };
  });
  return { ...request, solutions };
}

/** Takes rewards and votes from the same scores in another way. */
async function reward() {
  if (asking !== null) return; // what arrives next is scored so
  if (running !== null) return score(); // what is under way was requested with the reward of before
  const request = { ...shown.request, aggregate: byId("aggregate").value, threshold: input.threshold() };
  if (shown.solutions !== null) await alone((signal) => showScores(request, signal, true), vote);
}

function post(address, request, signal) {
  const size = new Blob([JSON.stringify(request)]).size;
  if (limits !== null && size > limits.max_body_bytes) {
    // a server that refuses a body while it is sent closes the connection, and its answer is lost
    throw new Problem("body_too_large", { detail: `${size} bytes would be sent, the limit is ${limits.max_body_bytes}.` });
  }
  return fetchJson(address, request, signal);
}

/** Asks the model behind the gateway, in place of what is under way. */
async function ask() {
  waiting = false;
  if (byId("upstream").value === "") await offerUpstream(); // it may not have answered before
  const question = input.question();
  await alone(async (signal) => {
    const stop = new AbortController();
    asking = stop;
    byId("ask").textContent = "Stop";
    byId("outcome").hidden = true;
    say(`Asking ${question.model} for ${counted(question.budget, "candidate")} …`);
    reveal();
    try {
      await askAndVote(question, stop, signal);
    } finally {
      if (asking === stop) asking = null;
      byId("ask").textContent = asking === null ? "Ask" : "Stop";
      byId("waiting").replaceChildren();
      byId("outcome").hidden = shown.solutions === null;
    }
  });
}

/** Candidates are scored as they arrive, and their steps as they end; in the end all are as if they had been pasted. */
async function askAndVote({ problem, model, budget }, stop, signal) {
  const messages = Object.entries({ system: INSTRUCTION, user: problem }).map(([role, content]) => ({ role, content }));
  const body = { model, messages, stream: true, unprm: { problem, budget, show_samples: true } };
  const drafts = new Map(); // by the numbers of the candidates that are being written
  const arrived = []; // `scored`: as it is sent once it has been scored
  let scoring = Promise.resolve();
  let outcome = null;

  const requestFor = (solutions) => input.request(solutions, { problem });
  const waitingOnes = () => arrived.filter(({ scored }) => scored === undefined);
  const showWaiting = () => {
    byId("waiting").replaceChildren(...[...waitingOnes(), ...drafts.values()].map(({ card }) => card));
  };
  const write = ({ candidate, text }) => {
    const draft = drafts.get(candidate);
    if (draft && text) {
      draft.text += text;
      draft.card.querySelector(".unscored .words").append(text);
    } else {
      drafts.delete(candidate); // an empty text takes back what was written
      if (text) drafts.set(candidate, { text, tried: 0, card: draftCard(text) });
      showWaiting();
    }
  };
  const scoreDrafts = async () => {
    const grown = [...drafts.values()].filter(({ text, tried }) => scoresEarly && /\n\s*\S/.test(text.slice(tried)));
    if (grown.length === 0) return;
    const request = requestFor(grown.map(({ text }) => text));
    grown.forEach((draft) => (draft.tried = draft.text.length));
    const { solutions } = await post("score_steps", request, signal);
    grown.forEach((draft, place) => {
      const { steps, step_scores: scores } = solutions[place];
      if (scores === null || isChecked(solutions[place])) return;
      const begun = request.solutions[place].lastIndexOf(steps.at(-1)); // it may go on, so it has no score yet
      const card = draftCard(draft.text.slice(begun), { steps: steps.slice(0, -1), scores, threshold: request.threshold });
      draft.card.replaceWith(card);
      draft.card = card;
    });
  };
  const scoreArrived = async () => {
    const candidates = [...arrived];
    const request = requestFor(candidates.map(({ text, scored }) => scored ?? text));
    const { solutions } = await showScores(request, signal, candidates.some(({ scored }) => scored !== undefined));
    candidates.forEach((candidate, place) => (candidate.scored = shown.request.solutions[place]));
    showWaiting();
    if (solutions.some(({ answer }) => answer !== null)) await vote();
  };
  const scoreNew = async () => {
    if (waitingOnes().length > 0) await scoreArrived();
    await scoreDrafts();
  };

  try {
    const response = await fetchResponse("v1/chat/completions", body, AbortSignal.any([signal, stop.signal]));
    for await (const { unprm } of events(response)) {
      const { piece, candidate, progress, ...report } = unprm ?? {};
      if (piece) write(piece);
      if (candidate) {
        arrived.push(Object.assign(drafts.get(candidate.index) ?? { card: draftCard(candidate.text) }, candidate));
        drafts.delete(candidate.index);
        showWaiting();
      }
      // what goes wrong now goes wrong again in the end, if it matters
      if (piece || candidate) scoring = scoring.then(scoreNew).catch(() => null);
      if (progress) {
        const { sampled, answer } = progress;
        say(`${sampled} of ${counted(budget, "candidate")}: ${answer === null ? "no answer yet" : `${answer} leads`}.`);
      }
      if (report.strategy) {
        outcome = outcomeOf(report);
        suggest(report.strategy);
      }
    }
    if (outcome === null) throw new Problem("cut_short");
  } finally {
    drafts.clear();
    await scoring;
    if (!signal.aborted && arrived.length === 0) sayOld();
    if (!signal.aborted && arrived.length > 0) {
      arrived.sort((one, other) => one.index - other.index);
      input.fill({ problem, solutions: arrived.map(({ text }) => text) });
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

async function showModel() {
  try {
    const name = input.modelName();
    const model = await fetchJson(name === null ? "model" : `model?name=${encodeURIComponent(name)}`);
    limits = model.limits;
    scoresEarly = model.memory !== null;
    modelless = model.engine === "none";
    input.offerModel(model);
    const without = { none: "no model: votes by answers alone", checks: "no model: equations are checked" };
    byId("model-line").textContent = without[model.engine] ?? `${model.demo ? "demo model: " : ""}${model.name} on ${model.device}`;
    if (limits.max_candidates) await offerUpstream().catch(() => null); // asked again when it is needed
    if (trouble !== null) clearComplaint();
    trouble = null;
  } catch (error) {
    trouble = error.code;
    const loads = trouble === "model_unavailable";
    byId("model-line").textContent = loads ? `no model yet: ${error.detail}` : "no model yet";
    if (loads && waiting) say(NOT_YET);
    if (loads) setTimeout(showModel, LOOK_AGAIN);
    else complain(error);
  }
  if (waiting && trouble === null) await guarded(score)();
}

async function offerUpstream() {
  const { data } = await fetchJson("v1/models");
  input.offerUpstream(data.map(({ id }) => id), limits.max_candidates);
}

async function link() {
  const address = new URL(location.href);
  address.hash = await toFragment({ ...input.fields(), ...weights(), strategy: choice.strategy });
  history.replaceState(null, "", address);
  await copy(address.href, "Link copied. It contains the input, not the scores.");
}

async function curl() {
  const request = { ...input.request(), ...(choice.strategy === "wrf" ? weights() : {}), ...input.risk() };
  const address = new URL(`vote/${choice.strategy}`, document.baseURI).href;
  await copy(asCurl(address, request, key.get() !== ""), "Command copied.");
}

async function copy(text, done) {
  try {
    await navigator.clipboard.writeText(text);
    say(done);
  } catch {
    prompt("The browser does not let this page use the clipboard. Copy this:", text); // as without HTTPS
  }
}

async function openLink() {
  const fragment = location.hash.slice(1);
  if (!fragment.startsWith("v")) return;
  const values = await fromFragment(fragment);
  if (values === null) throw new Problem("bad_link");
  input.fillFields(values);
  choose(values);
  // a link of somebody else must not set the model to work by itself
  waiting = false;
  say("The link's input is filled in. Score it when you are ready.");
}

async function readFile() {
  const [file] = byId("file").files;
  byId("file").value = ""; // the same file may be chosen again
  if (file === undefined) return;
  const number = await input.upload(file);
  say(number > 1 ? `${number} questions were read; choose one.` : "The file is read. Score it when you are ready.");
}

async function scoreAndReveal() {
  await score();
  reveal();
}

async function scoreAgain() {
  if (shown.solutions !== null && asking === null) await score();
}

function on(type, actions) {
  for (const [id, action] of Object.entries(actions)) byId(id).addEventListener(type, guarded(action));
}

function listen() {
  on("submit", {
    input: (event) => {
      event.preventDefault();
      return scoreAndReveal();
    },
  });
  byId("input").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) guarded(scoreAndReveal)();
  });
  const command = () => copy(byId("ask-hint").querySelector("code").textContent, "Command copied.");
  on("click", { ask: () => (asking === null ? ask() : asking.abort()), add: input.addCard, command, link, curl });
  on("change", {
    aggregate: reward,
    threshold: () => {
      shown.threshold = input.threshold();
      render();
    },
    risk: () => (shown.solutions === null ? null : vote()),
    model: async () => {
      await showModel();
      await scoreAgain();
    },
    split: scoreAgain,
    extraction: scoreAgain,
    key: async () => {
      key.set(byId("key").value.trim());
      await showModel();
    },
    file: readFile,
    normalization: vote,
  });
  byId("alpha").addEventListener("input", () => {
    showAlpha();
    byId("ballot").ariaBusy = true;
    clearTimeout(pause);
    pause = setTimeout(guarded(vote), PAUSE);
  });
  byId("candidates").addEventListener("input", input.showCards);
  for (const id of ["problem", "candidates", "cards"]) {
    byId(id).addEventListener("input", () => {
      if (shown.solutions !== null) sayOld("The input has changed since it was scored.");
    });
  }
  window.addEventListener("hashchange", guarded(openLink));
}

function offerExamples() {
  const show = async (example) => {
    input.fill(example);
    await scoreAndReveal();
  };
  const button = ({ name, ...example }) => {
    return el("button", { type: "button", class: "quiet", onclick: guarded(() => show(example)) }, name);
  };
  byId("examples").append(...EXAMPLES.map(button));
}

/** A first visit begins with the first example; a link, and what the browser has kept of a form, is left as it is. */
async function begin() {
  byId("written").open = matchMedia("(min-width: 40rem)").matches;
  byId("key").value = key.get();
  const { problem, candidates } = input.fields();
  waiting = !location.hash.startsWith("#v") && problem === "" && candidates === "";
  if (waiting) input.fill(EXAMPLES[0]);
  input.showCards();
  await showModel();
  await openLink();
}

offerExamples();
listen();
await begin().catch(complain);
byId("results").ariaBusy = running !== null;
