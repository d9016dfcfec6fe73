// Runs requests: one at a time, the previous one aborted.

import * as api from "./api.js";
import { Extraction } from "./extraction.js";
import { requestBody, state } from "./state.js";

const LONG_CHARS = 6000; // a text of several windows: its first entities are there early

export class Extractor {
  /** views: onStart(), onProgress(extraction), onEnd(extraction, response), onError(error). */
  constructor(views) {
    this._views = views;
    this._running = null;
  }

  get isRunning() {
    return this._running !== null;
  }

  stop() {
    this._running?.abort();
    this._running = null;
  }

  async run() {
    this.stop();
    const running = (this._running = new AbortController());
    const body = requestBody({ asked: true });
    const extraction = new Extraction(body.text, state.places);
    const started = performance.now();
    this._views.onStart();
    try {
      const end = await this._ask(body, extraction, running);
      if (this._running !== running) return;
      extraction.complete(end, performance.now() - started);
      this._running = null;
      this._views.onEnd(extraction, end);
    } catch (error) {
      if (this._running !== running) return; // aborted: another request runs, or none is wanted
      this._running = null;
      this._views.onError(error);
    }
  }

  async _ask(body, extraction, { signal }) {
    const { response } = state.options;
    if (response === "whole" || (response === "auto" && body.text.length < LONG_CHARS)) {
      const whole = await api.extract(body, signal);
      extraction.addEntities(whole.entities);
      return whole;
    }
    const entities = [];
    const end = await api.extractStream(body, signal, (more) => {
      entities.push(...more);
      extraction.addEntities(more);
      this._views.onProgress(extraction);
    });
    return { entities, ...end };
  }
}
