/** Trying again by hand: first how many, then how fast, then how it goes. */

import { ask } from "./api.js";
import { bar } from "./charts.js";
import { card, fill, h, toast } from "./dom.js";
import { choice, field } from "./forms.js";
import { moment, number } from "./format.js";

const BY_HAND = { "X-Admin-Override": "true" };
const RATES = [
  ["", "all at once"],
  ["1", "1 a second"],
  ["5", "5 a second"],
  ["20", "20 a second"],
  ["100", "100 a second"],
];
const STEP_MS = 1000;

/**
 * The card that counts, redrives and shows how far it came.
 * @param {{filters: object, chosen: Map<string, object>, total: number}} state what is shown and chosen on the page
 * @param {() => Promise<void>} done called when something was redriven
 */
export function redriving(state, done) {
  const watched = { timer: null };
  let counted = "";
  const count = h("p", { class: "quiet", role: "status" });
  const progress = h("div", {});
  const act = h("button", { class: "primary", type: "submit" });
  const form = h(
    "form",
    {
      class: "filters",
      onsubmit: (event) => {
        event.preventDefault();
        const asked = {
          reason: form.elements.reason.value.trim(),
          rate: Number(form.elements.rate.value) || null,
        };
        act.disabled = true;
        const work = state.chosen.size ? some(state, asked, progress) : all(state, asked, progress, watched);
        return work
          .then(done)
          .catch((error) => toast(error.message, "bad"))
          .finally(() => {
            act.disabled = false;
          });
      },
    },
    field("reason", "Reason, kept in the audit", { required: true, maxlength: 1000, size: 32 }),
    choice("rate", "How fast", RATES),
    h("button", { type: "button", text: "Count first", onclick: () => preview(state, form, count) }),
    act,
  );
  const changed = () => {
    const chosen = state.chosen.size;
    act.textContent = chosen ? `Redrive ${number(chosen)} chosen` : `Redrive all ${number(state.total)} that match`;
    act.disabled = !chosen && !state.total;
    form.elements.rate.disabled = chosen > 0;
    // What was counted stands until something else would be tried again.
    const meant = JSON.stringify([state.filters, [...state.chosen.keys()], state.total]);
    if (meant !== counted) fill(count);
    counted = meant;
  };
  changed();
  return {
    element: card(
      "Try again",
      h("p", {
        class: "quiet",
        text: "Each keeps its id and its history and gets a fresh budget. A rate spares a provider that is just back.",
      }),
      form,
      count,
      progress,
    ),
    changed,
    stop: () => clearTimeout(watched.timer),
  };
}

async function preview(state, form, count) {
  if (state.chosen.size) return fill(count, `${number(state.chosen.size)} are chosen; nothing else is touched.`);
  const rate = Number(form.elements.rate.value) || null;
  const found = await ask("/api/v1/admin/redrive", {
    method: "POST",
    headers: BY_HAND,
    body: { ...state.filters, reason: "count", dryRun: true, ratePerSecond: rate },
  });
  if (!found.matched) return fill(count, "Nothing matches.");
  const causes = found.byCause
    .map((cause) => `${number(cause.count)} ${cause.channel} ${cause.classification}`)
    .join(", ");
  const turn = rate ? `at ${moment(found.lastTurnAt)}` : "at once";
  return fill(count, `${number(found.matched)} would be tried again: ${causes}. The last has its turn ${turn}.`);
}

async function some(state, asked, place) {
  const chosen = [...state.chosen.keys()];
  const refused = [];
  for (const [at, id] of chosen.entries()) {
    fill(place, shown(at, chosen.length, `${number(at)} of ${number(chosen.length)} asked for`));
    await ask(`/api/v1/admin/notifications/${encodeURIComponent(id)}/retry`, {
      method: "POST",
      headers: BY_HAND,
      body: { reason: asked.reason },
    }).catch((error) => {
      refused.push(error.message);
    });
  }
  state.chosen.clear();
  const said = refused.length ? `, ${number(refused.length)} not: ${refused[0]}` : "";
  fill(place, shown(chosen.length, chosen.length, `${number(chosen.length - refused.length)} are tried again${said}`));
}

async function all(state, asked, place, watched) {
  const filters = { ...state.filters };
  const found = await ask("/api/v1/admin/redrive", {
    method: "POST",
    headers: BY_HAND,
    body: { ...filters, reason: asked.reason, ratePerSecond: asked.rate },
  });
  clearTimeout(watched.timer);
  const began = beginning(found, asked.rate);
  const step = async () => {
    const over = await look(place, filters, began, found).catch(() => false);
    if (!over) watched.timer = setTimeout(step, STEP_MS);
  };
  await step();
}

/** When it began by Carillon's clock, which need not be this browser's: the last turn less all turns before it. */
function beginning(found, rate) {
  const last = found.lastTurnAt ? Date.parse(found.lastTurnAt) : Date.now();
  return new Date(last - (rate ? ((found.redriven - 1) / rate) * 1000 : 0)).toISOString();
}

/** What became of them so far: told, failed again, still waiting. */
async function look(place, filters, began, redriven) {
  const [again, waiting] = await Promise.all([
    ask("/api/v1/admin/failed-notifications", {
      query: { ...filters, failedAfter: began, failedBefore: undefined, pageSize: 1 },
    }),
    ask("/api/v1/notifications", {
      query: {
        status: "queued",
        channel: filters.channel,
        templateKey: filters.templateKey,
        acceptedBefore: began,
        pageSize: 1,
      },
    }),
  ]);
  const open = Math.min(waiting.totalCount, redriven.redriven - again.totalCount);
  const over = open <= 0;
  const ended = redriven.redriven - Math.max(0, open);
  const last = !over && redriven.lastTurnAt ? `, the last has its turn at ${moment(redriven.lastTurnAt)}` : "";
  fill(
    place,
    shown(
      ended,
      redriven.redriven,
      `${number(redriven.redriven)} tried again: ${number(ended - again.totalCount)} told, ` +
        `${number(again.totalCount)} failed again, ${number(Math.max(0, open))} waiting${last}`,
    ),
  );
  return over;
}

function shown(ended, total, sentence) {
  return h(
    "div",
    {
      class: "progress",
      role: "progressbar",
      "aria-label": "Tried again",
      "aria-valuemin": 0,
      "aria-valuemax": total,
      "aria-valuenow": ended,
    },
    bar(total ? ended / total : 1, "good"),
    h("span", { text: sentence }),
  );
}
