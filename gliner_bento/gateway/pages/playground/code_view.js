// The request as code to copy, and the response.

import { address, apiKey } from "./api.js";
import { el } from "./dom.js";
import { requestBody } from "./state.js";

const MAX_SHOWN = 4000; // characters of code; what is copied is whole

/** What is shown of the request that the visitor has entered. response: returns the last response. */
export const kindsOf = (response) => ({
  curl: () => curl("/v1/extract", requestBody({ asked: false })),
  Python: () => python(requestBody({ asked: false })),
  JSON: () => json(requestBody({ asked: false })),
  Response: () => (response() ? JSON.stringify(response(), null, 2) : ""),
});

/** A line for each field. */
function json(body) {
  const spaced = (value) => {
    if (Array.isArray(value)) return `[${value.map(spaced).join(", ")}]`;
    if (typeof value !== "object") return JSON.stringify(value);
    return `{${Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${spaced(one)}`).join(", ")}}`;
  };
  const lines = Object.entries(body).map(([name, value]) => `  ${JSON.stringify(name)}: ${spaced(value)}`);
  return `{\n${lines.join(",\n")}\n}`;
}

/** A here-document: nothing in the JSON has a meaning for the shell. */
export function curl(path, body) {
  const key = apiKey() ? " \\\n  -H \"Authorization: Bearer $GLINER_CLIENT_API_KEY\"" : "";
  return (
    `curl -s ${address(path)} \\\n  -H 'Content-Type: application/json'${key} \\\n  --data-binary @- <<'JSON'\n` +
    `${json(body)}\nJSON\n`
  );
}

/** The server's address, as clients take it. */
export const origin = () => address("/").replace(/\/$/, "");

function python({ text, ...options }) {
  const lines = Object.entries(options).map(([name, value]) => `        ${name}=${literal(value)},\n`);
  const relations = options.relations
    ? "    for relation in answer.relations:\n        print(relation.head.text, relation.relation, relation.tail.text, round(relation.score, 2))\n"
    : "";
  const classes = options.classifications
    ? "    for name, result in answer.classifications.items():\n        print(name, [(one.label, round(one.score, 2)) for one in result.labels])\n"
    : "";
  const records = options.structures
    ? "    for name, instances in answer.structures.items():\n        print(name, [{field: [one.text for one in values] for field, values in found.items()} for found in instances])\n"
    : "";
  const entities = options.labels
    ? "    for entity in answer.entities:\n        print(entity.text, entity.label, round(entity.score, 2))\n"
    : "";
  return (
    `# The client: ${origin()}/docs/quickstart.html#install\nfrom gliner_bento.client import Client\n\nwith Client(${literal(origin())}) as client:\n` +
    `    answer = client.extract(\n        ${literal(text)},\n${lines.join("")}    )\n` +
    `${entities}${relations}${classes}${records}`
  );
}

/** A value of JSON as Python writes it. */
export function literal(value) {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object")
    return `{${Object.entries(value).map(([name, one]) => `${literal(name)}: ${literal(one)}`).join(", ")}}`;
  return JSON.stringify(value);
}

export class CodeView {
  /** kinds: by name, what returns the code. */
  constructor(root, { kinds, announce }) {
    Object.assign(this, { _root: root, _kinds: kinds, _announce: announce });
    this._kind = "curl";
    this._pre = el("pre", { tabindex: 0, role: "region", "aria-label": "Code" });
    this._copy = el("button", { type: "button", class: "quiet", text: "Copy", on: { click: () => this._toClipboard() } });
    this._buttons = Object.keys(kinds).map((kind) =>
      el("button", { type: "button", class: "choice", text: kind, on: { click: () => this._choose(kind) } }),
    );
    const bar = el("div", { class: "choices", role: "group", "aria-label": "Language" }, ...this._buttons, this._copy);
    root.append(bar, this._pre);
    this._choose(this._kind);
  }

  get code() {
    return this._kinds[this._kind]();
  }

  render() {
    if (!this._root.clientHeight) return; // its tab is closed
    const { code } = this;
    const rest = code.length - MAX_SHOWN;
    this._pre.textContent = rest > 0 ? `${code.slice(0, MAX_SHOWN)}\n… ${rest.toLocaleString("en")} characters more` : code;
  }

  clear() {
    this._pre.textContent = "";
  }

  _choose(kind) {
    this._kind = kind;
    for (const button of this._buttons) button.setAttribute("aria-pressed", String(button.textContent === kind));
    this.render();
  }

  async _toClipboard() {
    try {
      await navigator.clipboard.writeText(this.code);
      this._say("Copied");
    } catch {
      getSelection().selectAllChildren(this._pre); // not a secure origin, or not allowed
      this._say("Selected: press Ctrl+C");
    }
  }

  _say(text) {
    this._copy.textContent = text;
    this._announce(text);
    setTimeout(() => (this._copy.textContent = "Copy"), 1500);
  }
}
