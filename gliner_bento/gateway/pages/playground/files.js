// Texts from files: dropped on the page, or opened.

import { entry } from "./chips.js";
import { byId } from "./dom.js";

const MAX_BYTES = 20_000_000;
const KINDS = /\.(txt|md|json)$/i;

export class FileError extends Error {}

/** What a file has: {text}, or of JSON also labels, relations. Throws FileError. */
export async function readFile(file) {
  if (!KINDS.test(file.name) && !file.type.startsWith("text/")) throw new FileError(`${file.name}: not a .txt, .md or .json file`);
  if (file.size > MAX_BYTES) throw new FileError(`${file.name}: larger than ${MAX_BYTES / 1e6} MB`);
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    throw new FileError(`${file.name}: not UTF-8`);
  }
  return /\.json$/i.test(file.name) ? fromJson(text, file.name) : { text };
}

/** A request of /v1/extract or /v1/extract/batch, of which the first text is taken; or a string. */
function fromJson(content, name) {
  let value;
  try {
    value = JSON.parse(content);
  } catch (error) {
    throw new FileError(`${name}: ${error.message}`);
  }
  if (Array.isArray(value)) value = value[0];
  if (typeof value === "string") return { text: value };
  const text = value?.text ?? value?.texts?.[0] ?? value?.items?.[0]?.text;
  if (typeof text !== "string") throw new FileError(`${name}: has no "text"`);
  return { text, labels: entries(value.labels), relations: entries(value.relations) };
}

function entries(names) {
  if (Array.isArray(names)) return names;
  if (!names || typeof names !== "object") return undefined;
  return Object.entries(names).map(([name, about]) => entry(name, about));
}

/** Accept files on the whole page, and from the button. */
export function acceptFiles(onFile) {
  const [drop, input] = [byId("drop"), byId("file")];
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    drop.hidden = false;
  });
  addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) drop.hidden = true;
  });
  addEventListener("drop", (event) => {
    drop.hidden = true;
    if (!hasFiles(event)) return;
    event.preventDefault();
    onFile(event.dataTransfer.files[0]);
  });
  byId("open-file").addEventListener("click", () => input.click());
  input.addEventListener("change", () => {
    if (input.files[0]) onFile(input.files[0]);
    input.value = "";
  });
}
