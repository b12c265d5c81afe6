/*
 * Text into the clipboard, also on a plain http host, where the browser keeps `navigator.clipboard` back.
 */

const COPIED_MS = 2000;

/** Copies the text, and for a while shows in the button that it is done: what `drawn(done)` gives. */
export async function copyBy(button, text, drawn) {
  if (!(await copy(text))) return;
  button.replaceChildren(...drawn(true));
  setTimeout(() => button.replaceChildren(...drawn(false)), COPIED_MS);
}

async function copy(text) {
  try {
    if (navigator.clipboard) {
      await navigator.clipboard.writeText(text);
      return true;
    }
  } catch {
    // Refused, as in a frame without the permission: the old way may still work.
  }
  return copyBySelection(text);
}

/** Selects the text in a field that nobody sees, and gives the person's own selection and focus back. */
function copyBySelection(text) {
  const selection = document.getSelection();
  const ranges = Array.from({ length: selection.rangeCount }, (_, at) => selection.getRangeAt(at));
  const focused = document.activeElement;
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "out-of-sight";
  field.readOnly = true;
  document.body.append(field);
  field.select();
  let done = false;
  try {
    done = document.execCommand("copy");
  } catch {
    done = false;
  }
  field.remove();
  focused?.focus({ preventScroll: true });
  selection.removeAllRanges();
  for (const range of ranges) selection.addRange(range);
  return done;
}
