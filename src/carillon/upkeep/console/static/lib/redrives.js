/** The progress of redrives: the server runs them, so they go on when this page is closed. */

import { ask } from "./api.js";
import { bar } from "./charts.js";
import { confirm } from "./dialog.js";
import { card, h, toast } from "./dom.js";
import { field, newest, refill } from "./forms.js";
import { many, moment, number } from "./format.js";

const STEP_MS = 1000;
const BY_HAND = { "X-Admin-Override": "true" };
const NEWEST = 5;

/**
 * Redrives under way, by every operator; ended ones stay visible while the page is open.
 * @param {HTMLElement} place
 * @param {(one: object) => boolean} [which] those that the page is about
 */
export function redrives(place, which = () => true) {
  const seen = new Set();
  const asking = newest();
  let timer = null;
  let left = false;
  const look = async () => {
    const still = asking();
    clearTimeout(timer);
    const found = await ask("/api/v1/admin/redrives", { query: { pageSize: NEWEST } });
    if (left || !still()) return;
    const items = found.items.filter(which);
    for (const one of items) if (one.waiting) seen.add(one.id);
    const drawn = items.filter((one) => seen.has(one.id)).map((one) => shown(one, look));
    refill(place, drawn.length ? card("Redrives under way", drawn) : null);
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

async function stop(one, look) {
  const given = await confirm({
    title: "Stop this redrive?",
    text: one.endpoint
      ? `${many(one.waiting, "route that waits for its turn is", "routes that wait for their turn are")} as before. What was attempted already goes on.`
      : `${many(one.waiting, "route that waits for its turn is a dead letter", "routes that wait for their turn are dead letters")} again. What was attempted already goes on.`,
    fields: [field("stop-reason", "Reason, for the audit trail", { required: true, maxlength: 1000 })],
    act: "Stop it",
    danger: true,
  });
  if (!given) return;
  const done = await ask(`/api/v1/admin/redrives/${one.id}/stop`, { method: "POST", headers: BY_HAND, body: { reason: given["stop-reason"] } });
  toast(one.endpoint ? `Stopped: ${many(done.stopped, "route")} as before.` : `Stopped: ${many(done.stopped, "dead letter", "dead letters")} again.`);
  await look();
}

function shown(one, look) {
  const ended = one.redriven - one.waiting;
  const skipped = one.skipped ? `, ${number(one.skipped)} skipped` : "";
  const stopped = one.stopped === null ? "" : `, ${number(one.stopped)} stopped`;
  const last = one.waiting && one.lastTurnAt ? `, the last is due at ${moment(one.lastTurnAt)}` : "";
  const sentence =
    `${number(one.redriven)} redriven: ${number(one.delivered)} delivered, ` +
    `${number(one.failedAgain)} failed again, ${number(one.waiting)} waiting${skipped}${stopped}${last}`;
  const act = one.waiting
    ? h("button", { type: "button", id: `stop-${one.id}`, "aria-label": `Stop the redrive: ${one.reason ?? one.id}`, text: "Stop", onclick: () => stop(one, look).catch((error) => toast(error.message, "bad")) })
    : null;
  return h("div", { class: "progress-row" }, progress(one, ended, sentence), act);
}

function progress(one, ended, sentence) {
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
    h("span", { class: "quiet", text: `${one.endpoint ? `Replay to ${one.endpoint}: ` : ""}${one.reason ?? ""} · ${one.actor}, ${moment(one.at)}` }),
  );
}
