/** The progress of redrives: the server runs them, so they go on when this page is closed. */

import { ask } from "./api.js";
import { bar } from "./charts.js";
import { fill, h } from "./dom.js";
import { newest } from "./forms.js";
import { moment, number } from "./format.js";

const STEP_MS = 1000;
const NEWEST = 5;

/**
 * Redrives under way, by every operator; ended ones stay visible while the page is open.
 * @param {HTMLElement} place
 */
export function redrives(place) {
  const seen = new Set();
  const asking = newest();
  let timer = null;
  let left = false;
  const look = async () => {
    const still = asking();
    clearTimeout(timer);
    const { items } = await ask("/api/v1/admin/redrives", { query: { pageSize: NEWEST } });
    if (left || !still()) return;
    for (const one of items) if (one.waiting) seen.add(one.id);
    fill(
      place,
      items.filter((one) => seen.has(one.id)).map((one) => shown(one)),
    );
    clearTimeout(timer);
    // Keep polling after an error.
    if (items.some((one) => one.waiting)) timer = setTimeout(() => look().catch(again), STEP_MS);
  };
  const again = () => {
    if (!left) timer = setTimeout(() => look().catch(again), STEP_MS);
  };
  return {
    look,
    /** Show this redrive even if it ends before the next poll. */
    follow: (id) => {
      seen.add(id);
      return look();
    },
    stop: () => {
      left = true;
      clearTimeout(timer);
    },
  };
}

function shown(one) {
  const ended = one.redriven - one.waiting;
  const skipped = one.skipped ? `, ${number(one.skipped)} skipped` : "";
  const last = one.waiting && one.lastTurnAt ? `, the last is due at ${moment(one.lastTurnAt)}` : "";
  const sentence =
    `${number(one.redriven)} redriven: ${number(one.delivered)} delivered, ` +
    `${number(one.failedAgain)} failed again, ${number(one.waiting)} waiting${skipped}${last}`;
  return h(
    "div",
    {
      class: "progress",
      role: "progressbar",
      "aria-label": `Redrive: ${one.reason ?? "no reason"}`,
      "aria-valuemin": 0,
      "aria-valuemax": one.redriven,
      "aria-valuenow": ended,
      "aria-valuetext": sentence,
    },
    bar(one.redriven ? ended / one.redriven : 1, "good"),
    h("span", { text: sentence }),
    h("span", { class: "quiet", text: `${one.reason ?? ""} · ${one.actor}, ${moment(one.at)}` }),
  );
}
