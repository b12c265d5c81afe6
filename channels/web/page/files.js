/*
 * Files in a message: a chip to download each with, and for pictures that the server shows a thumbnail that opens
 * large.
 */

import { fileAddress } from "./api.js";
import { element, icon, part } from "./element.js";
import { size, word } from "./language.js";

const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

export const isPicture = (type) => PICTURES.includes(type);

export function fileList(files) {
  return element("div", { class: "files" }, ...files.map(fileFigure));
}

function fileFigure(file) {
  if (file.type.startsWith("audio/")) return player(file);
  if (!isPicture(file.type)) return chip(file);
  const picture = element("img", { src: fileAddress(file.id), alt: "", loading: "lazy", decoding: "async" });
  const label = word("enlarge");
  const open = () => showLarge(file);
  const button = element(
    "button",
    { type: "button", class: "thumbnail", "aria-label": label, title: label, click: open },
    picture,
  );
  picture.addEventListener("error", () => button.remove());
  return element("figure", { class: "picture" }, button, chip(file));
}

function player(file) {
  const sound = element("audio", { src: fileAddress(file.id), controls: "", preload: "none" });
  return element("figure", { class: "sound" }, sound, chip(file));
}

function chip(file) {
  return element(
    "a",
    {
      class: "chip",
      href: `${fileAddress(file.id)}?download`,
      download: file.name,
      title: file.name,
    },
    icon("file"),
    element("span", { class: "chip-name", dir: "auto" }, file.name),
    element("span", { class: "chip-size" }, size(file.size)),
  );
}

function showLarge(file) {
  const image = part("viewer-image");
  image.src = fileAddress(file.id);
  image.alt = file.name;
  part("viewer").showModal();
}

/** A click anywhere closes the large picture. */
export function prepareViewer() {
  const viewer = part("viewer");
  viewer.addEventListener("click", () => viewer.close());
  viewer.addEventListener("close", () => part("viewer-image").removeAttribute("src"));
}
