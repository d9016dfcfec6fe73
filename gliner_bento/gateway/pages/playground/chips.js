// A list of labels or relations as chips: typed, or pasted as a list; descriptions and thresholds are in a fold-out.

import { paint } from "./colors.js";
import { el } from "./dom.js";

/** Names in what was pasted or typed: JSON (a list, or names with descriptions), lines, or words between commas. */
export function parseNames(text) {
  try {
    const value = JSON.parse(text);
    if (Array.isArray(value)) return value.filter((name) => typeof name === "string").map((name) => entry(name));
    if (value && typeof value === "object") return Object.entries(value).map(([name, about]) => entry(name, about));
  } catch {
    // not JSON
  }
  return text
    .split(/[\n\t,;]/)
    .map((name) => entry(name.trim().replace(/^[-*•]\s+/, "")))
    .filter(({ name }) => name);
}

/** about: as in the API, a description, or an object that may have one and a threshold. */
export function entry(name, about = "") {
  const { description, threshold } = about && typeof about === "object" ? about : { description: about };
  return {
    name,
    description: typeof description === "string" && description !== name ? description : "",
    threshold: typeof threshold === "number" ? threshold : null,
  };
}

export class Chips {
  /** colored: whether the names have colours. onChange: called with the entries, [{name, description, threshold}]. */
  constructor(root, { title, placeholder, colored, onChange }) {
    this.entries = [];
    this._onChange = onChange;
    this._colored = colored;
    const id = `${root.id}-input`;
    this._list = el("ul", { class: "chips" });
    this._input = el("input", {
      id,
      placeholder,
      autocomplete: "off",
      spellcheck: "false",
      "aria-describedby": `${id}-hint`,
      on: {
        keydown: (event) => this._key(event),
        paste: (event) => this._paste(event),
        blur: () => this._commit(),
      },
    });
    this._rows = el("div", { class: "rows" });
    this._about = el("details", { class: "about" }, el("summary", { text: "Descriptions and thresholds" }), this._rows);
    const box = el("div", { class: "box", on: { click: (event) => event.target === box && this._input.focus() } });
    box.append(this._list, this._input);
    const hint = el("p", { id: `${id}-hint`, class: "unseen", text: "Enter or comma adds; Backspace removes the last" });
    const clear = el("button", { type: "button", class: "quiet", text: "Clear", on: { click: () => this._change([]) } });
    this._clear = clear;
    const heading = el("div", { class: "heading" }, el("label", { for: id, text: title }), clear);
    root.append(heading, box, hint, this._about);
  }

  /** Replace the list, without a call to `onChange`. */
  set(entries) {
    const seen = new Set();
    this.entries = entries.filter(({ name }) => !seen.has(name) && seen.add(name));
    this.render();
  }

  /** Mark the field as the one that an error is about. */
  invalid(isInvalid) {
    if (isInvalid) this._input.setAttribute("aria-invalid", "true");
    else this._input.removeAttribute("aria-invalid");
  }

  render() {
    this._list.replaceChildren(...this.entries.map((one) => this._chip(one)));
    this._rows.replaceChildren(...this.entries.map((one) => this._row(one)));
    this._about.hidden = this._clear.hidden = !this.entries.length;
  }

  _change(entries) {
    this.set(entries);
    this._onChange(this.entries);
  }

  _chip(one) {
    const remove = el("button", {
      type: "button",
      text: "×",
      "aria-label": `Remove ${one.name}`,
      on: {
        click: () => {
          this._change(this.entries.filter((other) => other !== one));
          this._input.focus();
        },
      },
    });
    const chip = el("li", { class: "chip", title: one.description || null }, el("span", { text: one.name }), remove);
    if (this._colored) paint(chip, one.name).classList.add("hue");
    return chip;
  }

  _row(one) {
    const input = el("input", {
      value: one.description,
      placeholder: "what the model should look for",
      on: {
        change: () => {
          one.description = input.value.trim();
          this._onChange(this.entries);
        },
      },
    });
    const threshold = el("input", {
      type: "number",
      ...{ min: 0, max: 1, step: 0.05, value: one.threshold, placeholder: "score ≥", "aria-label": `Threshold of ${one.name}` },
      on: {
        change: () => {
          one.threshold = threshold.value === "" ? null : Number(threshold.value);
          this._onChange(this.entries);
        },
      },
    });
    const name = el("span", { text: one.name });
    if (this._colored) paint(name, one.name);
    return el("div", { class: "row" }, el("label", {}, name, input), threshold);
  }

  _key(event) {
    if (event.isComposing) return;
    if ((event.key === "Enter" && !event.ctrlKey && !event.metaKey) || event.key === ",") {
      event.preventDefault();
      this._commit();
    } else if (event.key === "Backspace" && !this._input.value && this.entries.length) {
      this._change(this.entries.slice(0, -1));
    }
  }

  _paste(event) {
    const names = parseNames(event.clipboardData.getData("text"));
    if (names.length < 2) return; // a part of a name
    event.preventDefault();
    this._change([...this.entries, ...names]);
  }

  _commit() {
    const names = parseNames(this._input.value);
    this._input.value = "";
    if (names.length) this._change([...this.entries, ...names]);
  }
}

