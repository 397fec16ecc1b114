/** What changed between two texts, line by line. */

import { h } from "./dom.js";

const MOST = 600;

/**
 * The lines of both texts, each kept, added or removed.
 * @param {string} before
 * @param {string} after
 * @returns {{mark: " "|"+"|"-", text: string}[]}
 */
export function diff(before, after) {
  const one = before ? before.split("\n") : [];
  const other = after ? after.split("\n") : [];
  // A table of all pairs of lines: fast enough for templates.
  if (one.length > MOST || other.length > MOST)
    return [...one.map((text) => ({ mark: "-", text })), ...other.map((text) => ({ mark: "+", text }))];
  const longest = Array.from({ length: one.length + 1 }, () => new Uint16Array(other.length + 1));
  for (let i = one.length - 1; i >= 0; i--) {
    for (let j = other.length - 1; j >= 0; j--) {
      longest[i][j] = one[i] === other[j] ? longest[i + 1][j + 1] + 1 : Math.max(longest[i + 1][j], longest[i][j + 1]);
    }
  }
  return walked(one, other, longest);
}

function walked(one, other, longest) {
  const found = [];
  let i = 0;
  let j = 0;
  while (i < one.length || j < other.length) {
    if (i < one.length && j < other.length && one[i] === other[j]) {
      found.push({ mark: " ", text: one[i] });
      i++;
      j++;
    } else if (i < one.length && (j === other.length || longest[i + 1][j] >= longest[i][j + 1]))
      found.push({ mark: "-", text: one[i++] });
    else found.push({ mark: "+", text: other[j++] });
  }
  return found;
}

/**
 * The differences as an element; added and removed lines are also marked in words.
 * @param {string} label
 * @param {string} before
 * @param {string} after
 */
export function shownDiff(label, before, after) {
  const words = { "+": "added", "-": "removed", " ": "" };
  return h(
    "figure",
    { class: "diff" },
    h("figcaption", { text: label }),
    h(
      "pre",
      {},
      diff(before, after).map(({ mark, text }) =>
        h(
          mark === "+" ? "ins" : mark === "-" ? "del" : "span",
          { "aria-label": words[mark] ? `${words[mark]}: ${text}` : null },
          `${mark} ${text}\n`,
        ),
      ),
    ),
  );
}
