// The server's public API, as any client calls it.

const KEY = "gliner-bento.api-key";
let memory = ""; // where storage is off

export class ApiError extends Error {
  constructor(status, detail, retryAfter) {
    super(detail.message);
    Object.assign(this, { status, retryAfter, code: detail.code, param: detail.param, requestId: detail.request_id });
  }
}

export function apiKey() {
  try {
    return sessionStorage.getItem(KEY) ?? memory;
  } catch {
    return memory;
  }
}

export function setApiKey(key) {
  memory = key;
  try {
    sessionStorage.setItem(KEY, key);
  } catch {
    // kept in memory
  }
}

/** The address of a route; the page may be behind a proxy's path. */
export const address = (path) => new URL(`.${path}`, location.href.split("#")[0]).href;

const query = (name) => (name ? `?model=${encodeURIComponent(name)}` : "");

export const models = async () => (await (await ask("/v1/models")).json()).data;
export const model = async (name) => (await ask(`/v1/model${query(name)}`)).json();
export const adapters = async (name) => (await (await ask(`/v1/adapters${query(name)}`)).json()).adapters;
export const redact = async (body, signal) => (await ask("/v1/redact", body, signal)).json();
export const restore = async (body, signal) => (await ask("/v1/restore", body, signal)).json();
export const extract = async (body, signal) => (await ask("/v1/extract", body, signal)).json();

/** The texts of a document: its records, and what has none. */
export const readDocument = async (file, signal) =>
  (await ask(`/v1/documents?name=${encodeURIComponent(file.name)}`, file, signal)).json();

/** Call `onEntities` with the entities of each piece that arrives. Returns the last line. */
export async function extractStream(body, signal, onEntities) {
  const response = await ask("/v1/extract/stream", body, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let end;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    const entities = [];
    for (const line of lines) {
      const part = JSON.parse(line);
      if (part.error) throw new ApiError(response.status, part.error);
      if (part.entity) entities.push(part.entity);
      else end = part;
    }
    if (entities.length) onEntities(entities);
  }
  if (!end) throw new ApiError(response.status, { code: "incomplete", message: "the response ended early" });
  return end;
}

/** body: a file, or what is sent as JSON. */
async function ask(path, body, signal) {
  const isFile = body instanceof Blob;
  const headers = {};
  if (apiKey()) headers.Authorization = `Bearer ${apiKey()}`;
  if (body) headers["Content-Type"] = isFile ? "application/octet-stream" : "application/json";
  let response;
  try {
    response = await fetch(address(path), {
      method: body ? "POST" : "GET",
      body: isFile ? body : body && JSON.stringify(body),
      headers,
      signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { code: "unreachable", message: "the server does not answer" });
  }
  if (response.ok) return response;
  const content = await response.json().catch(() => null);
  const detail = content?.error?.code
    ? content.error
    : { code: `http_${response.status}`, message: response.statusText || "the request failed" };
  throw new ApiError(response.status, detail, response.headers.get("Retry-After"));
}
