// What is shown of a result: a legend that hides labels and relations, and the lowest scores. Nothing is asked again.

import { paint } from "./colors.js";
import { el } from "./dom.js";
import { relationKey } from "./extraction.js";
import { lowestScores, state } from "./state.js";

export class Filters {
  constructor(root, onChange) {
    this.hidden = new Set();
    this._onChange = onChange;
    this._legend = el("div", { class: "legend", role: "group", "aria-label": "Shown labels" });
    this._sliders = {
      entity: this._slider("entity", "Entity score"),
      relation: this._slider("relation", "Relation score"),
    };
    const sliders = el("div", { class: "sliders" }, ...Object.values(this._sliders).map(({ field }) => field));
    root.append(this._legend, sliders);
    this._buttons = new Map();
  }

  /** Count what the extraction has; `shown` decides which scores count. */
  render(extraction) {
    const counts = new Map();
    const lowest = { entity: lowestScores("entity"), relation: lowestScores("relation") };
    const isShown = ({ label, score }) => score >= lowest.entity(label);
    const count = (key, counted) => counts.set(key, (counts.get(key) ?? 0) + counted);
    for (const { name } of state.labels) counts.set(name, 0);
    for (const one of extraction.entities) count(one.label, isShown(one));
    for (const { relation, score, head, tail } of extraction.relations) {
      const hasEnds = isShown(extraction.entities[head]) && isShown(extraction.entities[tail]);
      count(relationKey(relation), hasEnds && score >= lowest.relation(relation));
    }
    const keys = [...counts.keys()];
    if (keys.join("\n") !== this._keys) {
      this._keys = keys.join("\n");
      this._buttons = new Map(keys.map((key) => [key, this._button(key)]));
      this._legend.replaceChildren(...this._buttons.values());
    }
    for (const [key, number] of counts) this._buttons.get(key).lastChild.textContent = number;
    this._sliders.relation.field.hidden = !state.relations.length;
    this._legend.hidden = !counts.size;
    for (const [name, slider] of Object.entries(this._sliders)) slider.set(state.scores[name]);
  }

  _button(key) {
    if (this._buttons.has(key)) return this._buttons.get(key);
    const button = el(
      "button",
      { type: "button", class: "toggle", "aria-pressed": String(!this.hidden.has(key)) },
      el("span", { text: key }),
      el("span", { class: "number" }),
    );
    if (!key.startsWith("→ ")) paint(button, key).classList.add("hue");
    button.addEventListener("click", () => {
      if (!this.hidden.delete(key)) this.hidden.add(key);
      button.setAttribute("aria-pressed", String(!this.hidden.has(key)));
      this._onChange();
    });
    return button;
  }

  _slider(name, title) {
    const input = el("input", { type: "range", min: 0.05, max: 1, step: 0.01 });
    const output = el("output");
    const set = (score) => {
      input.value = score;
      output.textContent = `≥ ${score.toFixed(2)}`;
    };
    input.addEventListener("input", () => {
      state.scores[name] = Number(input.value);
      set(state.scores[name]);
      this._onChange();
    });
    return { field: el("label", { class: "slider" }, el("span", { text: title }), input, output), set };
  }
}
