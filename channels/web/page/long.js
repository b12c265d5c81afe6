/*
 * A text of any length: a browser takes minutes to lay out a paragraph of a megabyte that turns its direction, and
 * nobody reads one at once. Its beginning stands there, with a button that shows the next piece.
 */

import { element } from "./element.js";
import { number, word } from "./language.js";

export const PIECE_CHARS = 50_000;

/** The nodes of a text. */
export function long(text) {
  if (text.length <= PIECE_CHARS) return [text];
  let shown = 0;
  const next = () => {
    const from = shown;
    shown = endOf(text, from + PIECE_CHARS);
    return text.slice(from, shown);
  };
  const label = () => word("showMore", { count: number(text.length - shown) });
  const show = () => {
    more.before(next());
    if (shown < text.length) more.textContent = label();
    else finish();
  };
  const finish = () => {
    const holder = more.parentElement;
    holder.tabIndex = -1; // the focus stays where one reads
    holder.focus({ preventScroll: true });
    more.remove();
  };
  const begun = next();
  const more = element("button", { type: "button", class: "show-more", click: show }, label());
  return [begun, more];
}

/** No piece ends within a character of two units. */
function endOf(text, at) {
  const code = text.charCodeAt(at);
  return code >= 0xdc00 && code <= 0xdfff ? at + 1 : at;
}
