// How a text is processed: the fields of a request that have defaults.

import { el } from "./dom.js";
import { state } from "./state.js";

export class Options {
  constructor(root, onChange) {
    this._onChange = onChange;
    this._inputs = {};
    this._adapters = el("datalist", { id: "adapters" });
    this._adapter = this._text("adapter_id", "Adapter", { placeholder: "base model", list: "adapters" });
    this._window = [
      this._number("window_words", "Words per window"),
      this._number("window_overlap_words", "Overlap in words"),
    ];
    root.append(
      this._adapter,
      this._adapters,
      this._select("long_text", "Long texts", {
        window: "Process in windows",
        truncate: "Truncate",
        reject: "Reject",
      }),
      el("div", { class: "pair" }, ...this._window),
      this._select("on_limit", "Too many entities", { error: "Fail with an error", truncate: "Return the best" }),
      this._select("response", "Response", {
        auto: "Streamed if the text is long",
        stream: "Streamed",
        whole: "In one piece",
      }),
      this._check("nested", "Allow overlapping entities"),
      this._check("multi_label", "Allow several labels for a span"),
      this._check("live", "Run as you type"),
    );
  }

  /** Show what the state has. */
  render() {
    for (const [name, input] of Object.entries(this._inputs))
      if (input.type === "checkbox") input.checked = state.options[name];
      else input.value = state.options[name];
    this._enable();
  }

  /** Leave out what the model cannot do, and say what the defaults are. */
  setModel(model) {
    this._adapter.hidden = !model.supports_adapters;
    this._inputs.window_words.placeholder = `up to ${model.max_words}`;
  }

  setAdapters(adapters) {
    this._adapters.replaceChildren(...adapters.map(({ id }) => el("option", { value: id })));
  }

  /** Mark the field that an error is about. Returns whether it is one of these. */
  invalid(param) {
    for (const [name, input] of Object.entries(this._inputs))
      if (name === param) input.setAttribute("aria-invalid", "true");
      else input.removeAttribute("aria-invalid");
    return param in this._inputs;
  }

  _enable() {
    for (const field of this._window) field.hidden = state.options.long_text !== "window";
  }

  _register(name, input, read) {
    this._inputs[name] = input;
    input.addEventListener("change", () => {
      state.options[name] = read();
      this._enable();
      this._onChange();
    });
    return input;
  }

  _text(name, title, attributes) {
    const input = el("input", { autocomplete: "off", spellcheck: "false", ...attributes });
    return labelled(title, this._register(name, input, () => input.value.trim()));
  }

  _number(name, title) {
    const input = el("input", { type: "number", min: 0, step: 1, placeholder: "default" });
    return labelled(title, this._register(name, input, () => input.value));
  }

  _select(name, title, choices) {
    const options = Object.entries(choices).map(([value, text]) => el("option", { value, text }));
    const input = el("select", {}, ...options);
    return labelled(title, this._register(name, input, () => input.value));
  }

  _check(name, title) {
    const input = el("input", { type: "checkbox" });
    return el("label", { class: "check" }, this._register(name, input, () => input.checked), el("span", { text: title }));
  }
}

const labelled = (title, input) => el("label", {}, el("span", { text: title }), input);
