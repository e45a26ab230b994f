// Errors, shown where the page has its element `problem-details`.
import { byId, el } from "./dom.js";
import { Problem } from "./errors.js";

/** Shows an error: what happened, what to do, and what the server says beyond that. */
export function complain(error) {
  const problem = error instanceof Problem ? error : new Problem("unexpected", { detail: String(error) });
  const particulars = problem.particulars.map((text) => el("li", {}, text));
  byId("problem-details").replaceChildren(
    el("div", { class: "complaint", "data-code": problem.code }, el("p", {}, problem.sentence), el("ul", {}, ...particulars)),
  );
  byId("problem-details").scrollIntoView({ block: "nearest" });
  if (problem.code === "unauthorized") {
    byId("options").open = true;
    byId("key").focus();
  }
}

/** Takes the error away. */
export function clearComplaint() {
  byId("problem-details").replaceChildren();
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
