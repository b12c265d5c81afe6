/*
 * Math, drawn by KaTeX, which is loaded with the first formula. Until then, and where it cannot read one, the formula
 * stands there as it was written, brackets and all. KaTeX is handed text and makes elements: no HTML of anybody's.
 */

import { element } from "./element.js";

const BRACKETS = /^(?:\$\$|\\\[)([^]*)(?:\$\$|\\\])$|^(?:\$|\\\()([^]*)(?:\$|\\\))$/;

let loading = null;

export function drawMath(node) {
  const source = node.textContent;
  const found = BRACKETS.exec(source);
  if (!found) return;
  loading ??= load();
  const options = { displayMode: found[1] !== undefined, trust: false, strict: "ignore", maxSize: 40, maxExpand: 500 };
  const draw = () => {
    const drawn = document.createElement("span");
    globalThis.katex.render(found[1] ?? found[2], drawn, options);
    node.replaceChildren(drawn);
  };
  if (globalThis.katex) attempt(draw);
  else loading.then(() => attempt(draw));
}

function attempt(draw) {
  try {
    draw();
  } catch {
    // It stays as it was written.
  }
}

async function load() {
  document.head.append(element("link", { rel: "stylesheet", href: "web/katex/katex.min.css" }));
  try {
    await import("./katex/katex.min.js");
  } catch {
    loading = null; // the next formula tries again
  }
}
