// A list of labels or relations as chips: typed, or pasted as a list. A fold-out has their descriptions and thresholds, and
// the labels of a relation's heads and tails.

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

/** about: as in the API, a description, or an object that may have one, a threshold, and labels as head and tail. */
export function entry(name, about = "") {
  const { description, threshold, head, tail } = about && typeof about === "object" ? about : { description: about };
  return {
    name,
    description: typeof description === "string" && description !== name ? description : "",
    threshold: typeof threshold === "number" ? threshold : null,
    head: strings(head),
    tail: strings(tail),
  };
}

function strings(value) {
  return Array.isArray(value) ? value.filter((one) => typeof one === "string" && one) : [];
}

export class Chips {
  /**
   * kind: "label" or "relation"; labels have colours, relations have heads and tails.
   * onChange: called with the entries, as `entry` makes them.
   */
  constructor(root, { title, placeholder, kind, onChange }) {
    this.entries = [];
    this._onChange = onChange;
    this._kind = kind;
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
    if (this._kind === "label") paint(chip, one.name).classList.add("hue");
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
    if (this._kind === "label") paint(name, one.name);
    const row = el("div", { class: "row" }, el("label", {}, name, input), threshold);
    if (this._kind === "relation") row.append(this._ends(one, "head"), this._ends(one, "tail"));
    return row;
  }

  /** The labels that a relation's heads or tails (`end`) may have. */
  _ends(one, end) {
    const input = el("input", {
      ...{ value: one[end].join(", "), placeholder: `${end}: any label`, "aria-label": `Labels of ${one.name}'s ${end}` },
      on: {
        change: () => {
          one[end] = parseNames(input.value).map(({ name }) => name);
          this._onChange(this.entries);
        },
      },
    });
    return input;
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

