// The server, asked for JSON. Addresses are relative, so that the page works below a path of a proxy as well.
import { Problem } from "./errors.js";

const KEY = "unprm-key";

/** The API key; of this tab alone. */
export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

/** What the server answers to a GET, or to a POST of `body`. Raises `Problem`. */
export async function ask(address, body = undefined, signal = undefined) {
  const response = await reached(address, { ...request(body), signal });
  const told = await parsed(response);
  if (response.ok && told !== null) return told;
  if (typeof told?.code !== "string") throw new Problem("unexpected", { detail: `HTTP status ${response.status}` });
  throw new Problem(told.code, {
    detail: told.detail,
    errors: told.errors ?? [],
    requestId: told.request_id,
    retryAfter: response.headers.get("Retry-After"),
  });
}

function request(body) {
  const headers = key.get() ? { Authorization: `Bearer ${key.get()}` } : {};
  if (body === undefined) return { headers };
  return { method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body: JSON.stringify(body) };
}

async function reached(address, options) {
  try {
    return await fetch(address, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("unreachable");
  }
}

async function parsed(response) {
  try {
    return await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return null;
  }
}
