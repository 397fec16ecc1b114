/** Redriving by hand: count, choose a rate, redrive, and watch the progress. */

import { ask } from "./api.js";
import { card, fill, h, toast } from "./dom.js";
import { choice, field } from "./forms.js";
import { moment, number } from "./format.js";
import { redrives } from "./redrives.js";

const BY_HAND = { "X-Admin-Override": "true" };
const RATES = [
  ["", "all at once"],
  ["1", "1 a second"],
  ["5", "5 a second"],
  ["20", "20 a second"],
  ["100", "100 a second"],
];
/** At most this many can be chosen one by one. */
const MOST = 1000;

/**
 * The card that counts, redrives and shows how far it came.
 * @param {{filters: object, chosen: Map<string, object>, total: number|null}} state what is shown and chosen on the page; null is not counted
 * @param {() => Promise<void>} done called when something was redriven
 */
export function redriving(state, done) {
  let counted = "";
  const count = h("p", { class: "quiet", role: "status" });
  const progress = h("div", {});
  const watched = redrives(progress);
  const act = h("button", { class: "primary", type: "submit" });
  const form = h(
    "form",
    {
      class: "filters",
      onsubmit: (event) => {
        event.preventDefault();
        const reason = form.elements.reason.value.trim();
        act.disabled = true;
        return redrive({ ...meant(state), reason, ratePerSecond: Number(form.elements.rate.value) || null })
          .then((found) => {
            state.chosen.clear();
            if (!found.actionId) toast("Nothing was left to redrive.");
            return found.actionId && watched.follow(found.actionId);
          })
          .then(done)
          .catch((error) => toast(error.message, "bad"))
          .finally(() => changed());
      },
    },
    field("reason", "Reason, for the audit trail", { required: true, maxlength: 1000, size: 32 }),
    choice("rate", "How fast", RATES),
    h("button", {
      type: "button",
      text: "Count first",
      onclick: () => preview(state, form, count).catch((error) => toast(error.message, "bad")),
    }),
    act,
  );
  const changed = () => {
    const chosen = state.chosen.size;
    act.textContent = chosen ? `Redrive ${number(chosen)} chosen` : state.total ? `Redrive all ${number(state.total)} that match` : "Redrive all that match";
    act.disabled = (!chosen && state.total === 0) || chosen > MOST;
    // The count stays until the selection changes.
    const now = JSON.stringify([state.filters, [...state.chosen.keys()], state.total]);
    if (now !== counted)
      fill(count, chosen > MOST ? `At most ${number(MOST)} can be chosen one by one. A filter can match more.` : null);
    counted = now;
  };
  changed();
  return {
    progress,
    element: h("div", { class: "dock" }, card(
      null,
      h("p", { class: "quiet small", text: "Each dead letter keeps its id and its history and gets a fresh budget. A rate protects a provider that has just recovered." }),
      form,
      count,
    )),
    changed,
    look: watched.look,
    stop: watched.stop,
  };
}

/** Those chosen one by one, or else all that the filters match. */
function meant(state) {
  if (!state.chosen.size) return { ...state.filters };
  return { items: [...state.chosen.values()].map((one) => ({ notificationId: one.id, routeId: one.routeId })) };
}

function redrive(body) {
  return ask("/api/v1/admin/redrive", { method: "POST", headers: BY_HAND, body });
}

async function preview(state, form, count) {
  const rate = Number(form.elements.rate.value) || null;
  const found = await redrive({ ...meant(state), reason: "count", dryRun: true, ratePerSecond: rate });
  if (!found.matched) return fill(count, "Nothing matches.");
  const causes = found.byCause
    .map((cause) => `${number(cause.count)} ${cause.channel} ${cause.classification}`)
    .join(", ");
  const turn = rate ? `at ${moment(found.lastTurnAt)}` : "at once";
  return fill(count, `${number(found.matched)} would be redriven: ${causes}. The last is due ${turn}.`);
}
