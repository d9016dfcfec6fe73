// The text without personal data: before and after, and an edited answer with the originals again.

import * as api from "./api.js";
import { CodeView, curl, literal, origin } from "./code_view.js";
import { paint } from "./colors.js";
import { byId, debounced, el } from "./dom.js";
import { offsetsOf } from "./extraction.js";
import { redactBody, state } from "./state.js";

const WAIT_MS = 300;
const SWITCHES = {
  recognizers: "Recognizers: also find numbers, addresses and secrets by their form",
  own_labels: "Only the labels on the left, from the score chosen there, instead of all personal data",
};
const MAX_SHOWN = 20_000; // characters of a text; what is sent is whole

export class RedactView {
  /** announce: says a sentence to screen readers. onChange: called when the visitor has moved the switch. */
  constructor(root, { announce, onChange }) {
    Object.assign(this, { _root: root, _announce: announce });
    this._switches = Object.entries(SWITCHES).map(([option, title]) => {
      const input = el("input", { type: "checkbox" });
      input.addEventListener("change", () => {
        state.options[option] = input.checked;
        onChange();
        this.draw();
      });
      root.append(el("label", { class: "check" }, input, el("span", { text: title })));
      return { option, input };
    });
    this._note = el("p", { class: "empty", role: "status" });
    this._before = el("div", { class: "text" });
    this._after = el("div", { class: "text" });
    this._answer = el("textarea", { id: "answer", rows: 4, spellcheck: "false" });
    this._answer.addEventListener("input", () => this._restoreSoon());
    this._restored = el("div", { class: "text" });
    this._counts = el("p", { class: "hint", role: "status" });
    this._codeRoot = el("div", { class: "code" });
    this._body = el(
      "div",
      { class: "redaction" },
      part("Before", this._before),
      part("After", this._after),
      part(el("label", { for: "answer", text: "Answer of a language model: edit it" }), this._answer),
      part("Restored", this._restored, this._counts),
      this._codeRoot,
    );
    this._body.addEventListener("mouseover", (event) => this._point(event.target.closest?.("[data-place]")));
    this._body.addEventListener("mouseleave", () => this._point(null));
    root.append(this._note, this._body);
    this._redactSoon = debounced(() => this._redact(), WAIT_MS);
    this._restoreSoon = debounced(() => this._restore(), WAIT_MS);
    this._clear("No text yet.");
  }

  /** Redact the text, if the tab is open and something has changed. extracted: the response of /v1/extract; a text
      that was not extracted is not redacted either. */
  draw(extracted = this._extracted) {
    for (const { option, input } of this._switches) input.checked = state.options[option];
    if (!this._root.clientHeight) return; // its tab is closed
    if (!extracted) {
      this._extracted = this._asked = null;
      return void this._clear("No text yet.");
    }
    const body = redactBody();
    const asked = JSON.stringify(body);
    if (extracted === this._extracted && asked === this._asked) return;
    Object.assign(this, { _extracted: extracted, _asked: asked, _request: body });
    this._stop();
    this._redactSoon();
  }

  async _redact() {
    if (!this._asked) return;
    this._stop();
    const running = (this._running = new AbortController());
    const body = this._request;
    try {
      const result = await api.redact(body, running.signal);
      if (this._running === running) this._show(body, result);
    } catch (error) {
      if (this._running === running) this._clear(messageOf(error));
    }
  }

  _show(body, result) {
    this._result = result;
    const spans = result.entities.map((one) => [one.start, one.end, one.label]);
    const placeholders = result.entities.map((one) => [one.redacted_start, one.redacted_end, one.label]);
    this._before.replaceChildren(...marked(body.text, spans));
    this._after.replaceChildren(...marked(result.texts[0], placeholders));
    this._answer.value = result.texts[0];
    this._note.hidden = true;
    this._body.hidden = false;
    const kinds = { curl: () => this._curl(), Python: () => this._python() };
    this._code ??= new CodeView(this._codeRoot, { kinds, announce: this._announce });
    this._restore();
  }

  async _restore() {
    if (!this._result) return;
    this._restoring?.abort();
    const restoring = (this._restoring = new AbortController());
    this._code.render();
    try {
      const body = { text: this._answer.value, mapping: this._result.mapping };
      const { texts, restored, ambiguous, unknown } = await api.restore(body, restoring.signal);
      if (this._restoring !== restoring) return;
      this._restored.replaceChildren(...marked(texts[0], []));
      const left = [...(ambiguous ? [`${ambiguous} ambiguous`] : []), ...(unknown.length ? [`unknown: ${unknown.join(", ")}`] : [])];
      this._counts.textContent = [`${restored} restored`, ...left].join(" · ");
    } catch (error) {
      if (this._restoring !== restoring) return;
      this._restored.replaceChildren();
      this._counts.textContent = messageOf(error);
    }
  }

  /** Forget the request that runs: its answer, and that it was aborted, are of no interest. */
  _stop() {
    this._running?.abort();
    this._running = null;
  }

  /** Show no text, and say why. */
  _clear(sentence) {
    this._stop();
    this._restoring?.abort();
    this._restoring = this._result = null;
    for (const element of [this._before, this._after, this._restored]) element.replaceChildren();
    this._answer.value = this._counts.textContent = "";
    this._code?.clear();
    this._note.textContent = sentence;
    this._note.hidden = false;
    this._body.hidden = true;
  }

  /** Highlight a value and its placeholder. */
  _point(element) {
    for (const mark of this._body.querySelectorAll("mark"))
      mark.classList.toggle("on", mark.dataset.place === element?.dataset.place);
  }

  _curl() {
    if (!this._result) return "";
    const restore = { text: this._answer.value, mapping: this._result.mapping };
    return `${curl("/v1/redact", this._request)}\n${curl("/v1/restore", restore)}`;
  }

  _python() {
    if (!this._result) return "";
    const { text, ...options } = this._request;
    const lines = Object.entries(options).map(([name, value]) => `        ${name}=${literal(value)},\n`);
    return (
      `# The client: ${origin()}/docs/quickstart.html#install\nfrom gliner_bento.client import Client\n\n` +
      `with Client(${literal(origin())}) as client:\n` +
      `    redacted = client.redact(\n        [${literal(text)}],\n${lines.join("")}    )\n    print(redacted.texts[0])\n` +
      `    answer = ${literal(this._answer.value)}  # of a language model\n` +
      "    print(client.restore(answer, redacted.mapping).texts[0])\n"
    );
  }
}

const part = (title, ...elements) =>
  el("section", {}, typeof title === "string" ? el("h2", { text: title }) : el("h2", {}, title), ...elements);

/** The text with marks, [start, end, label] in code points, in order. */
function marked(text, spans) {
  const unit = offsetsOf(text);
  const parts = [];
  let position = 0;
  for (const [place, [start, end, label]] of spans.entries()) {
    if (unit(end) > MAX_SHOWN) break;
    parts.push(text.slice(position, unit(start)));
    const mark = el("mark", { class: "first last", text: text.slice(unit(start), unit(end)), title: label, data: { place } });
    parts.push(paint(mark, label));
    position = unit(end);
  }
  const rest = text.length - MAX_SHOWN;
  parts.push(text.slice(position, rest > 0 ? MAX_SHOWN : undefined));
  if (rest > 0) parts.push(el("p", { class: "hint", text: `… ${rest.toLocaleString("en")} characters more` }));
  return parts;
}

function messageOf(error) {
  if (error instanceof api.ApiError) return error.message;
  throw error;
}
