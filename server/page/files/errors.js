// What went wrong, and what to do about it: a sentence for every code, shown in the element `problem-details`.
import { byId, el } from "./dom.js";

const AGAIN = "Try again; if it happens again, tell the operator";
const SENTENCES = {
  // said by the server
  unauthorized: "This server asks for an API key. Enter yours below “Options and API key”, and score again.",
  foreign_site: "A server without a key can only be opened by its address or a local name. Use one of these, or ask the operator.",
  body_too_large: "This is more text than the server accepts at once. Score fewer or shorter candidates.",
  invalid_request: "Something in the input is invalid. Correct what is named here, and score again.",
  blank: "A candidate is blank. Write its steps, or remove it.",
  too_many_solutions: "There are more candidates than the server accepts at once. Remove some.",
  too_many_steps: "A candidate has more steps than the server accepts. Shorten it, or remove it.",
  solution_too_long: "A candidate is longer than the model can read. Shorten it, or remove it.",
  no_verdict: "The judge gave no verdict on a step of a candidate. Score again, or shorten the candidate.",
  unknown_model: "The server no longer has a model of this name. Reload the page, and choose another one.",
  no_answer: "No candidate has an answer, so there is nothing to vote for. Write answers as \\boxed{…} or “The answer is …”.",
  overloaded: "The server is overloaded. Wait a moment, then score again.",
  quota_exceeded: "Your API key has used up its tokens for now. Wait a moment, then score again.",
  internal: `Something went wrong on the server. ${AGAIN} the request’s id.`,
  model_unavailable: "The model is not ready yet. Wait a moment, then score again.",
  shutting_down: "The server is shutting down. Wait a moment, then score again.",
  deadline_exceeded: "This took longer than the server allows. Score fewer candidates at once, or try again later.",
  upstream_refused: "The model behind the gateway refused the request. Choose another one, or correct the request.",
  upstream_busy: "The model behind the gateway takes no more requests now. Wait a moment, then ask again.",
  upstream_unavailable: `The model behind the gateway is not available now. ${AGAIN}.`,
  upstream_failed: `The model behind the gateway does not answer. ${AGAIN}.`,
  // found by the page
  unreachable: "The server can't be reached. Check that it is running and that you are online, then score again.",
  cut_short: "The model behind the gateway was cut off. What had arrived is shown; try again for the rest.",
  unexpected: "The response is not one of this server’s. Is there a proxy in front of it? Try again, or ask the operator.",
  no_problem: "There is no problem yet. Enter the question that the candidates answer.",
  no_candidates: "There is no candidate yet. Write one, paste many, or pick an example.",
  bad_threshold: "The error threshold must be a number from 0 to 1. Correct it, and score again.",
  bad_budget: "The number of candidates must be a whole number above 0. Correct it, and ask again.",
  bad_file: "This file has no candidates. Choose one with JSON Lines, or with texts separated by lines of ===.",
  bad_link: "The link can't be read: it was cut off or changed. Ask for it again, or paste the input.",
};

/** An error with a stable code: the server's problem details, or one of the page's own. */
export class Problem extends Error {
  constructor(code, { detail = "", errors = [], request_id: requestId = null, retryAfter = null } = {}) {
    super(detail || code);
    Object.assign(this, { code, detail, errors, requestId, retryAfter });
  }
}

/** The action, with its errors shown; that it was aborted is none. */
export function guarded(action) {
  return async (...values) => {
    try {
      clearComplaint();
      await action(...values);
    } catch (error) {
      if (error.name !== "AbortError") complain(error);
    }
  };
}

/** Takes the error away. */
export function clearComplaint() {
  byId("problem-details").replaceChildren();
}

/** Shows an error: what happened, what to do, and what the server says beyond that. */
export function complain(error) {
  const problem = error instanceof Problem ? error : new Problem("unexpected", { detail: String(error) });
  const { code, detail, errors, requestId, retryAfter } = problem;
  // what is wrong with a request that this page has not sent so was changed on the way
  const sentence = SENTENCES[code] ?? SENTENCES.unexpected;
  const particulars = errors.map((each) => `${place(each.pointer)}${each.detail}`);
  if (errors.length === 0 && detail && detail !== sentence) particulars.push(detail);
  if (requestId !== null && code === "internal") particulars.push(`Request ${requestId}`);
  if (retryAfter !== null) particulars.push(`Try again in ${retryAfter} s.`);
  const list = el("ul", {}, ...particulars.map((text) => el("li", {}, text)));
  byId("problem-details").replaceChildren(el("div", { class: "complaint", "data-code": code }, el("strong", {}, sentence), list));
  byId("problem-details").scrollIntoView({ block: "nearest" });
  if (code === "unauthorized") {
    byId("options").open = true;
    byId("key").focus();
  }
}

/** `/solutions/2/steps/0` as people count: `Candidate 3, step 1: `. */
function place(pointer) {
  const nouns = { solutions: "candidate", steps: "step", step_scores: "score" };
  const parts = pointer.split("/").slice(1);
  const names = parts.map((part, k) => {
    if (!/^\d+$/.test(part)) return /^\d+$/.test(parts[k + 1] ?? "") && nouns[part] ? "" : part;
    return `${nouns[parts[k - 1]] ?? "step"} ${Number(part) + 1}`;
  });
  const text = names.filter(Boolean).join(", ");
  return text && `${text[0].toUpperCase()}${text.slice(1)}: `;
}
