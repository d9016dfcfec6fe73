// What is pointed at, in the text, in an arc, in a table or in the graph: all views highlight the same entities.

export class Links {
  constructor() {
    this._listeners = [];
    this._entities = [];
  }

  /** Call `listener` with the indexes of the entities that are pointed at, whenever they change. */
  listen(listener) {
    this._listeners.push(listener);
  }

  /** entities: indexes, or null for none. */
  point(entities) {
    const now = entities ?? [];
    if (now.length === this._entities.length && now.every((index, i) => index === this._entities[i])) return;
    this._entities = now;
    for (const listener of this._listeners) listener(now);
  }
}
