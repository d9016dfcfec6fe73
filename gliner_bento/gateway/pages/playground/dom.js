// Makes elements. Text goes through textContent only, so nothing in it is executed.

/** An element; `on` has event listeners, `class`, `text`, `data` what they say, all else is an attribute. */
export function el(tag, { class: classes, text, on = {}, data = {}, ...attributes } = {}, ...children) {
  const element = document.createElement(tag);
  if (classes) element.className = classes;
  if (text !== undefined) element.textContent = text;
  for (const [name, listener] of Object.entries(on)) element.addEventListener(name, listener);
  Object.assign(element.dataset, data);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** An SVG element. */
export function svg(tag, attributes = {}, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

export const byId = (id) => document.getElementById(id);

/** `call`, once, `wait_ms` after the last time that it was asked for. */
export function debounced(call, wait_ms) {
  let timer;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...args), wait_ms);
  };
}

/** `call` in the next frame, once. */
export function eachFrame(call) {
  let asked = 0;
  return () => {
    asked ||= requestAnimationFrame(() => {
      asked = 0;
      call();
    });
  };
}
