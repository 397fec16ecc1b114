/** Who requeued failed messages, and why. */

import { ask } from "./api.js";
import { badge, card, h, table } from "./dom.js";
import { newest, none, refill, standing, turned } from "./forms.js";
import { moment, number } from "./format.js";

const SHOWN = 8;

/**
 * The card with the newest actions.
 * @param {object} shell
 * @param {string|null} name of one queue, or of all
 */
export function auditOf(shell, name) {
  const place = h("div", {});
  const asking = newest();
  const state = standing(shell, "actions");
  const draw = async () => {
    const still = asking();
    const found = await ask("/ops/audit", { query: { queue: name, limit: SHOWN, cursor: state.cursor } });
    if (!still()) return;
    refill(place, found.actions.length ? rows(found.actions, name) : none(state, "Nobody has requeued a message."), turned(found.actions, found, state, draw, "audit trail"));
  };
  return { element: card("Audit trail", place), draw };
}

function rows(actions, name) {
  const drawn = table(
    "Audit",
    ["when", "who", "did", ...(name ? [] : ["queue"]), "why", "of which"],
    actions.map((one) => [
      moment(one.at),
      one.actor,
      badge(one.action),
      ...(name ? [] : [link(one)]),
      one.reason,
      concerning(one),
    ]),
    { cards: true },
  );
  return h("div", { class: "broad" }, drawn);
}

function link(one) {
  // Several rows lead to one queue: their numbers tell them apart.
  return h("a", { id: `audit-${one.id}`, href: `#/queues/${encodeURIComponent(one.queue)}`, text: one.queue });
}

function concerning(one) {
  if (one.chosen !== null) return `${number(one.chosen)} chosen`;
  if (one.limit !== null) return `the oldest ${number(one.limit)}`;
  return one.found === null ? "all" : `all ${number(one.found)}`;
}
