// Files of a result: the response, a table of the entities that are shown, and a page with the marked text.

import { hueOf } from "./colors.js";
import { el } from "./dom.js";
import { segmentsOf } from "./extraction.js";
import { headingsOf, placeAt } from "./places.js";

const STYLE = `
:root { color-scheme: light dark; }
body { max-width: 46em; margin: 2em auto; padding: 0 1em; font: 16px/1.6 system-ui, sans-serif; }
main { white-space: pre-wrap; overflow-wrap: anywhere; }
h2 { margin: 0; border-bottom: 1px solid; font-size: 0.8em; opacity: 0.7; }
mark { padding: 0.1em 0.2em; border-radius: 0.25em; color: inherit; background: light-dark(oklch(0.92 0.06 var(--hue)), oklch(0.36 0.08 var(--hue))); }
`;

export class Downloads {
  /** shown: returns the `Shown` of now. */
  constructor(root, shown) {
    Object.assign(this, { _root: root, _shown: shown });
    const kinds = {
      JSON: () => ["extraction.json", "application/json", JSON.stringify(shown().extraction.end, null, 2)],
      CSV: () => ["entities.csv", "text/csv", asCsv(shown())],
      HTML: () => ["extraction.html", "text/html", asPage(shown())],
    };
    root.append(el("span", { text: "Download" }));
    for (const [kind, file] of Object.entries(kinds))
      root.append(el("button", { type: "button", class: "quiet", text: kind, on: { click: () => save(...file()) } }));
    root.hidden = true;
  }

  /** Offer the files once the result is complete. */
  draw() {
    this._root.hidden = !this._shown().extraction.end;
  }
}

function save(name, type, content) {
  const url = URL.createObjectURL(new Blob([content], { type: `${type};charset=utf-8` }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

const COLUMNS = ["start", "end", "text", "label", "score"];

/** A row for each entity, with the columns of `bulk`, and of a document with its place; offsets count code points. */
export function asCsv({ extraction, entities }) {
  const { places } = extraction;
  const rows = entities.map(({ index, start }) => {
    const row = COLUMNS.map((name) => quoted(extraction.end.entities[index][name]));
    return places.length ? [...row, quoted(placeAt(places, start))] : row;
  });
  return [places.length ? [...COLUMNS, "place"] : COLUMNS, ...rows].map((row) => `${row.join(",")}\r\n`).join("");
}

const quoted = (value) => (/[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);

/** A page of its own: it loads nothing. */
export function asPage({ extraction, entities }) {
  const marked = ({ start, end, entities: here }) => {
    const text = escaped(extraction.text.slice(start, end));
    if (!here.length) return text;
    const about = here.map(({ label, score }) => `${label} ${score.toFixed(2)}`).join(", ");
    return `<mark style="--hue: ${hueOf(here[0].label)}" title="${escaped(about)}">${text}</mark>`;
  };
  const headings = headingsOf(extraction.places);
  const sections = headings.length ? headings : [[0, ""]];
  const parts = sections.flatMap(([start, heading], i) => [
    heading && `<h2>${escaped(heading)}</h2>`,
    ...segmentsOf(entities, start, sections[i + 1]?.[0] ?? extraction.text.length).map(marked),
  ]);
  const names = [...new Set(entities.map(({ label }) => label))];
  const legend = names.map((label) => `<mark style="--hue: ${hueOf(label)}">${escaped(label)}</mark>`).join(" ");
  return (
    '<!doctype html>\n<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n' +
    `<title>Extraction</title>\n<style>${STYLE}</style>\n<p>${legend}</p>\n<main>${parts.join("")}</main>\n`
  );
}

const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
const escaped = (text) => text.replace(/[&<>"]/g, (character) => ENTITIES[character]);
