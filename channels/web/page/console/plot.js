/*
 * Plots, drawn as SVG by hand: the bars of a row of days, and the bars of a timeline. Lengths across are shares of the
 * place there is, so nothing is measured and nothing is drawn anew when a window changes. Every plot has its figures as
 * text beside it, for whoever does not see it.
 */

import { element } from "../element.js";

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 150;
const GAP = 0.22;

function drawn(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** `bars` are {title, parts: [{value, kind}]}, of which the first part stands at the bottom. */
export function dayBars(label, bars, { format, first, last }) {
  const most = Math.max(...bars.map((bar) => bar.parts.reduce((sum, part) => sum + part.value, 0)), 0);
  const width = 100 / bars.length;
  const lines = [0, 0.5, 1].map((share) => drawn("line", { class: "grid", x1: "0", x2: "100%", y1: y(share), y2: y(share) }));
  const drawing = drawn("svg", { class: "plot", role: "img", "aria-label": label, height: HEIGHT, width: "100%" }, ...lines);
  bars.forEach((bar, at) => drawing.append(stack(bar, at * width + (width * GAP) / 2, width * (1 - GAP), most)));
  const scale = element("div", { class: "plot-scale", "aria-hidden": "true" }, ...(most ? [1, 0.5] : []).map((share) => element("span", {}, format(most * share))));
  const ends = element("div", { class: "plot-ends", "aria-hidden": "true" }, element("span", {}, first), element("span", {}, last));
  return element("figure", { class: "plot-frame" }, element("div", { class: "plot-area" }, scale, drawing), ends);
}

const y = (share) => HEIGHT - 1 - share * (HEIGHT - 8);

function stack(bar, x, width, most) {
  const group = drawn("g", {}, drawn("title", {}, bar.title), drawn("rect", { class: "hit", x: `${x}%`, y: 0, width: `${width}%`, height: HEIGHT }));
  let below = 0;
  for (const { value, kind } of bar.parts) {
    if (value <= 0) continue;
    const [from, to] = [y(below / most), y((below + value) / most)];
    group.append(drawn("rect", { class: kind, x: `${x}%`, y: to, width: `${width}%`, height: Math.max(1, from - to), rx: 2 }));
    below += value;
  }
  return group;
}

/** A bar from `from` to `to`, both shares of the whole length. */
export function span(from, to, kind) {
  const width = Math.max((to - from) * 100, 0.4);
  return drawn(
    "svg",
    { class: "span", "aria-hidden": "true", height: 14, width: "100%" },
    drawn("line", { class: "grid", x1: "0", x2: "100%", y1: 7, y2: 7 }),
    drawn("rect", { class: kind, x: `${Math.min(from * 100, 99.6)}%`, y: 1, width: `${width}%`, height: 12, rx: 3 }),
  );
}
