// Relations as arcs over the text, from head to tail. An arc between lines leaves at one margin and enters at the other.

import { svg } from "./dom.js";

const MAX_ARCS = 80; // of which all are drawn; else those of the entity that is pointed at
const LEVEL_PX = 15;
const MAX_LEVELS = 6;
const HALF_CHAR_PX = 3.1; // of a name

export class Arcs {
  /** content: the element that has the text. elementsOf: elements of an entity, by its index. */
  constructor(content, elementsOf, links) {
    Object.assign(this, { _content: content, _elementsOf: elementsOf, _links: links });
    this.element = svg("svg", { class: "arcs", "aria-hidden": "true" });
    this._drawn = []; // [relation, element]
    this._pointed = [];
    links.listen((entities) => {
      this._pointed = entities;
      if (this._isCrowded) this.draw(this._shown);
      this._highlight();
    });
  }

  clear() {
    this.element.replaceChildren();
    this._drawn = [];
    this._setLevels(0);
  }

  draw(shown) {
    this._shown = shown;
    if (!shown) return;
    this._isCrowded = shown.relations.length > MAX_ARCS;
    const relations = shown.relations.filter(
      ({ head, tail }) =>
        this._elementsOf(head).length &&
        this._elementsOf(tail).length &&
        (!this._isCrowded || this._pointed.includes(head) || this._pointed.includes(tail)),
    );
    let pieces = this._pieces(relations);
    const levels = shown.relations.length ? Math.max(1, assignLevels(pieces)) : 0;
    if (this._isCrowded ? this._setLevels(2) : this._setLevels(levels)) {
      pieces = this._pieces(relations); // the lines have moved
      assignLevels(pieces);
    }
    placeNames(pieces, this._content.clientWidth);
    this._paint(pieces);
    this._highlight();
  }

  /** Make room between the lines. Returns whether they have moved. */
  _setLevels(levels) {
    if (this._levels === levels) return false;
    this._levels = levels;
    this._content.style.setProperty("--levels", levels);
    return true;
  }

  /** Horizontal pieces of the arcs, each above a line: {relation, row, left, right, ...}. */
  _pieces(relations) {
    const origin = this._content.getBoundingClientRect();
    const width = origin.width;
    const counts = new Map();
    const anchor = (index) => {
      const box = this._elementsOf(index)[0].getClientRects()[0];
      const used = counts.get(index) ?? 0;
      counts.set(index, used + 1);
      const aside = (used % 2 ? -1 : 1) * used * 6; // the next to the left, the one after to the right
      const inside = Math.min(Math.max(box.width / 2 + aside, 3), box.width - 3);
      return { x: box.left - origin.left + inside, y: box.top - origin.top };
    };
    return relations.flatMap((relation) => {
      const [head, tail] = [anchor(relation.head), anchor(relation.tail)];
      if (Math.abs(head.y - tail.y) < 6) return [piece(relation, head.y, head.x, tail.x, { head, tail })];
      const down = head.y < tail.y;
      return [
        piece(relation, head.y, head.x, down ? width : 0, { head }),
        piece(relation, tail.y, down ? 0 : width, tail.x, { tail }),
      ];
    });
  }

  _paint(pieces) {
    const groups = new Map();
    for (const part of pieces) {
      const { relation } = part;
      if (!groups.has(relation)) {
        const group = svg("g");
        group.addEventListener("mouseenter", () => this._links.point([relation.head, relation.tail]));
        group.addEventListener("mouseleave", () => this._links.point(null));
        groups.set(relation, group);
      }
      groups.get(relation).append(...lines(part));
    }
    this._drawn = [...groups];
    this.element.replaceChildren(...groups.values());
  }

  _highlight() {
    for (const [{ head, tail }, group] of this._drawn) {
      const isPointed = this._pointed.includes(head) || this._pointed.includes(tail);
      group.classList.toggle("on", isPointed);
      group.classList.toggle("off", !isPointed && this._pointed.length > 0);
    }
  }
}

function piece(relation, row, from, to, ends) {
  return { relation, row, from, to, left: Math.min(from, to), right: Math.max(from, to), level: 0, ...ends };
}

/** Give pieces above the same line different heights where they overlap, short ones the lowest. Returns the count. */
function assignLevels(pieces) {
  const rows = new Map(); // [[pieces of a level]]
  let highest = 0;
  for (const part of [...pieces].sort((a, b) => a.right - a.left - (b.right - b.left))) {
    const key = Math.round(part.row / 6);
    const levels = rows.get(key) ?? rows.set(key, []).get(key);
    const room = Math.max(0, halfName(part) - (part.right - part.left) / 2); // its name is wider
    part.level = 0;
    while (levels[part.level]?.some((other) => other.left < part.right + room && part.left - room < other.right))
      part.level++;
    part.level = Math.min(part.level, MAX_LEVELS - 1);
    (levels[part.level] ??= []).push({ left: part.left - room, right: part.right + room });
    highest = Math.max(highest, part.level + 1);
  }
  return highest;
}

const halfName = ({ relation }) => relation.relation.length * HALF_CHAR_PX + 3;

/** Choose where on its arc each name is: as near to the middle as it crosses no other name, and no end of a higher arc.
 * A name without such a place is shown only while its arc is pointed at. */
function placeNames(pieces, width) {
  const rows = Map.groupBy(pieces, ({ row }) => Math.round(row / 6));
  for (const row of rows.values()) {
    const taken = row.map(() => []); // of each level: [left, right]
    const isFree = (level, left, right) => !taken[level].some(([from, to]) => from < right && left < to);
    for (const { level, from, to, head, tail } of row)
      for (let below = 0; below < level; below++)
        taken[below].push(...[head && from, tail && to].filter(Number.isFinite).map((x) => [x - 4, x + 4]));
    for (const part of row.filter(({ head, from, to }) => head || Math.abs(to - from) > 60)) {
      const half = halfName(part);
      const [low, high] = [Math.max(part.left, 0) + half, Math.min(part.right, width) - half];
      const middle = Math.min(Math.max((part.left + part.right) / 2, half), width - half);
      const shifts = Array.from({ length: 200 }, (_, step) => (step % 2 ? 4 : -4) * Math.ceil(step / 2));
      const places = shifts.map((shift) => middle + shift).filter((x) => x === middle || (low <= x && x <= high));
      part.name = places.find((x) => isFree(part.level, x - half, x + half));
      part.middle = middle;
      if (part.name !== undefined) taken[part.level].push([part.name - half, part.name + half]);
    }
  }
}

function lines({ relation, row, from, to, head, tail, level, name, middle }) {
  const y = row - 9 - level * LEVEL_PX;
  const turn = Math.min(6, Math.abs(to - from) / 2) * Math.sign(to - from);
  const start = head ? `M${from},${row} V${y + 6} Q${from},${y} ${from + turn},${y}` : `M${from},${y}`;
  const end = tail ? `H${to - turn} Q${to},${y} ${to},${y + 6} V${row - 2}` : `H${to}`;
  const parts = [svg("path", { class: "line", d: `${start} ${end}` })];
  if (head) parts.push(svg("circle", { cx: from, cy: row, r: 2.2 }));
  if (tail) parts.push(svg("path", { class: "arrow", d: `M${to - 3.5},${row - 5} L${to},${row} L${to + 3.5},${row - 5}Z` }));
  if (middle !== undefined)
    parts.push(svg("text", { x: name ?? middle, y: y + 3.5, class: name === undefined ? "crowded" : "" }, relation.relation));
  return parts;
}
