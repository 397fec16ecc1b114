/** The audit trail: who did what by hand, when and why. */

import { ask } from "../lib/api.js";
import { card, counted, empty, fill, h, head, loading, say, table, when } from "../lib/dom.js";
import { sentence } from "../lib/format.js";
import { field, given, newest, none, pager, recall, refill, standing } from "../lib/forms.js";

const SIZE = 50;

/**
 * @param {HTMLElement} main
 * @param {object} shell
 */
export async function render(main, shell) {
  const rows = h("div", {});
  const fresh = newest();
  const state = Object.assign(standing(shell), { found: null });
  const form = h(
    "form",
    { class: "filters", role: "search" },
    field("actor", "Who", { type: "search" }),
    field("action", "What", { type: "search", list: "actions", placeholder: "pause, redrive…" }),
    h("datalist", { id: "actions" }),
    field("subject", "About", { type: "search", placeholder: "an id, a provider…" }),
    field("after", "Since", { type: "datetime-local" }),
    h("button", { class: "primary", text: "Show" }),
  );
  const load = async () => {
    const still = fresh();
    const { action, ...asked } = given(form);
    // The trail writes force_open and the page reads force open: both are understood.
    const found = await ask("/api/v1/admin/audit", { query: { ...asked, action: action?.replaceAll(" ", "_"), pageSize: SIZE, cursor: state.cursor } });
    if (!still()) return;
    state.found = found;
    fill(form.querySelector("datalist"), [...new Set(found.items.map((one) => one.action))].toSorted().map((value) => h("option", { value })));
    refill(rows, shown(found.items, state), pager({ ...found, totalCount: null }, state, () => load().catch(failed)));
  };
  const failed = (error) => fill(rows, empty(sentence(error.message)));
  form.onsubmit = (event) => {
    event.preventDefault();
    shell.keep(given(form));
    state.go();
    load().then(() => say(counted(state.found.items.length, state.found.nextCursor))).catch(failed);
  };
  recall(form, shell.query);
  fill(main, h("div", { class: "page" }, head("Audit"), card(null, form), card(null, fill(rows, loading()))));
  await load();
}

function shown(items, state) {
  if (!items.length) return none(state, "Nothing matches. What an operator does by hand is recorded here, with the reason.");
  return table(
    "Audit",
    ["when", "who", "what", "about", "tenant", "why", ""],
    items.map((one) => [when(one.at), h("b", { text: one.actor }), one.action.replaceAll("_", " "), subject(one), one.tenantId ?? "all", one.reason ?? "–", details(one)]),
    { cards: true },
  );
}

function subject(one) {
  if (!one.subject) return "–";
  // The trail keeps no address of a person: a suppression is known by its number.
  if (/^\d+$/.test(one.subject) && one.detail?.channel) return `${one.detail.channel} suppression ${one.subject}`;
  return /^[0-9a-f]{8}-[0-9a-f-]{27}$/.test(one.subject)
    ? h("a", { href: `#/notifications/${encodeURIComponent(one.subject)}`, text: one.subject })
    : h("span", { class: "address", text: one.subject });
}

function details(one) {
  if (!Object.keys(one.detail ?? {}).length) return "";
  return h("details", {}, h("summary", { text: "details" }), h("pre", { text: JSON.stringify(one.detail, null, 2) }));
}
