/*
 * An element, written as a call. Text becomes a text node, never markup: this is how everything that people, models
 * or files are named gets into the page. There is no way to pass HTML here; only prose.js takes any.
 */

const SVG = "http://www.w3.org/2000/svg";

const SHAPES = {
  menu: "M4 7h16M4 12h16M4 17h16",
  close: "M6 6l12 12M18 6L6 18",
  pen: "M12 20h8M16.5 4.5a2.1 2.1 0 0 1 3 3L8 19l-4 1 1-4z",
  clip: "M20 11.5l-8.2 8.2a5.4 5.4 0 0 1-7.6-7.6l8.6-8.6a3.6 3.6 0 0 1 5.1 5.1l-8.6 8.6a1.8 1.8 0 0 1-2.6-2.6l7.9-7.9",
  up: "M12 19V5M5.5 11.5L12 5l6.5 6.5",
  down: "M12 5v14M5.5 12.5L12 19l6.5-6.5",
  open: "M7 10l5 5 5-5",
  microphone: "M12 3.5a3 3 0 0 0-3 3v5a3 3 0 0 0 6 0v-5a3 3 0 0 0-3-3zM5.5 11a6.5 6.5 0 0 0 13 0M12 17.5V21",
  stop: "M7.5 7.5h9v9h-9z",
  more: "M5.5 12h.01M12 12h.01M18.5 12h.01",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  check: "M4.5 12.5l5 5 10-11",
  cross: "M7 7l10 10M17 7L7 17",
  file: "M13.5 3H6v18h12V7.5zM13.5 3v4.5H18",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M2 12h2M20 12h2M4.9 4.9l1.4 1.4M17.7 17.7l1.4 1.4M4.9 19.1l1.4-1.4M17.7 6.3l1.4-1.4",
  moon: "M20 14.5A8.2 8.2 0 0 1 9.5 4a8.2 8.2 0 1 0 10.5 10.5z",
  auto: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 3v18M12 7h6.5M12 11.5h9M12 16h7.5",
  alert: "M12 4L2.5 20h19zM12 10v4.5M12 17.2h.01",
  info: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 11v5.5M12 7.8h.01",
  wrap: "M4 6h16M4 12h13a3 3 0 0 1 0 6h-4m2.5-2.5L13 18l2.5 2.5M4 18h5",
  book: "M4 5.5C7 4 10 4.5 12 6.5 14 4.5 17 4 20 5.5V19c-3-1.5-6-1-8 1-2-2-5-2.5-8-1zM12 6.5V20",
  retry: "M20 5v5h-5M19.5 10A8 8 0 1 0 20 13.5",
  pulse: "M3 12h4l3-7 4 14 3-7h4",
  shield: "M12 3l7.5 3v5.5c0 4.5-3 8-7.5 9.5-4.5-1.5-7.5-5-7.5-9.5V6zM8.5 12l2.5 2.5 4.5-5",
  person: "M12 4a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM4.5 20.5c.6-3.8 3.6-5.5 7.5-5.5s6.9 1.7 7.5 5.5",
  letter: "M3.5 6h17v12.5h-17zM4 6.5l8 6.5 8-6.5",
  chart: "M4 20V4M4 20h16M8.5 16v-4M13 16V7M17.5 16v-6",
  bot: "M5 9h14v10H5zM12 9V5M12 5h.01M9 13.5v1M15 13.5v1M2.5 13v3M21.5 13v3",
  gear: "M4 7h9M17 7h3M4 17h3M11 17h9M15 5a2 2 0 1 0 0 4 2 2 0 0 0 0-4zM9 15a2 2 0 1 0 0 4 2 2 0 0 0 0-4z",
  layers: "M12 4l8.5 4.5L12 13 3.5 8.5zM4 12.5l8 4.5 8-4.5M4 16.5l8 4.5 8-4.5",
  panel: "M4 5h16v14H4zM9.5 5v14",
  lines: "M4 7h16M7 12h10M10 17h4",
  turn: "M7 9.5l5 5 5-5",
  good: "M7.5 10.5v9h-3v-9zM7.5 10.5l4-7c1.6 0 2.4 1.2 2.1 2.7L13 9.5h5.2c1.2 0 2 1 1.7 2.2l-1.5 6.3c-.2.9-1 1.5-1.9 1.5h-9",
  bad: "M16.5 13.5v-9h3v9zM16.5 13.5l-4 7c-1.6 0-2.4-1.2-2.1-2.7l.6-3.3H5.8c-1.2 0-2-1-1.7-2.2L5.6 6c.2-.9 1-1.5 1.9-1.5h9",
  chat: "M4.5 5h15v11H11l-4.5 3.5V16h-2z",
  keys: "M3.5 7h17v10h-17zM7 10.5h.01M11 10.5h.01M15 10.5h.01M8 14h8",
  globe: "M12 3.5a8.5 8.5 0 1 0 0 17 8.5 8.5 0 0 0 0-17zM3.5 12h17M12 3.5c3 3 3 14 0 17M12 3.5c-3 3-3 14 0 17",
  clock: "M12 3.5a8.5 8.5 0 1 0 0 17 8.5 8.5 0 0 0 0-17zM12 7.5V12l3 2",
};

/** `element("a", {href: "#"}, "text", child)`; a function is a listener, null and false leave an attribute out. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export function icon(name) {
  const drawing = document.createElementNS(SVG, "svg");
  drawing.setAttribute("viewBox", "0 0 24 24");
  drawing.setAttribute("aria-hidden", "true");
  drawing.setAttribute("class", "icon");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", SHAPES[name]);
  drawing.append(path);
  return drawing;
}

/** Shows another icon in `holder`. */
export const drawn = (holder, name) => holder.replaceChildren(icon(name));

/** A small button with an icon, which says in words what it does. */
export function iconButton(name, label, click, attributes = {}) {
  const named = { type: "button", class: "icon-button small", "aria-label": label, title: label, click };
  return element("button", { ...named, ...attributes }, icon(name));
}

/** The part of the page that index.html names so. */
export function part(id) {
  return document.getElementById(id);
}

/** Draws the icons that index.html only names. */
export function drawIcons(root = document) {
  for (const holder of root.querySelectorAll("[data-icon]")) holder.replaceChildren(icon(holder.dataset.icon));
}
