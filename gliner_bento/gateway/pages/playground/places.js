// Where the texts of a document are: its pages, sheets, cells and other parts.

const OF_A_PAGE = ["page", "cell", "body"]; // what a page, a sheet or a text is without saying so

/** The records of /v1/documents as one text with empty lines between, over which no entity runs; and for each record
    where it starts: {text, places: [[start, heading, place]]}. */
export function joined(records) {
  const places = [];
  let text = "";
  for (const { text: own, ...about } of records) {
    const shown = own.replace(/\r\n?/g, "\n").trim(); // as a text field has line breaks
    if (shown && text) text += "\n\n";
    places.push([text.length, headingOf(about), placeOf(about)]);
    text += shown;
  }
  return { text, places };
}

function headingOf({ attachment, page, sheet, part }) {
  const own = page !== null ? `Page ${page}` : sheet !== null ? `Sheet ${sheet}` : part[0].toUpperCase() + part.slice(1);
  return attachment === null ? own : `${attachment}: ${own}`;
}

function placeOf({ attachment, page, sheet, cell, part }) {
  const at = page !== null ? `page ${page}` : sheet !== null ? [sheet, cell].filter(Boolean).join("!") : "";
  const own = at && OF_A_PAGE.includes(part) ? at : `${at} ${part}`.trim();
  return attachment === null ? own : `${attachment}: ${own}`;
}

/** The headings of a text, [[start, heading]], in order. */
export const headingsOf = (places) => places.filter(([, heading], i) => heading !== places[i - 1]?.[1]);

/** The place of a position; null in a text without places. */
export function placeAt(places, position) {
  let [low, high] = [0, places.length]; // the last that starts at or before the position is in between
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (places[middle][0] <= position) low = middle;
    else high = middle;
  }
  return places[low]?.[2] ?? null;
}

/** The places of a link, if they are of this kind. */
export function validPlaces(value) {
  const isPlace = (one) =>
    Array.isArray(one) && Number.isInteger(one[0]) && typeof one[1] === "string" && typeof one[2] === "string";
  return Array.isArray(value) && value.every(isPlace) ? value : [];
}
