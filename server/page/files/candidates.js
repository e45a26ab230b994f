// From what was pasted or uploaded to candidate solutions as the API takes them, and back.

const SEPARATOR = /^[^\S\n]*={3,}[^\S\n]*$/m;
/** What the server takes of a candidate in a record of samples; it refuses the rest. */
const KNOWN = ["id", "text", "steps", "answer", "step_scores"];

/** Candidates of a text: JSON lines, an array, or texts between lines of `===`. */
export function readCandidates(text) {
  const pieces = () => text.split(new RegExp(SEPARATOR, "m")).map((piece) => piece.trim()).filter(Boolean);
  return records(text, isCandidate) ?? pieces();
}

/** The text that `readCandidates` reads these candidates from. */
export function writeCandidates(solutions) {
  const plain = solutions.every((solution) => typeof solution === "string");
  const text = plain ? solutions.join("\n===\n") : "";
  const same = plain && JSON.stringify(readCandidates(text)) === JSON.stringify(solutions);
  return same ? text : solutions.map((solution) => JSON.stringify(solution)).join("\n");
}

/**
 * Questions `{problem, solutions}` of an uploaded file: one a line, as a request or as a record of samples with
 * `candidates`; or the candidates of a single question, whose problem is null then.
 */
export function readQuestions(text) {
  return records(text, isQuestion)?.map(asQuestion) ?? [{ problem: null, solutions: readCandidates(text) }];
}

/** The JSON values of a text, one a line, in an array or alone, if all are as they should be; else null. */
function records(text, accepted) {
  const lines = text.split("\n").filter((line) => line.trim()).map(parsed);
  const whole = parsed(text);
  const ways = [lines, ...(Array.isArray(whole) ? [whole] : []), [whole]];
  return ways.find((values) => values.length > 0 && values.every(accepted)) ?? null;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isCandidate(value) {
  if (typeof value === "string") return true;
  if (Array.isArray(value)) return value.length > 0 && value.every((step) => typeof step === "string");
  return isObject(value) && ("text" in value || "steps" in value);
}

function isQuestion(value) {
  return isObject(value) && (Array.isArray(value.solutions) || Array.isArray(value.candidates));
}

function asQuestion({ problem, question, solutions, candidates }) {
  const known = (value) =>
    isObject(value) ? Object.fromEntries(Object.entries(value).filter(([name]) => KNOWN.includes(name))) : value;
  const text = problem ?? question ?? null;
  return { problem: text === null ? null : String(text), solutions: solutions ?? candidates.map(known) };
}
