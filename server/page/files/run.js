// The files of a run: what `training lab` or `training evaluate` left in a directory, served below /report.
import { fetchJson, fetchResponse } from "./api.js";

const addressOf = (path) => `../report/${path.split("/").map(encodeURIComponent).join("/")}`;

/** The value of a JSON file. */
export function json(path) {
  return fetchJson(addressOf(path));
}

/** All records of a file of JSON lines. */
export async function records(path) {
  const response = await fetchResponse(addressOf(path));
  // a record that is being written has no end of line yet
  const lines = (await response.text()).split("\n").slice(0, -1);
  return lines.filter(Boolean).map((line) => JSON.parse(line));
}

/** The record of this id alone, however long the file is. */
export function record(path, id) {
  return fetchJson(`${addressOf(path)}?id=${encodeURIComponent(id)}`);
}

/** A picture as a data URI: a page can't send the key with an address. */
export async function picture(path) {
  const blob = await (await fetchResponse(addressOf(path))).blob();
  return new Promise((resolve) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve(reader.result));
    reader.readAsDataURL(blob);
  });
}

/** The last part of a path. */
export function nameOf(path) {
  return path.split("/").pop();
}

/** The PRM that results are of; empty if they lie in the run's directory itself. */
export function prmOf(path) {
  return path.split("/").slice(0, -1).join("/").replace(/^(best-of-n|processbench)\//, "");
}

/** The path of the file of this name beside another. */
export function beside(path, name) {
  return [...path.split("/").slice(0, -1), name].join("/");
}

/** The file of this name beside another, or in the nearest folder above it; undefined if there is none. */
export function nearest(path, name, files) {
  const folders = path.split("/").slice(0, -1);
  const places = [...folders.keys(), folders.length].map((depth) => [...folders.slice(0, depth), name].join("/"));
  return places.findLast((place) => files.includes(place));
}
