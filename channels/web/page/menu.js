/*
 * The one small menu of the page, beside the button that opened it. The browser's popover closes it on Escape and
 * on a click elsewhere; the arrow keys are ours.
 */

import { element, part } from "./element.js";

const MARGIN = 8;

/** Shows `items` ({text, act, danger, checked, apart}) beside `button`: of those with `checked`, one holds; one that stands
 * apart has a line above it. */
export function openMenu(button, items) {
  const popup = part("popup");
  popup.replaceChildren(...items.map((item) => entry(popup, item)));
  button.closest("main, aside, dialog")?.append(popup); // a screen reader finds it in that landmark
  popup.addEventListener("toggle", (event) => closed(event, button), { once: false, signal: untilClosed(popup) });
  popup.showPopover();
  placeBeside(popup, button);
  button.setAttribute("aria-expanded", "true");
  (popup.querySelector("[aria-checked=true]") ?? popup.firstElementChild).focus();
}

const closings = new WeakMap();

function untilClosed(popup) {
  closings.get(popup)?.abort();
  closings.set(popup, new AbortController());
  popup.onkeydown = (event) => pressed(event, popup);
  return closings.get(popup).signal;
}

function closed(event, button) {
  if (event.newState !== "closed") return;
  button.removeAttribute("aria-expanded");
  const focusLost = document.activeElement === document.body || event.target.contains(document.activeElement);
  if (focusLost && button.isConnected) button.focus();
}

function entry(popup, { text, act, danger, checked, apart }) {
  const choose = () => {
    popup.hidePopover();
    act();
  };
  const role = checked === undefined ? { role: "menuitem" } : { role: "menuitemradio", "aria-checked": String(checked) };
  const kind = `${danger ? "danger" : ""}${apart ? " apart" : ""}`.trim() || null;
  return element("button", { type: "button", ...role, class: kind, click: choose }, text);
}

function pressed(event, popup) {
  const entries = [...popup.children];
  const at = entries.indexOf(document.activeElement);
  const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: entries.length - 1 }[event.key];
  if (event.key === "Tab") popup.hidePopover();
  if (next === undefined) return;
  event.preventDefault();
  entries.at(next % entries.length).focus();
}

function placeBeside(popup, button) {
  const anchor = button.getBoundingClientRect();
  const { width, height } = popup.getBoundingClientRect();
  const left = Math.max(MARGIN, Math.min(anchor.right - width, innerWidth - width - MARGIN));
  const below = anchor.bottom + 4;
  const top = below + height + MARGIN > innerHeight ? anchor.top - height - 4 : below;
  popup.style.left = `${left}px`;
  popup.style.top = `${Math.max(MARGIN, top)}px`;
}
