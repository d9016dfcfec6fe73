// A hue for each label, by its place in the list. The style sheets turn a hue into readable colours for each theme.

const HUES = [255, 25, 150, 300, 75, 200, 350, 115, 275, 45, 175, 325];
const GOLDEN_ANGLE = 137.508;

const places = new Map();

/** Labels, in the order that decides their colours. */
export function setLabels(names) {
  places.clear();
  for (const name of names) if (!places.has(name)) places.set(name, places.size);
}

export function hueOf(label) {
  if (!places.has(label)) places.set(label, places.size);
  const place = places.get(label);
  return place < HUES.length ? HUES[place] : Math.round((place * GOLDEN_ANGLE) % 360);
}

/** Give an element the label's hue. */
export function paint(element, label) {
  element.style.setProperty("--hue", hueOf(label));
  return element;
}
