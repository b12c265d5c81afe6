/*
 * Math, drawn by KaTeX, which is loaded with the first formula. Until then, and where it cannot read one, the formula
 * stands there as it was written, brackets and all. KaTeX is handed text and makes elements: no HTML of anybody's.
 */

import { element } from "./element.js";

const BRACKETS = /^(?:\$\$|\\\[)([^]*)(?:\$\$|\\\])$|^(?:\$|\\\()([^]*)(?:\$|\\\))$/;

let loading = null;

/** Puts a formula in the place of its `code`, which is a block where it stands in a `pre`. */
export function drawMath(code) {
  const source = code.textContent;
  const block = code.closest("pre");
  const node = element(block ? "div" : "span", { class: "math" }, source);
  (block ?? code).replaceWith(node);
  const [, display, inline] = BRACKETS.exec(source.trim()) ?? ["", block ? source : undefined, source];
  const displayMode = display !== undefined;
  const draw = () => {
    const drawn = document.createElement("span");
    const options = { displayMode, trust: false, strict: "ignore", maxSize: 40, maxExpand: 500 };
    globalThis.katex.render(display ?? inline, drawn, options);
    node.replaceChildren(drawn);
  };
  loading ??= load();
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
    await import(new URL("web/katex/katex.min.js", document.baseURI)); // as the style sheet above, wherever this module stands
  } catch {
    loading = null; // the next formula tries again
  }
}
