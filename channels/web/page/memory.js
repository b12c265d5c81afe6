/*
 * What the browser remembers for the page. A browser may forbid it or have no room left: then the page forgets, and
 * goes on.
 */

export function remember(key, value, storage = "localStorage") {
  try {
    if (value === null) window[storage].removeItem(key);
    else window[storage].setItem(key, value);
    return true;
  } catch {
    return false;
  }
}

export function recall(key, storage = "localStorage") {
  try {
    return window[storage].getItem(key);
  } catch {
    return null;
  }
}

/** The keys that begin with `prefix`, or null where the browser does not let us look. */
export function keysOf(prefix, storage = "localStorage") {
  try {
    return Object.keys(window[storage]).filter((key) => key.startsWith(prefix));
  } catch {
    return null;
  }
}

/** JSON that was remembered; null for what is missing or broken. */
export function recallJson(key, storage = "localStorage") {
  try {
    return JSON.parse(recall(key, storage));
  } catch {
    return null;
  }
}
