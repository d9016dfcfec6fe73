// Connects the form, the requests and the views.

import * as api from "./api.js";
import { Chips } from "./chips.js";
import { setLabels } from "./colors.js";
import { byId, debounced, el } from "./dom.js";
import { Extractor } from "./extractor.js";
import { acceptFiles, readFile } from "./files.js";
import { Options } from "./options.js";
import { PRESETS } from "./presets.js";
import { Results } from "./results.js";
import { ASKED_SCORE, assign, can, hasThresholds, readFragment, state, typed, writeFragment } from "./state.js";

const TYPING_MS = 300;
const TYPING_LONG_MS = 900; // for a text that takes long
const LONG_CHARS = 20_000;
const MAX_LINES = 10;

const text = byId("text");
const status = byId("status");
let asked = { lowest: ASKED_SCORE }; // the scores of the last request
let notRead = []; // what has no text of the document that is shown, a line each
let reading = null; // aborts the reading of a file

const save = debounced(async () => byId("count").classList.toggle("long", !(await writeFragment())), 400);
const runSoon = debounced(() => canRun() && run(), TYPING_MS);
const runLater = debounced(() => canRun() && run(), TYPING_LONG_MS);

const results = new Results(() => {
  save();
  results.drawCode();
  if (hasThresholds() ? isMoved() : Math.min(state.scores.entity, state.scores.relation) < asked.lowest) changed();
});
const extractor = new Extractor({ onStart, onProgress, onEnd, onError });
const labels = new Chips(byId("labels"), {
  ...{ title: "Labels", placeholder: "Add a label", kind: "label" },
  onChange: (entries) => changed({ labels: entries }),
});
const relations = new Chips(byId("relations"), {
  ...{ title: "Relations", placeholder: "Add a relation", kind: "relation" },
  onChange: (entries) => changed({ relations: entries }),
});
const options = new Options(byId("options"), () => changed());

const isMoved = () => ["entity", "relation"].some((kind) => state.scores[kind] !== asked[kind]);

function canRun() {
  const others = ["classify", "structures"].some((kind) => Object.keys(typed(kind)).length);
  return Boolean(state.text.trim() && ((can.entities && state.labels.length) || others));
}

/** The visitor has changed something: keep it, and run if that is wanted. */
function changed(part = {}) {
  if (part.text !== undefined) reading?.abort();
  const isNewText = part.text !== undefined && part.text !== state.text;
  Object.assign(state, part);
  if (part.labels) {
    setLabels(state.labels.map(({ name }) => name));
    labels.render();
  }
  count();
  save();
  results.drawCode();
  const runs = canRun() && state.options.live;
  if (isNewText) runs ? byId("document").classList.add("stale") : clear();
  if (!canRun()) {
    extractor.stop();
    idle(state.text.trim() ? (byId("labels").hidden ? "Name what to classify" : "Add a label") : "Type a text");
  } else if (runs) (state.text.length > LONG_CHARS ? runLater : runSoon)();
}

/** An old result never stands beside a new text. */
function clear() {
  status.textContent = "";
  byId("document").classList.remove("stale");
  byId("classes").replaceChildren();
  byId("records").replaceChildren();
  results.clear(state.text);
}

function count() {
  const { length } = state.text;
  byId("count").textContent = length ? `${length.toLocaleString("en")} characters` : "";
}

/** Show the whole state. */
function render() {
  text.value = state.text;
  state.text = text.value; // with the line breaks that the field keeps
  setLabels(state.labels.map(({ name }) => name));
  for (const kind of ["classify", "structures"]) byId(kind).value = state[kind];
  labels.set(state.labels);
  relations.set(state.relations);
  options.render();
  count();
}

function load(other) {
  assign(other);
  if (other.text !== undefined) {
    reading?.abort();
    notRead = other.notRead ?? [];
  }
  render();
  clear();
  changed();
  if (!state.options.live && canRun()) run();
}

function run() {
  asked = { ...state.scores, lowest: Math.min(ASKED_SCORE, state.scores.entity, state.scores.relation) };
  extractor.run();
}

function onStart() {
  byId("run").textContent = "Stop";
  byId("document").setAttribute("aria-busy", "true");
  byId("document").classList.add("stale");
  byId("progress").hidden = false;
  byId("progress").removeAttribute("value");
  notices();
  labels.invalid(false);
  options.invalid(null);
}

function onProgress(extraction) {
  byId("progress").value = extraction.progress;
  status.textContent = `${Math.round(extraction.progress * 100)} % · ${number(extraction.entities.length, "entity", "entities")}`;
  byId("document").classList.remove("stale");
  results.show(extraction);
}

function onEnd(extraction, response) {
  const { usage, model, adapter_id } = response;
  results.response = response;
  byId("document").classList.remove("stale");
  results.show(extraction);
  showClasses(response.classifications);
  showRecords(response.structures);
  idle(
    [
      `${number(Math.round(extraction.latency_ms))} ms`,
      number(usage.words, "word", "words"),
      number(usage.windows, "window", "windows"),
      number(usage.tokens, "token", "tokens"),
      adapter_id ? `${model} with ${adapter_id}` : model,
    ].join(" · "),
  );
  const truncated = response.truncated
    ? [{ message: `Only the first ${number(response.truncated_at, "character", "characters")} were processed.` }]
    : [];
  const unread = notRead.map((line) => ({ message: `Not read: ${line}.` }));
  if (unread.length > MAX_LINES) unread.splice(MAX_LINES, Infinity, { message: `${unread.length - MAX_LINES} more` });
  notices(...[...truncated, ...unread, ...response.warnings].map(({ message }) => el("p", { class: "notice", text: message })));
}

/** A line for each classification. */
function showClasses(classes) {
  const lines = Object.entries(classes).map(([name, { labels: best }]) => {
    const shown = best.map(({ label, score }) => `${label} ${score.toFixed(2)}`).join(", ") || "no label";
    return el("p", { text: `${name}: ${shown}` });
  });
  byId("classes").replaceChildren(...lines);
}

/** A table for each structure, with a line for each instance. */
function showRecords(structures) {
  const tables = Object.entries(structures).map(([name, instances]) => {
    const caption = el("caption", { text: instances.length ? name : `${name}: none` });
    const fields = Object.keys(instances[0] ?? {});
    const head = el("tr", {}, ...fields.map((field) => el("th", { scope: "col", text: field })));
    const values = (found) => found.map(({ text, score }) => `${text} ${score.toFixed(2)}`).join(", ");
    const rows = instances.map((one) => el("tr", {}, ...fields.map((field) => el("td", { text: values(one[field]) }))));
    return el("table", {}, caption, el("thead", {}, head), el("tbody", {}, ...rows));
  });
  byId("records").replaceChildren(...tables);
}

function onError(error) {
  if (!(error instanceof api.ApiError)) {
    idle("Failed");
    throw error;
  }
  idle("Failed");
  clear();
  if (error.status === 401) return void askForKey(error.message);
  labels.invalid(error.param?.startsWith("labels"));
  if (options.invalid(error.param)) byId("options").open = true;
  const facts = [
    error.status || null,
    error.code,
    error.param && `field ${error.param}`,
    error.retryAfter && `retry after ${error.retryAfter} s`,
    error.requestId && `request ${error.requestId}`,
  ];
  const about = el("p", { class: "facts", text: facts.filter(Boolean).join(" · ") });
  const again = el("button", { type: "button", class: "quiet", text: "Try again", on: { click: run } });
  notices(el("div", { class: "notice error", role: "alert" }, el("p", { text: error.message }), about, again));
}

function notices(...elements) {
  byId("notices").replaceChildren(...elements);
}

function idle(sentence) {
  status.textContent = sentence;
  byId("run").textContent = "Extract";
  byId("progress").hidden = true;
  byId("document").removeAttribute("aria-busy");
}

function number(value, one = "", many = "") {
  return `${value.toLocaleString("en")} ${value === 1 ? one : many}`.trim();
}

/** Show the form for the key; after a key was refused, with an error in the form, which is in view on a phone too. */
function askForKey(refusal) {
  const isRefused = Boolean(api.apiKey());
  notices();
  idle("Needs an API key");
  byId("key-form").hidden = byId("key-button").hidden = false;
  byId("key-error").hidden = !isRefused;
  byId("key-error").textContent = isRefused ? refusal : "";
  byId("key").setAttribute("aria-invalid", String(isRefused));
  byId("key-form").scrollIntoView({ block: "nearest" });
  byId("key").focus();
}

/** Show the models and what the chosen one can do. Returns whether the server has answered. */
async function describeServer() {
  try {
    const models = await api.models();
    const chosen = models.find(({ id }) => id === state.options.model) ?? models.find((one) => one.default);
    state.options.model = chosen.default ? "" : chosen.id;
    byId("models").hidden = models.length < 2;
    byId("models").replaceChildren(
      ...models.map(({ id, state }) =>
        el("option", { value: id, text: state === "ready" ? id : `${id} (${state})`, selected: id === chosen.id }),
      ),
    );
    const model = await api.model(state.options.model);
    byId("model").textContent = [...(models.length < 2 ? [model.model] : []), model.device, model.dtype].join(" · ");
    byId("model").title = `${model.family}, ${model.max_words} words in one pass`;
    options.setModel(model);
    for (const task of Object.keys(can)) can[task] = model.tasks.includes(task);
    byId("relations").hidden = !can.relations;
    byId("labels").hidden = !can.entities;
    byId("classify-field").hidden = !can.classifications;
    byId("structures-field").hidden = !can.structures;
    results.showAbilities();
    if (model.supports_adapters) options.setAdapters(await api.adapters(state.options.model).catch(() => []));
    return true;
  } catch (error) {
    if (!(error instanceof api.ApiError)) throw error;
    onError(error);
    return false;
  }
}

for (const preset of PRESETS)
  byId("presets").append(el("button", { type: "button", class: "choice", text: preset.title, on: { click: () => load(preset) } }));
byId("models").addEventListener("change", async ({ target }) => {
  extractor.stop();
  Object.assign(state.options, { model: target.value, adapter_id: "" });
  await start();
});
for (const kind of ["classify", "structures"])
  byId(kind).addEventListener("input", () => changed({ [kind]: byId(kind).value }));
text.addEventListener("input", () => {
  notRead = [];
  changed({ text: text.value, places: [] });
});
byId("run").addEventListener("click", () => {
  if (!extractor.isRunning) return void (canRun() && run());
  extractor.stop();
  if (byId("document").classList.contains("stale")) clear();
  idle("Stopped");
});
addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && canRun()) run();
});
byId("key-button").addEventListener("click", () => {
  byId("key-form").hidden = false;
  byId("key").focus();
});
byId("key-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  api.setApiKey(byId("key").value.trim());
  byId("key").value = "";
  byId("key-form").hidden = true;
  await start();
});
acceptFiles(async (file) => {
  reading?.abort();
  const { signal } = (reading = new AbortController());
  const before = status.textContent;
  status.textContent = `Reading ${file.name} …`;
  try {
    const content = await readFile(file, signal);
    if (signal.aborted) return;
    load(content);
    byId("document").scrollTop = 0;
  } catch (error) {
    if (signal.aborted) return;
    if (error instanceof api.ApiError) return void onError(error);
    status.textContent = before;
    notices(el("div", { class: "notice error", role: "alert" }, el("p", { text: error.message })));
  }
});
addEventListener("hashchange", async () => {
  if (!(await readFragment())) return;
  notRead = [];
  await start();
});

/** Show the state, and run it if the server answers. */
async function start() {
  if (await describeServer()) load({});
  else render();
}

byId("key-button").hidden = !api.apiKey();
if (!(await readFragment())) assign(PRESETS[0]);
await start();
