/*
 * Rules for a page that everybody can use, checked on what is shown right now. Gives a sentence for each thing that is
 * wrong. Contrast as in WCAG 2.2, 1.4.3; names as a screen reader would find them.
 */
() => {
  const CONTROLS = "button, a[href], input, select, textarea, summary, [role=button], [role=menuitem], [tabindex]";
  const SMALLEST_TARGET = 24;

  const isShown = (node) =>
    node.checkVisibility({ visibilityProperty: true, opacityProperty: true }) &&
    node.getClientRects().length > 0 &&
    !node.closest("[inert], [aria-hidden=true]");
  const told = (node) => `${node.outerHTML.slice(0, 120)}`;

  const labelled = (node) =>
    (node.getAttribute("aria-labelledby") ?? "").split(/\s+/).map((id) => document.getElementById(id)?.textContent ?? "").join(" ");
  const nameOf = (node) =>
    [
      node.getAttribute("aria-label"),
      labelled(node),
      ...[...(node.labels ?? [])].map((label) => label.textContent),
      ["INPUT", "SELECT", "TEXTAREA"].includes(node.tagName) ? "" : node.textContent,
      node.querySelector("img[alt]")?.alt,
    ].some((name) => name?.trim());

  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const known = new Map();
  const channels = (colour) => {
    if (!known.has(colour)) known.set(colour, painted(colour));
    return known.get(colour);
  };
  const painted = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
    return { rgb: [red, green, blue], alpha: alpha / 255 };
  };
  const over = (top, alpha, below) => top.map((value, at) => value * alpha + below[at] * (1 - alpha));
  const groundOf = (node) => {
    if (!node) return [255, 255, 255];
    const { rgb, alpha } = channels(getComputedStyle(node).backgroundColor);
    return alpha === 1 ? rgb : over(rgb, alpha, groundOf(node.parentElement));
  };
  const luminance = (rgb) => {
    const [red, green, blue] = rgb.map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const contrast = (one, other) => {
    const [light, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a);
    return (light + 0.05) / (dark + 0.05);
  };
  const isDisabled = (node) => node.closest(":disabled, [aria-disabled=true]");

  const texts = function* () {
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const holder = walker.currentNode.parentElement;
      if (walker.currentNode.data.trim() && isShown(holder) && !isDisabled(holder)) yield [holder, walker.currentNode.data.trim()];
    }
  };

  const wrong = [];
  const shown = (selector) => [...document.querySelectorAll(selector)].filter(isShown);

  for (const node of shown(CONTROLS)) if (!nameOf(node)) wrong.push(`no name: ${told(node)}`);
  // WCAG 2.5.3: who speaks to the page says what is written on the button.
  const folded = (text) => text.replace(/[^\p{L}\p{N}]+/gu, " ").trim().toLowerCase();
  for (const node of shown("button[aria-label], a[href][aria-label]")) {
    const visible = folded(node.innerText);
    if (visible && !folded(node.getAttribute("aria-label")).includes(visible)) wrong.push(`label hides its text: ${told(node)}`);
  }
  for (const node of shown("img")) if (!node.hasAttribute("alt")) wrong.push(`no alt: ${told(node)}`);
  for (const node of shown("button, input, select, textarea, summary, [role=menuitem]")) {
    const { width, height } = node.getBoundingClientRect();
    if (Math.min(width, height) < SMALLEST_TARGET) wrong.push(`too small to hit (${width}×${height}): ${told(node)}`);
  }
  for (const [holder, text] of texts()) {
    const style = getComputedStyle(holder);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
    const ground = groundOf(holder);
    const { rgb, alpha } = channels(style.color);
    const found = contrast(over(rgb, alpha, ground), ground);
    if (found < (large ? 3 : 4.5)) wrong.push(`contrast ${found.toFixed(2)} of “${text.slice(0, 40)}”: ${told(holder)}`);
  }
  const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
  for (const id of new Set(ids)) if (ids.filter((other) => other === id).length > 1) wrong.push(`id twice: ${id}`);
  for (const node of document.querySelectorAll("[aria-labelledby], [aria-describedby], [aria-controls]")) {
    for (const attribute of ["aria-labelledby", "aria-describedby", "aria-controls"]) {
      for (const id of (node.getAttribute(attribute) ?? "").split(/\s+/).filter(Boolean)) {
        if (!document.getElementById(id)) wrong.push(`${attribute} names nobody: ${told(node)}`);
      }
    }
  }
  if (shown("main").length > 1) wrong.push("several main landmarks");
  if (!document.documentElement.lang) wrong.push("no language");
  if (!document.title.trim()) wrong.push("no title");
  return wrong;
}
