// A question for the model behind the gateway: what is asked, and what comes back.
import { events, fetchResponse } from "./api.js";
import { Problem } from "./errors.js";

/** For steps that can be scored, and an answer that is found. */
const INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}.";

/**
 * Asks for candidates, at most `budget`. Yields `{candidate}` and `{progress}` as they come, and at last the report.
 * Raises `Problem`.
 */
export async function* asked({ problem, model, budget }, signal) {
  const messages = [
    { role: "system", content: INSTRUCTION },
    { role: "user", content: problem },
  ];
  const body = { model, messages, stream: true, unprm: { budget, candidates: true } };
  let last = {};
  for await (const { unprm } of events(await fetchResponse("v1/chat/completions", body, signal))) {
    if (!unprm) continue;
    last = unprm;
    yield unprm;
  }
  if (!("strategy" in last)) throw new Problem("cut_short");
}
