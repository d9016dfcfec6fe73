// Relations as a graph. Mentions with the same label and text are one node; the library is loaded when it is first shown.

import { hueOf } from "./colors.js";
import { el } from "./dom.js";

const MAX_NODES = 80;
const PX2_PER_NODE = 25_000; // area in which the names of a node and its edges have room
const ZOOM_STEP = 1.4;
const MAX_FITTED_ZOOM = 1.6;

/** Nodes and edges of the shown relations: those with the most relations first, MAX_NODES at most. */
export function graphOf({ extraction, relations }) {
  const nodes = new Map(); // {id, text, label, entities, degree}
  const nodeOf = (index) => {
    const { label, text } = extraction.entities[index];
    const id = `${label}\n${text.toLowerCase().replace(/\s+/g, " ")}`;
    if (!nodes.has(id)) nodes.set(id, { id, text, label, entities: new Set(), degree: 0 });
    const node = nodes.get(id);
    node.entities.add(index);
    node.degree++;
    return node;
  };
  const edges = new Map(); // {id, source, target, name, entities}
  for (const { relation, head, tail } of relations) {
    const [source, target] = [nodeOf(head), nodeOf(tail)];
    const id = JSON.stringify([source.id, relation, target.id]);
    if (!edges.has(id)) edges.set(id, { id, source: source.id, target: target.id, name: relation, entities: new Set() });
    edges.get(id).entities.add(head).add(tail);
  }
  const kept = [...nodes.values()].sort((a, b) => b.degree - a.degree).slice(0, MAX_NODES);
  const ids = new Set(kept.map(({ id }) => id));
  return {
    nodes: kept,
    edges: [...edges.values()].filter(({ source, target }) => ids.has(source) && ids.has(target)),
    left_out: nodes.size - kept.length,
  };
}

export class GraphView {
  constructor(root, { links, onChoose }) {
    Object.assign(this, { _root: root, _links: links, _onChoose: onChoose });
    this._canvas = el("div", { class: "canvas", role: "img", "aria-label": "Graph of the relations" });
    this._note = el("p", { class: "hint", role: "note" });
    root.append(this._canvas, this._toolbar(), this._note);
    links.listen((entities) => this._highlight(entities));
    document.addEventListener("themechange", () => this._graph?.style(styleOf(this._canvas, this._note)));
    new ResizeObserver(() => this._graph && fit(this._graph.resize())).observe(this._canvas);
    root.addEventListener("keydown", ({ key }) => key === "Escape" && this._setLarge(false));
  }

  /** Buttons that change the view: the wheel and dragging do the same. */
  _toolbar() {
    const button = (text, name, click) =>
      el("button", { type: "button", class: "quiet", text, title: name, "aria-label": name, on: { click } });
    this._largeButton = button("Full screen", "Full screen", () => this._setLarge(!this._root.classList.contains("large")));
    this._tools = el(
      "div",
      { class: "tools", role: "group", "aria-label": "View of the graph" },
      button("−", "Zoom out", () => this._zoom(1 / ZOOM_STEP)),
      button("+", "Zoom in", () => this._zoom(ZOOM_STEP)),
      button("Fit", "Fit the graph", () => this._graph && fit(this._graph)),
      this._largeButton,
    );
    return this._tools;
  }

  _zoom(factor) {
    if (!this._graph) return;
    const center = { x: this._graph.width() / 2, y: this._graph.height() / 2 };
    this._graph.zoom({ level: this._graph.zoom() * factor, renderedPosition: center });
  }

  /** Fill the window, where the graph is arranged for the larger area, or return to the tab. */
  _setLarge(isLarge) {
    if (isLarge === this._root.classList.contains("large")) return;
    this._root.classList.toggle("large", isLarge);
    this._largeButton.textContent = isLarge ? "Close" : "Full screen";
    this._largeButton.title = this._largeButton.ariaLabel = isLarge ? "Close the full screen" : "Full screen";
    this._graph?.resize();
    if (this._graph) arrange(this._graph, this._graph.nodes().length);
  }

  async show(shown) {
    this._shown = shown;
    if (!this._root.clientHeight) return; // its tab is closed
    const { nodes, edges, left_out } = graphOf(shown);
    const signature = JSON.stringify([nodes.map(({ id }) => id), edges.map(({ id }) => id)]);
    const { default: cytoscape } = nodes.length ? await import("./vendor/cytoscape.esm.min.mjs") : {};
    if (this._shown !== shown) return;
    this._canvas.hidden = this._tools.hidden = !nodes.length;
    this._canvas.setAttribute("aria-label", `Graph of ${nodes.length} entities and ${edges.length} relations`);
    this._note.textContent = nodes.length
      ? left_out && `The ${nodes.length} entities with the most relations; ${left_out} more are in the table.`
      : "No relations to draw.";
    this._note.hidden = nodes.length > 0 && !left_out;
    if (!nodes.length) return;
    if (signature === this._signature) return void this._refresh(nodes, edges);
    this._signature = signature;
    this._graph?.destroy();
    this._graph = cytoscape({
      container: this._canvas,
      elements: [...nodes.map(nodeElement), ...edges.map(edgeElement)],
      style: styleOf(this._canvas, this._note),
      layout: { name: "null" },
      minZoom: 0.2,
      maxZoom: 3,
      boxSelectionEnabled: false,
    });
    arrange(this._graph, nodes.length);
    this._graph.on("mouseover", "node, edge", ({ target }) => this._links.point(target.data("entities")));
    this._graph.on("mouseout", "node, edge", () => this._links.point(null));
    this._graph.on("tap", "node", ({ target }) => this._onChoose(target.data("entities")[0]));
  }

  /** The same nodes may stand for other mentions. */
  _refresh(nodes, edges) {
    for (const { id, entities } of [...nodes, ...edges]) this._graph.getElementById(id).data("entities", [...entities]);
  }

  _highlight(entities) {
    if (!this._graph || !this._root.clientHeight) return;
    this._graph.batch(() => {
      this._graph.elements().removeClass("on off");
      if (!entities.length) return;
      const isPointed = (element) => element.data("entities").some((index) => entities.includes(index));
      const nodes = this._graph.nodes().filter(isPointed);
      if (!nodes.length) return;
      const near = nodes.union(nodes.edgesWith(nodes)).union(entities.length === 1 ? nodes.closedNeighborhood() : nodes);
      this._graph.elements().addClass("off");
      near.removeClass("off");
      nodes.addClass("on");
    });
  }
}

const PADDING_PX = 40; // no node is behind the buttons at the top

/** Show the whole graph; a small one is not enlarged further than its names are easy to read. */
function fit(graph) {
  graph.fit(undefined, PADDING_PX);
  if (graph.zoom() > MAX_FITTED_ZOOM) graph.zoom(MAX_FITTED_ZOOM).center();
}

const nodeElement = ({ id, text, label, entities }) => ({
  data: { id, text: text.length > 28 ? `${text.slice(0, 27)}…` : text, hue: hueOf(label), entities: [...entities] },
});

const edgeElement = ({ id, source, target, name, entities }) => ({
  data: { id, source, target, name, entities: [...entities] },
});

const CHAR_PX = 5.6; // of a relation's name

/** Place the nodes, in the canvas's proportions: of several layouts, the one in which the fewest names are hidden, then the
 * largest on the canvas. The same graph on the same canvas has the same picture. */
function arrange(graph, count) {
  let best = { hidden: Infinity };
  const tried = () => {
    const [hidden, box] = [hiddenNames(graph), graph.elements().boundingBox()];
    const zoom = Math.min(graph.width() / (box.w + 2 * PADDING_PX), graph.height() / (box.h + 2 * PADDING_PX));
    if (hidden < best.hidden || (hidden === best.hidden && zoom > best.zoom))
      best = { hidden, zoom, places: graph.nodes().map((node) => ({ ...node.position() })) };
    return hidden;
  };
  const tries = count > 40 ? 1 : count > 12 ? 6 : 12;
  for (let attempt = 0; attempt < tries; attempt++) {
    place(graph, count, attempt);
    for (let step = 0; step < 12 && !tried(); step++)
      graph.nodes().positions((node) => ({ x: node.position("x") * 0.9, y: node.position("y") * 0.9 }));
  }
  graph.nodes().positions((_, index) => best.places[index]);
  fit(graph);
}

function place(graph, count, attempt) {
  const needed = Math.sqrt((count * PX2_PER_NODE) / (graph.width() * graph.height()));
  const size = (1 + (count > 12 ? 0.35 : 0.1) * attempt) * Math.max(1, needed);
  const [w, h] = [graph.width() * size, graph.height() * size];
  const options = { animate: false, fit: false, randomize: false, boundingBox: { x1: 0, y1: 0, w, h } };
  if (count > 40) return graph.layout({ name: "concentric", minNodeSpacing: 30, ...options }).run();
  graph.nodes().positions((_, index) => {
    const [angle, radius] = [2.4 * index + attempt, Math.sqrt((index + 0.5) / count) / 2];
    return { x: w * (0.5 + radius * Math.cos(angle)), y: h * (0.5 + radius * Math.sin(angle)) };
  });
  const idealEdgeLength = (edge) => 50 + CHAR_PX * edge.data("name").length;
  const nodeRepulsion = count > 12 ? [5e3, 2e3, 2e4][attempt % 3] : 2e4; // in a large graph, edges of equal length need less
  graph.layout({ name: "cose", idealEdgeLength, nodeRepulsion, nodeOverlap: 30, ...options }).run();
}

/** How many names a node, its text or another name hides. */
export function hiddenNames(graph) {
  const boxes = graph.nodes().map((node) => node.boundingBox({ includeOverlays: false }));
  const names = graph.edges().map(pointsOfName);
  const isIn = (box, { x, y }, margin) => box.x1 - margin < x && x < box.x2 + margin && box.y1 - margin < y && y < box.y2 + margin;
  const isNear = (one, other) => Math.hypot(one.x - other.x, one.y - other.y) < 12;
  const edges = names.filter(
    (points, at) =>
      boxes.some((box) => points.some((point) => isIn(box, point, 4))) ||
      names.some((others, other) => other < at && points.some((one) => others.some((point) => isNear(one, point)))),
  );
  const nodes = boxes.filter((box, at) =>
    boxes.some((other, place) => place < at && box.x1 < other.x2 && other.x1 < box.x2 && box.y1 < other.y2 && other.y1 < box.y2),
  );
  return edges.length + nodes.length;
}

/** Points along an edge's name, which lies on its middle. */
function pointsOfName(edge) {
  const [{ x, y }, from, to] = [edge.midpoint(), edge.source().position(), edge.target().position()];
  const angle = Math.atan2(to.y - from.y, to.x - from.x);
  const half = (edge.data("name").length * CHAR_PX) / 2;
  const steps = Math.ceil(half / 4);
  return Array.from({ length: 2 * steps + 1 }, (_, step) => {
    const along = (half * (step - steps)) / steps;
    return { x: x + along * Math.cos(angle), y: y + along * Math.sin(angle) };
  });
}

/** Cytoscape draws on a canvas, so the colours are those that the page's elements have. */
function styleOf(canvas, note) {
  const { color: ink, backgroundColor: panel } = getComputedStyle(canvas);
  const { color: muted } = getComputedStyle(note);
  return [
    {
      selector: "node",
      style: {
        label: "data(text)",
        color: ink,
        "font-size": 12,
        "font-family": "system-ui, sans-serif",
        "text-valign": "bottom",
        "text-margin-y": 5,
        "text-background-color": panel,
        "text-background-opacity": 0.9,
        width: 18,
        height: 18,
        "background-color": (node) => rgbOf(node.data("hue")),
        "border-width": 3,
        "border-color": panel,
      },
    },
    {
      selector: "edge",
      style: {
        label: "data(name)",
        color: muted,
        "font-size": 10.5,
        "font-family": "system-ui, sans-serif",
        "text-background-color": panel,
        "text-background-opacity": 1,
        "text-background-padding": 2,
        "text-rotation": "autorotate",
        width: 1.4,
        "line-color": muted,
        "target-arrow-color": muted,
        "target-arrow-shape": "triangle",
        "arrow-scale": 0.9,
        "curve-style": "bezier",
        opacity: 0.85,
      },
    },
    { selector: ".off", style: { opacity: 0.18 } },
    { selector: "node.on", style: { "border-color": ink, "border-width": 2, width: 22, height: 22 } },
  ];
}

/** The colour of a hue, oklch(0.68 0.14 hue), in a form that cytoscape reads. */
function rgbOf(hue) {
  const lightness = 0.68;
  const angle = (hue * Math.PI) / 180;
  const [a, b] = [0.14 * Math.cos(angle), 0.14 * Math.sin(angle)];
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  const [red, green, blue] = linear.map((x) => {
    const value = Math.min(1, Math.max(0, x));
    return Math.round(255 * (value <= 0.0031308 ? 12.92 * value : 1.055 * value ** (1 / 2.4) - 0.055));
  });
  return `rgb(${red}, ${green}, ${blue})`;
}
