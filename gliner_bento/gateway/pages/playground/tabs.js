// Tabs, as the ARIA practices describe them: one is in the tab order, arrow keys move between them.

import { el } from "./dom.js";

export class Tabs {
  /** titles: by name. onOpen: called with the name of a tab when it is opened. */
  constructor(root, label, titles, onOpen) {
    this._onOpen = onOpen;
    this.panels = {};
    this._tabs = {};
    const list = el("div", { class: "tabs", role: "tablist", "aria-label": label });
    list.addEventListener("keydown", (event) => this._key(event));
    root.append(list);
    for (const [name, title] of Object.entries(titles)) {
      const id = `tab-${name}`;
      this._tabs[name] = el("button", { type: "button", role: "tab", id, "aria-controls": `${id}-panel`, on: { click: () => this.open(name) } });
      this._tabs[name].append(title, el("span", { class: "number" }));
      this.panels[name] = el("div", { class: `pane ${name}`, role: "tabpanel", id: `${id}-panel`, "aria-labelledby": id, tabindex: 0 });
      list.append(this._tabs[name]);
      root.append(this.panels[name]);
    }
    this._show(Object.keys(titles)[0]);
  }

  open(name) {
    this._show(name);
    this._onOpen(name);
  }

  /** Show only the tabs of these names. */
  setVisible(names) {
    for (const [name, tab] of Object.entries(this._tabs)) tab.hidden = !names.includes(name);
    if (!names.includes(this.current)) this.open(names[0]);
  }

  setCount(name, count) {
    this._tabs[name].lastChild.textContent = count;
  }

  _show(name) {
    this.current = name;
    for (const [other, tab] of Object.entries(this._tabs)) {
      tab.setAttribute("aria-selected", String(other === name));
      tab.tabIndex = other === name ? 0 : -1;
      this.panels[other].hidden = other !== name;
    }
  }

  _key(event) {
    const names = Object.keys(this._tabs).filter((name) => !this._tabs[name].hidden);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const name = names[(names.indexOf(this.current) + step + names.length) % names.length];
    this.open(name);
    this._tabs[name].focus();
  }
}
