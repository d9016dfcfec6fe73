// What is shown of a result: for entities and for relations the lowest score, and names that hide them. Nothing is asked
// again.

import { paint } from "./colors.js";
import { el } from "./dom.js";
import { relationKey } from "./extraction.js";
import { lowestScores, state } from "./state.js";

export class Filters {
  constructor(root, onChange) {
    this.hidden = new Set();
    this._onChange = onChange;
    this._rows = {
      entity: this._row("entity", "Entity score", "Shown labels"),
      relation: this._row("relation", "Relation score", "Shown relations"),
    };
    root.append(
      ...Object.values(this._rows).map(({ element }) => element),
      el("p", { class: "hint", text: "What has at least this score is shown. Click a name to hide it." }),
    );
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
      for (const row of Object.values(this._rows)) row.legend.replaceChildren();
      for (const [key, button] of this._buttons) this._rows[isRelation(key) ? "relation" : "entity"].legend.append(button);
    }
    for (const [key, number] of counts) this._buttons.get(key).lastChild.textContent = number;
    this._rows.relation.element.hidden = !state.relations.length;
    for (const [name, row] of Object.entries(this._rows)) row.set(state.scores[name]);
  }

  _button(key) {
    if (this._buttons.has(key)) return this._buttons.get(key);
    const button = el(
      "button",
      { type: "button", class: "toggle", "aria-pressed": String(!this.hidden.has(key)) },
      el("span", { text: key }),
      el("span", { class: "number" }),
    );
    if (!isRelation(key)) paint(button, key).classList.add("hue");
    button.addEventListener("click", () => {
      if (!this.hidden.delete(key)) this.hidden.add(key);
      button.setAttribute("aria-pressed", String(!this.hidden.has(key)));
      this._onChange();
    });
    return button;
  }

  _row(name, title, names) {
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
    const slider = el("label", { class: "slider" }, el("span", { text: title }), input, output);
    const legend = el("div", { class: "legend", role: "group", "aria-label": names });
    return { element: el("div", { class: "filter" }, slider, legend), legend, set };
  }
}

const isRelation = (key) => key.startsWith(relationKey(""));
