// Requests to the server. Addresses are relative, so that the page works below a path of a proxy as well.
import { Problem } from "./errors.js";

const KEY = "unprm-key";

/** The API key; of this tab alone. */
export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

/** The response to a GET, or to a POST of `body` as JSON. Raises `Problem` for an error, and an aborted request's. */
export async function fetchResponse(address, body, signal) {
  const headers = key.get() ? { Authorization: `Bearer ${key.get()}` } : {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const options = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
  const response = await fetch(address, { ...options, headers, signal }).catch(unreachable);
  if (response.ok) return response;
  const details = await jsonOf(response);
  if (typeof details?.code !== "string") throw unexpected(response);
  throw new Problem(details.code, { ...details, retryAfter: response.headers.get("Retry-After") });
}

/** The same, read as JSON. */
export async function fetchJson(address, body, signal) {
  const response = await fetchResponse(address, body, signal);
  const value = await jsonOf(response);
  if (value === null) throw unexpected(response);
  return value;
}

/** The events of a streamed response, each read as JSON, until `[DONE]`. Raises `Problem` for one that is an error. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read().catch(unreachable);
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ")) continue;
      if (line === "data: [DONE]") return;
      const event = JSON.parse(line.slice("data: ".length));
      if (event.error) throw new Problem(event.error.code, { detail: event.error.message });
      yield event;
    }
  }
}

function unreachable(error) {
  throw error.name === "AbortError" ? error : new Problem("unreachable");
}

async function jsonOf(response) {
  return response.json().catch((error) => {
    if (error.name === "AbortError") throw error;
    return null;
  });
}

function unexpected(response) {
  return new Problem("unexpected", { detail: `HTTP status ${response.status}` });
}
