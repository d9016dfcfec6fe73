// Entities and relations as tables. Of a long table only the rows near the visible part are elements.

import { paint } from "./colors.js";
import { eachFrame, el } from "./dom.js";

const ROW_PX = 34; // as in results.css
const MARGIN_ROWS = 12;

export class TableView {
  /** columns: [{title, value(row) to sort by, cell(row) -> element or string, wide}]; entitiesOf(row) -> indexes. */
  constructor(root, { name, columns, entitiesOf, links, onChoose, empty }) {
    Object.assign(this, { _root: root, _columns: columns, _entitiesOf: entitiesOf, _links: links, _onChoose: onChoose });
    this._rows = [];
    this._sort = { column: null, up: true };
    this._body = el("tbody");
    this._heads = columns.map((column) => this._head(column));
    this._table = el("table", { "aria-label": name }, el("thead", {}, el("tr", {}, ...this._heads)), this._body);
    this._empty = el("p", { class: "empty", text: empty });
    root.append(this._table, this._empty);
    this.draw = eachFrame(() => this._drawNow());
    root.addEventListener("scroll", this.draw, { passive: true });
    new ResizeObserver(this.draw).observe(root);
    this._body.addEventListener("mouseover", (event) => links.point(this._pointed(event)));
    this._body.addEventListener("mouseleave", () => links.point(null));
    this._body.addEventListener("click", (event) => this._choose(this._pointed(event)));
    links.listen((entities) => this._highlight(entities));
  }

  setRows(rows) {
    this._all = rows;
    this._order();
  }

  _head(column) {
    const button = el("button", { type: "button", text: column.title, on: { click: () => this._sortBy(column) } });
    return el("th", { scope: "col", "aria-sort": "none", class: column.class }, button);
  }

  _sortBy(column) {
    this._sort = { column, up: this._sort.column === column ? !this._sort.up : !column.descending };
    this._heads.forEach((head, i) => {
      const direction = this._sort.up ? "ascending" : "descending";
      head.setAttribute("aria-sort", this._columns[i] === column ? direction : "none");
    });
    this._order();
  }

  _order() {
    const { column, up } = this._sort;
    this._rows = column ? sorted(this._all, column.value, up) : this._all;
    this._table.setAttribute("aria-rowcount", this._rows.length + 1);
    this._table.hidden = !this._rows.length;
    this._empty.hidden = this._rows.length > 0;
    this._isStale = true;
    this.draw();
  }

  _drawNow() {
    if (!this._root.clientHeight) return; // its tab is closed
    const first = Math.max(0, Math.floor(this._root.scrollTop / ROW_PX) - MARGIN_ROWS);
    const last = Math.min(this._rows.length, first + Math.ceil(this._root.clientHeight / ROW_PX) + 2 * MARGIN_ROWS);
    if (!this._isStale && first === this._first && last === this._last) return;
    Object.assign(this, { _first: first, _last: last, _isStale: false });
    const rows = this._rows.slice(first, last).map((row, i) => this._line(row, first + i));
    this._body.replaceChildren(space(first), ...rows, space(this._rows.length - last));
  }

  _line(row, place) {
    const cells = this._columns.map((column) => {
      const content = column.cell(row);
      return el("td", { class: column.class, title: typeof content === "string" ? content : null }, content);
    });
    return el("tr", { data: { place }, "aria-rowindex": place + 2 }, ...cells);
  }

  _pointed(event) {
    const line = event.target.closest("tr[data-place]");
    return line ? this._entitiesOf(this._rows[line.dataset.place]) : null;
  }

  _choose(entities) {
    if (entities) this._onChoose(entities[0]);
  }

  _highlight(entities) {
    for (const line of this._body.querySelectorAll("tr[data-place]")) {
      const own = this._entitiesOf(this._rows[line.dataset.place] ?? null);
      line.classList.toggle("on", own.some((index) => entities.includes(index)));
    }
  }
}

/** A label in its colour. */
export const labelCell = (label) => paint(el("span", { class: "label", text: label }), label);

/** A score as a bar and a number. */
export function scoreCell(score) {
  const cell = el("span", { class: "score", text: score.toFixed(3) });
  cell.style.setProperty("--score", score);
  return cell;
}

function space(rows) {
  const line = el("tr", { class: "space", "aria-hidden": "true" }, el("td"));
  line.style.height = `${rows * ROW_PX}px`;
  line.hidden = !rows;
  return line;
}

const collator = new Intl.Collator(); // localeCompare makes one for each comparison

function sorted(rows, value, up) {
  const keyed = rows.map((row) => [value(row), row]);
  const compare = typeof keyed[0]?.[0] === "string" ? collator.compare : (a, b) => a - b;
  keyed.sort(([a], [b]) => (up ? compare(a, b) : compare(b, a)));
  return keyed.map(([, row]) => row);
}
