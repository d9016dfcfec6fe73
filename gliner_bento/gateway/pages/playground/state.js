// What the visitor has entered. It is kept in the URL's fragment, which browsers do not send to the server.

import { entry as chip } from "./chips.js";
import { validPlaces } from "./places.js";

const MAX_FRAGMENT = 16_000; // characters; longer links break in mail and chat

/** Entities and relations from this score on are asked for, so that the sliders need not ask again. */
export const ASKED_SCORE = 0.3;

export const state = {
  text: "",
  places: [], // of the text, if it is a document: as `joined` of places.js makes them
  labels: [], // as `entry` of chips.js makes them
  relations: [],
  classify: "", // classifications as they are typed: "name: label, label; name: ..."
  structures: "", // structures as they are typed: "name: field, field; name: ..."
  scores: { entity: 0.5, relation: 0.5 }, // lowest shown
  options: {
    model: "", // the default
    adapter_id: "",
    long_text: "window",
    window_words: "",
    window_overlap_words: "",
    nested: false,
    multi_label: false,
    recognizers: true, // of the redacted text
    own_labels: false, // replace those of the form, and not personal data
    on_limit: "error",
    response: "auto", // whole, streamed, or streamed if long
    live: true, // run as you type
  },
};

/** What the model can do: what it cannot is kept, and not asked for. */
export const can = { entities: true, relations: true, classifications: true, structures: true };

/** Take over what another state has, where it is of the right type. */
export function assign(other) {
  if (typeof other?.text === "string") state.places = validPlaces(other.places);
  for (const name of ["text", "classify", "structures"]) if (typeof other?.[name] === "string") state[name] = other[name];
  if (Array.isArray(other?.labels)) state.labels = other.labels.map(named).filter(Boolean);
  if (Array.isArray(other?.relations)) state.relations = other.relations.map(named).filter(Boolean);
  for (const group of ["scores", "options"])
    for (const [name, value] of Object.entries(other?.[group] ?? {}))
      if (name in state[group] && typeof value === typeof state[group][name]) state[group][name] = value;
}

function named(entry) {
  const name = typeof entry === "string" ? entry : entry?.name;
  return typeof name === "string" && name.trim() ? chip(name, entry) : null;
}

/** Whether a label or a relation has a threshold of its own: then overlaps depend on the scores that are asked for. */
export const hasThresholds = () => [...state.labels, ...state.relations].some(({ threshold }) => threshold !== null);

/** The lowest score that is shown of a label, or of a relation (`kind`). */
export function lowestScores(kind) {
  const own = new Map((kind === "entity" ? state.labels : state.relations).map(({ name, threshold }) => [name, threshold]));
  return (name) => own.get(name) ?? state.scores[kind];
}

/** The classifications ("classify"), or the structures, of the state, by name; those without labels, or fields, are left out. */
export function typed(kind) {
  if (!can[kind === "classify" ? "classifications" : kind]) return {};
  const asked = state[kind].split(";").map((one) => one.split(":"));
  const split = asked.map(([name, labels = ""]) => [name.trim(), [...new Set(words(labels))]]);
  return Object.fromEntries(split.filter(([name, labels]) => name && labels.length));
}

const words = (list) => list.split(",").map((one) => one.trim()).filter(Boolean);

/** The body of a request. `asked`: with the scores to ask for; otherwise with those shown, as a program would. */
export function requestBody({ asked }) {
  const score = (shown) => (asked && !hasThresholds() ? Math.min(ASKED_SCORE, shown) : shown);
  const { options, scores } = state;
  const labels = can.entities ? state.labels : [];
  const relations = can.relations ? state.relations : [];
  const body = { text: state.text };
  if (options.model) body.model = options.model;
  if (labels.length) body.labels = names(labels);
  if (relations.length) body.relations = names(relations);
  const [classes, structures] = [typed("classify"), typed("structures")];
  if (Object.keys(classes).length) body.classifications = classes;
  if (Object.keys(structures).length) body.structures = structures;
  if (labels.length || body.structures) body.threshold = score(scores.entity);
  if (relations.length) body.relation_threshold = score(scores.relation);
  if (options.nested) body.flat_ner = false;
  if (options.multi_label) body.multi_label = true;
  if (options.adapter_id) body.adapter_id = options.adapter_id;
  if (options.long_text !== "window") body.long_text = options.long_text;
  for (const name of ["window_words", "window_overlap_words"])
    if (options[name] !== "") body[name] = Number(options[name]);
  if (options.on_limit !== "error") body.on_limit = options.on_limit;
  return body;
}

/** The body of a request of /v1/redact: by default, for personal data. Labels have no thresholds of their own there. */
export function redactBody() {
  const { options, scores, labels } = state;
  const plain = labels.map(({ name, description }) => ({ name, description, threshold: null, head: [], tail: [] }));
  const body = { text: state.text };
  if (options.own_labels) Object.assign(body, { labels: names(plain), threshold: scores.entity });
  if (!options.recognizers) body.recognizers = false;
  if (options.model) body.model = options.model;
  if (options.adapter_id) body.adapter_id = options.adapter_id;
  return body;
}

/** A list, or an object if a name has more than itself. */
function names(entries) {
  const all = entries.map((one) => [one.name, options(one)]);
  return all.every(([name, about]) => about === name) ? all.map(([name]) => name) : Object.fromEntries(all);
}

/** As in the API: the description, or the name, or an object if there is more. */
function options({ name, description, threshold, head, tail }) {
  if (threshold === null && !head.length && !tail.length) return description || name;
  return {
    ...(description && { description }),
    ...(threshold !== null && { threshold }),
    ...(head.length && { head }),
    ...(tail.length && { tail }),
  };
}

/** Write the state to the fragment. Returns whether the text was short enough to be in it. */
export async function writeFragment() {
  let fragment = await pack(state);
  const fits = fragment.length <= MAX_FRAGMENT;
  if (!fits) fragment = await pack({ ...state, text: "", places: [] });
  history.replaceState(null, "", `#${fragment}`);
  return fits;
}

/** Take over the state in the fragment. Returns whether there was one. */
export async function readFragment() {
  if (location.hash.length < 2) return false;
  try {
    assign(await unpack(location.hash.slice(1)));
    return true;
  } catch {
    return false; // an anchor, or a damaged link
  }
}

async function pack(value) {
  const bytes = await through(new CompressionStream("deflate-raw"), new TextEncoder().encode(JSON.stringify(value)));
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

async function unpack(fragment) {
  const binary = atob(fragment.replaceAll("-", "+").replaceAll("_", "/"));
  const bytes = await through(new DecompressionStream("deflate-raw"), Uint8Array.from(binary, (c) => c.charCodeAt(0)));
  return JSON.parse(new TextDecoder().decode(bytes));
}

async function through(stream, bytes) {
  return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer());
}
