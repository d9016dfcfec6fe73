// A result that views share: its entities and relations, and which of them are shown. Knows no page.

/** Offsets of the API count code points; those of JavaScript count UTF-16 units. */
export function offsetsOf(text) {
  if (!/[\ud800-\udfff]/.test(text)) return (offset) => offset;
  const units = new Uint32Array(text.length + 1);
  let points = 0;
  for (let unit = 0; unit < text.length; unit += text.codePointAt(unit) > 0xffff ? 2 : 1) units[points++] = unit;
  units[points] = text.length;
  return (offset) => units[Math.min(offset, points)];
}

export class Extraction {
  /** places: of the text, see places.js. */
  constructor(text, places) {
    this.text = text;
    this.places = places;
    this.entities = []; // {index, start, end, text, label, score}, in order of position
    this.relations = []; // {index, relation, score, head, tail}: indexes of entities
    this.end = null; // the rest of the response, once it is complete
    this.latency_ms = 0;
    this.truncatedAt = null;
    this._unit = offsetsOf(text);
  }

  /** The part of the text up to the last entity, 0 to 1. */
  get progress() {
    if (this.end) return 1;
    const last = this.entities.at(-1);
    return last && this.text.length ? last.end / this.text.length : 0;
  }

  addEntities(entities) {
    for (const { start, end, text, label, score } of entities)
      this.entities.push({
        index: this.entities.length,
        start: this._unit(start),
        end: this._unit(end),
        text,
        label,
        score,
      });
  }

  complete(end, latency_ms) {
    this.end = end;
    this.latency_ms = latency_ms;
    this.truncatedAt = end.truncated_at === null ? null : this._unit(end.truncated_at);
    // Only those between entities are drawn; GLiNER2 models relate other spans too.
    const drawn = end.relations.filter(({ head, tail }) => head.entity_idx !== null && tail.entity_idx !== null);
    this.relations = drawn.map(({ relation, score, head, tail }, index) => ({
      index,
      relation,
      score,
      head: head.entity_idx,
      tail: tail.entity_idx,
    }));
  }
}

/** The name under which a relation is hidden; a label may have the same name. */
export const relationKey = (relation) => `→ ${relation}`;

/** What is shown of an extraction: by score, and without the labels that the visitor has hidden. */
export class Shown {
  /** lowest: {entity, relation}, from a name to the lowest score that is shown. */
  constructor(extraction, lowest, hidden) {
    const isShown = ({ score, label }) => score >= lowest.entity(label) && !hidden.has(label);
    this.extraction = extraction;
    this.entities = extraction.entities.filter(isShown);
    this.relations = extraction.relations.filter(
      ({ score, relation, head, tail }) =>
        score >= lowest.relation(relation) &&
        !hidden.has(relationKey(relation)) &&
        isShown(extraction.entities[head]) &&
        isShown(extraction.entities[tail]),
    );
  }
}

/** Lanes for underlines, so that overlapping spans have their own; shorter spans are nearer to the text. */
export function lanesOf(entities) {
  const lanes = []; // spans in each lane
  const laneOf = new Map();
  const byLength = [...entities].sort((a, b) => a.end - a.start - (b.end - b.start) || a.index - b.index);
  for (const entity of byLength) {
    let lane = 0;
    while (lanes[lane]?.some((other) => other.start < entity.end && entity.start < other.end)) lane++;
    (lanes[lane] ??= []).push(entity);
    laneOf.set(entity.index, lane);
  }
  return laneOf;
}

/** Pieces of the text from `start` to `end`, cut where an entity starts or ends: {start, end, entities}. */
export function segmentsOf(entities, start, end) {
  const cuts = new Set([start, end]);
  for (const entity of entities) {
    if (entity.start > start) cuts.add(entity.start);
    if (entity.end < end) cuts.add(entity.end);
  }
  const places = [...cuts].sort((a, b) => a - b);
  const segments = [];
  let first = 0; // entities before it have ended; they are in order of position
  for (let at = 0; at + 1 < places.length; at++) {
    const [from, to] = [places[at], places[at + 1]];
    while (first < entities.length && entities[first].end <= from) first++;
    const here = [];
    for (let i = first; i < entities.length && entities[i].start < to; i++)
      if (entities[i].end > from) here.push(entities[i]);
    segments.push({ start: from, end: to, entities: here });
  }
  return segments;
}

const BLOCK_CHARS = 1200;

/** Blocks of a text, [start, end]: paragraphs, small ones together, and long ones in parts that end at a space. cuts:
    where a block ends in any case, in order. */
export function blocksOf(text, cuts = []) {
  const blocks = [];
  const edges = [...cuts, text.length];
  for (let [start, next] = [0, 0]; start < text.length; ) {
    while (edges[next] <= start) next++;
    let end = Math.min(start + BLOCK_CHARS, edges[next]);
    if (end < edges[next]) {
      const line = text.lastIndexOf("\n", end - 1) + 1;
      const sentence = text.lastIndexOf(". ", end - 1) + 2;
      const space = text.lastIndexOf(" ", end - 1) + 1;
      end = [line, sentence, space].find((cut) => cut > start + BLOCK_CHARS / 4) ?? wholeCharacter(text, end);
    }
    blocks.push([start, end]);
    start = end;
  }
  return blocks;
}

function wholeCharacter(text, end) {
  return /[\udc00-\udfff]/.test(text[end]) ? end + 1 : end;
}
