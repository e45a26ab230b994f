// From what was pasted or uploaded to candidate solutions as the API takes them, and back.

const SEPARATOR = /^[^\S\n]*={3,}[^\S\n]*$/m;
/** What the server takes of a candidate in a record of samples; it refuses the rest. */
const KNOWN = ["id", "text", "steps", "answer", "step_scores"];

/** Candidates of a text: JSON lines, or texts between lines of `===`. */
export function readCandidates(text) {
  return fromLines(text, isCandidate) ?? fromArray(text) ?? pieces(text);
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
  const records = fromLines(text, isQuestion) ?? whole(text);
  return records?.map(asQuestion) ?? [{ problem: null, solutions: readCandidates(text) }];
}

function fromLines(text, accepted) {
  const lines = text.split("\n").filter((line) => line.trim());
  const values = [];
  for (const line of lines) {
    const value = parsed(line);
    if (!accepted(value)) return null;
    values.push(value);
  }
  return values.length > 0 ? values : null;
}

function fromArray(text) {
  const value = parsed(text);
  if (Array.isArray(value) && value.length > 0 && value.every(isCandidate)) return value;
  return value !== null && isCandidate(value) ? [value] : null;
}

function whole(text) {
  const value = parsed(text);
  const records = Array.isArray(value) ? value : [value];
  return records.length > 0 && records.every(isQuestion) ? records : null;
}

function pieces(text) {
  return text
    .split(new RegExp(SEPARATOR, "m"))
    .map((piece) => piece.trim())
    .filter(Boolean);
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

function asQuestion(record) {
  const problem = record.problem ?? record.question ?? null;
  return { problem: problem === null ? null : String(problem), solutions: record.solutions ?? record.candidates.map(known) };
}

function known(candidate) {
  if (!isObject(candidate)) return candidate;
  return Object.fromEntries(Object.entries(candidate).filter(([name]) => KNOWN.includes(name)));
}
