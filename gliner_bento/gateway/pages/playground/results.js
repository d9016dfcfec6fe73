// The views of a result, kept the same: text, tables, graph, code.

import { CodeView, kindsOf } from "./code_view.js";
import { byId, eachFrame } from "./dom.js";
import { Downloads } from "./downloads.js";
import { Extraction, Shown } from "./extraction.js";
import { Filters } from "./filters.js";
import { GraphView } from "./graph_view.js";
import { Links } from "./links.js";
import { placeAt } from "./places.js";
import { RedactView } from "./redact_view.js";
import { can, lowestScores, state } from "./state.js";
import { TableView, labelCell, scoreCell } from "./table_view.js";
import { Tabs } from "./tabs.js";
import { TextView } from "./text_view.js";

export class Results {
  /** onFilter: called when the visitor has moved a slider or hidden a label. */
  constructor(onFilter) {
    const links = new Links();
    const announce = (sentence) => (byId("focused").textContent = sentence);
    const onChoose = (index) => this._text.reveal(index);
    this._extraction = null;
    this._text = new TextView(byId("document"), { links, announce });
    const titles = { entities: "Entities", relations: "Relations", graph: "Graph", redacted: "Redacted", code: "Code" };
    this._tabs = new Tabs(byId("panel"), "Views", titles, () => this._drawOpen());
    const { panels } = this._tabs;
    const entityOf = (index) => this._extraction.entities[index];
    this._entities = new TableView(panels.entities, {
      ...{ name: "Entities", links, onChoose, empty: "No entities yet." },
      columns: [
        { title: "Entity", value: (row) => row.text.toLowerCase(), cell: (row) => row.text, class: "wide" },
        { title: "Label", value: (row) => row.label, cell: (row) => labelCell(row.label) },
        { title: "Score", value: (row) => row.score, cell: (row) => scoreCell(row.score), descending: true, class: "figure" },
        { title: "Position", value: (row) => row.start, cell: (row) => placeAt(this._extraction.places, row.start) ?? `${row.start}–${row.end}`, class: "right" },
      ],
      entitiesOf: (row) => (row ? [row.index] : []),
    });
    this._relations = new TableView(panels.relations, {
      ...{ name: "Relations", links, onChoose, empty: "No relations yet." },
      columns: [
        { title: "Head", value: (row) => entityOf(row.head).text, cell: (row) => entityOf(row.head).text, class: "wide" },
        { title: "Relation", value: (row) => row.relation, cell: (row) => row.relation },
        { title: "Tail", value: (row) => entityOf(row.tail).text, cell: (row) => entityOf(row.tail).text, class: "wide" },
        { title: "Score", value: (row) => row.score, cell: (row) => scoreCell(row.score), descending: true, class: "figure" },
      ],
      entitiesOf: (row) => (row ? [row.head, row.tail] : []),
    });
    this._graph = new GraphView(panels.graph, { links, onChoose });
    this._redacted = new RedactView(panels.redacted, { announce, onChange: onFilter });
    this._code = new CodeView(panels.code, { kinds: kindsOf(() => this.response), announce });
    this._filters = new Filters(byId("filters"), () => {
      this.draw();
      onFilter();
    });
    this._downloads = new Downloads(byId("downloads"), () => this._shown);
    this.draw = eachFrame(() => this._drawNow());
  }

  /** The response as the API gave it. */
  response = null;

  /** Show an extraction, which may still grow: call `draw` then. */
  show(extraction) {
    const { text, places } = extraction;
    if (text !== this._extraction?.text || places !== this._extraction.places) this._text.setText(text, places);
    this._extraction = extraction;
    this.draw();
  }

  /** Show a text without a result. */
  clear(text) {
    this.response = null;
    this.show(new Extraction(text, state.places));
  }

  /** Show the views of what the model can do. */
  showAbilities() {
    const views = { entities: can.entities, relations: can.relations, graph: can.relations, redacted: can.entities, code: true };
    this._tabs.setVisible(Object.keys(views).filter((name) => views[name]));
    byId("filters").hidden = !can.entities;
  }

  /** Show the request as code again: the state has changed. */
  drawCode() {
    if (this._tabs.current === "code") this._code.render();
  }

  _drawNow() {
    if (!this._extraction) return;
    const lowest = { entity: lowestScores("entity"), relation: lowestScores("relation") };
    this._shown = new Shown(this._extraction, lowest, this._filters.hidden);
    this._filters.render(this._extraction);
    this._text.show(this._shown);
    this._entities.setRows(this._shown.entities);
    this._relations.setRows(this._shown.relations);
    this._tabs.setCount("entities", this._shown.entities.length);
    this._tabs.setCount("relations", this._shown.relations.length);
    this._downloads.draw();
    this._drawOpen();
  }

  _drawOpen() {
    if (this._shown) this._graph.show(this._shown);
    this._redacted.draw(this.response);
    this._code.render();
    this._entities.draw();
    this._relations.draw();
  }
}
