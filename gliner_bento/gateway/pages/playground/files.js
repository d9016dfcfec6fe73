// Texts from files: dropped on the page, or opened. The server reads PDF, Word and Excel files, HTML and mails.

import * as api from "./api.js";
import { entry } from "./chips.js";
import { byId } from "./dom.js";
import { joined } from "./places.js";

const MAX_BYTES = 20_000_000;
const KINDS = /\.(txt|md|json)$/i;
const DOCUMENTS = /\.(pdf|docx|xlsx|html?|eml)$/i;

export class FileError extends Error {}

/** What a file has: {text}, of JSON also labels, relations, of a document also places, notRead. Throws FileError, and
    ApiError if the server wants another key. */
export async function readFile(file, signal) {
  const isDocument = DOCUMENTS.test(file.name);
  if (!isDocument && !KINDS.test(file.name) && !file.type.startsWith("text/"))
    throw new FileError(`${file.name}: not a .txt, .md, .json, .pdf, .docx, .xlsx, .html or .eml file`);
  if (file.size > MAX_BYTES) throw new FileError(`${file.name}: larger than ${MAX_BYTES / 1e6} MB`);
  if (isDocument) return fromDocument(file, signal);
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    throw new FileError(`${file.name}: not UTF-8`);
  }
  return /\.json$/i.test(file.name) ? fromJson(text, file.name) : { text };
}

async function fromDocument(file, signal) {
  try {
    const { records, not_read } = await api.readDocument(file, signal);
    const notRead = Object.entries(not_read).map(([part, reason]) => `${part}: ${reason}`);
    return { ...joined(records), notRead };
  } catch (error) {
    if (!(error instanceof api.ApiError) || error.status === 401) throw error;
    throw new FileError(`${file.name}: ${error.message.replace(/^(body|name): /, "")}`);
  }
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
