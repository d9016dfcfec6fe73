// The text with its entities: a tint and an underline for each, in lanes where they overlap.
//
// A long text is made of blocks. Only those near the visible part have elements for their entities.

import { Arcs } from "./arcs.js";
import { hueOf, paint } from "./colors.js";
import { eachFrame, el } from "./dom.js";
import { blocksOf, lanesOf, segmentsOf } from "./extraction.js";
import { headingsOf } from "./places.js";

const LANE_PX = 4;

class Block {
  constructor(text, [start, end]) {
    Object.assign(this, { start, end, entities: [], isNear: false, isStale: false });
    this.element = el("div", { class: "block", text: text.slice(start, end) });
  }
}

export class TextView {
  /** links: where entities are pointed at; see links.js. announce: says a sentence to screen readers. */
  constructor(root, { links, announce }) {
    this._root = root;
    this._links = links;
    this._announce = announce;
    this._content = el("div", { class: "content" });
    this._arcs = new Arcs(this._content, (index) => this.elementsOf(index), links);
    this._content.append(this._arcs.element);
    root.append(this._content);
    this._blocks = [];
    this._elements = new Map(); // of entities, by index: [element]
    this._drawArcs = eachFrame(() => this._arcs.draw(this._shown));
    this._observer = new IntersectionObserver((entries) => this._onNear(entries), { root, rootMargin: "600px 0px" });
    new ResizeObserver(this._drawArcs).observe(root);
    this._content.addEventListener("mouseover", (event) => links.point(entityAt(event)));
    this._content.addEventListener("mouseleave", () => links.point(null));
    root.addEventListener("keydown", (event) => this._key(event));
    links.listen((entities) => this._highlight(entities));
  }

  /** Elements of an entity, if it is near the visible part. */
  elementsOf(index) {
    return this._elements.get(index) ?? [];
  }

  /** Show another text, without entities yet, with the headings of its places. */
  setText(text, places) {
    this._text = text;
    this._shown = null;
    this._elements.clear();
    this._observer.disconnect();
    const headings = headingsOf(places);
    this._blocks = blocksOf(text, headings.map(([start]) => start)).map((range) => new Block(text, range));
    this._byElement = new Map(this._blocks.map((block) => [block.element, block]));
    let next = 0;
    const headingsBefore = (position) => {
      const first = next;
      while (headings[next]?.[0] <= position) next++;
      return headings.slice(first, next).map(([, heading]) => el("h2", { class: "place", text: heading }));
    };
    const elements = this._blocks.flatMap((block) => [...headingsBefore(block.start), block.element]);
    this._content.replaceChildren(...elements, ...headingsBefore(text.length), this._arcs.element);
    this._arcs.clear();
    for (const block of this._blocks) this._observer.observe(block.element);
  }

  /** Show these entities and relations of the text. */
  show(shown) {
    this._shown = shown;
    const { entities } = shown;
    let first = 0;
    for (const block of this._blocks) {
      const here = [];
      while (first < entities.length && entities[first].end <= block.start) first++;
      for (let i = first; i < entities.length && entities[i].start < block.end; i++)
        if (entities[i].end > block.start) here.push(entities[i]);
      block.isStale ||= !sameEntities(here, block.entities) || this._cut !== shown.extraction.truncatedAt;
      block.entities = here;
    }
    this._cut = shown.extraction.truncatedAt;
    for (const block of this._blocks) if (block.isNear && block.isStale) this._render(block);
    this._drawArcs();
  }

  /** Bring an entity into view, and highlight it. */
  reveal(index) {
    const entity = this._shown?.extraction.entities[index];
    const block = entity && this._blocks.find(({ end }) => entity.start < end);
    if (!block) return;
    if (!block.isNear || block.isStale) this._render(block);
    (this.elementsOf(index)[0] ?? block.element).scrollIntoView({ block: "nearest" });
    this._links.point([index]);
  }

  _onNear(entries) {
    for (const { target, isIntersecting } of entries) {
      const block = this._byElement.get(target);
      if (!block) continue;
      block.isNear = isIntersecting;
      if (isIntersecting && block.isStale) this._render(block);
    }
    this._drawArcs();
  }

  _render(block) {
    block.isStale = false;
    for (const element of block.element.querySelectorAll("mark")) this._forget(element);
    const lanes = lanesOf(block.entities);
    const parts = segmentsOf(block.entities, block.start, block.end).flatMap((segment) => this._parts(segment, lanes));
    block.element.replaceChildren(...parts);
  }

  _forget(element) {
    for (const index of indexesOf(element)) this._elements.delete(index);
  }

  _parts({ start, end, entities }, lanes) {
    const text = this._text.slice(start, end);
    if (!entities.length) return this._cut !== null && start >= this._cut ? [el("span", { class: "cut", text })] : [text];
    const mark = el("mark", { text, data: { entities: entities.map(({ index }) => index).join(" ") } });
    const near = entities.reduce((a, b) => (lanes.get(b.index) < lanes.get(a.index) ? b : a));
    paint(mark, near.label);
    underline(mark, entities, lanes);
    if (entities.some((entity) => entity.start === start)) mark.classList.add("first");
    if (entities.some((entity) => entity.end === end)) mark.classList.add("last");
    const ending = entities.filter((entity) => entity.end === end);
    for (const { index } of entities)
      if (this._elements.has(index)) this._elements.get(index).push(mark);
      else this._elements.set(index, [mark]);
    return [mark, ...ending.sort((a, b) => lanes.get(a.index) - lanes.get(b.index)).map(tag)];
  }

  _highlight(entities) {
    for (const element of this._lit ?? []) element.classList.remove("on");
    this._lit = entities.flatMap((index) => this.elementsOf(index));
    for (const element of this._lit) element.classList.add("on");
  }

  _key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const entities = this._shown?.entities;
    if (!step || !entities?.length) return;
    event.preventDefault();
    const now = entities.findIndex(({ index }) => index === this._current);
    const next = now < 0 ? (step > 0 ? 0 : entities.length - 1) : (now + step + entities.length) % entities.length;
    const { index, text, label, score } = entities[next];
    this._current = index;
    this.reveal(index);
    this._announce(`${text}: ${label}, score ${score.toFixed(2)}; ${next + 1} of ${entities.length}`);
  }
}

/** A line for each entity, each in its lane, measured from the text so that a line runs on over segments. */
function underline(mark, entities, lanes) {
  const depth = Math.max(...entities.map(({ index }) => lanes.get(index))) + 1;
  mark.style.setProperty("--depth", depth);
  mark.style.backgroundImage = entities
    .map(({ label }) => `light-dark(oklch(0.66 0.15 ${hueOf(label)}), oklch(0.72 0.14 ${hueOf(label)}))`)
    .map((color) => `linear-gradient(${color}, ${color})`)
    .join(", ");
  mark.style.backgroundPosition = entities
    .map(({ index }) => `0 calc(100% - ${(depth - 1 - lanes.get(index)) * LANE_PX}px)`)
    .join(", ");
}

function tag({ index, label, score }) {
  const element = el("span", { class: "tag", data: { entities: index } });
  element.append(label, " ", el("b", { text: score.toFixed(2) }));
  return paint(element, label);
}

const indexesOf = (element) => (element.dataset.entities ?? "").split(" ").filter(Boolean).map(Number);

function entityAt(event) {
  const element = event.target.closest?.("[data-entities]");
  return element ? indexesOf(element) : null;
}

const sameEntities = (one, other) => one.length === other.length && one.every((entity, i) => entity === other[i]);
