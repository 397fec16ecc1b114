// The keys of the inbox: up and down go through the rows, sideways through what a row offers, letters act on a row.

const ENDS = { Home: 0, End: Infinity };

/**
 * What a key does in the panel; true if it did something.
 * @param {KeyboardEvent} event
 * @param {{items: HTMLElement[], rtl: boolean, follow: (item: HTMLElement) => void}} shown
 */
export function pressed(event, { items, rtl, follow }) {
  if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest?.("input, .choices")) return false;
  const at = items.indexOf(event.target.closest?.("li"));
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, ...ENDS }[event.key];
  if (to !== undefined && items.length) {
    items[Math.max(0, Math.min(items.length - 1, to))].focus();
    return true;
  }
  if (at < 0) return false;
  if (event.key === "ArrowRight" || event.key === "ArrowLeft") return sideways(items[at], event.target, (event.key === "ArrowRight") === rtl ? -1 : 1);
  if (event.key === "e" || event.key === "u") {
    items[at].querySelector(event.key === "e" ? ".hand button:last-child" : ".hand button").click();
    return true;
  }
  // On a link or a button, Enter and the space bar do what they always do.
  if (event.target !== items[at] || !["Enter", " "].includes(event.key)) return false;
  follow(items[at]);
  return true;
}

/** From the row through its links and buttons, and back to the row. */
function sideways(row, from, by) {
  const stops = [row, ...row.querySelectorAll("a:not(.title), .hand button")];
  const next = stops[stops.indexOf(from) + by];
  next?.focus();
  return next !== undefined;
}

/** What has the focus in a row, so that it has it again when the row is drawn anew: its place among what the row offers. */
export function placeIn(row, active) {
  return row === null ? -1 : [...row.querySelectorAll("a, button")].indexOf(active);
}

export function stopAt(row, place) {
  return row.querySelectorAll("a, button")[place] ?? row;
}
