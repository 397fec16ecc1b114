/** Digests: which gather events now, what is in each, and what became of the others. */

import { ask } from "../lib/api.js";
import { badge, card, counted, empty, fill, h, head, loading, num, say, table, when } from "../lib/dom.js";
import { choice, given, newest, none, pager, recall, refill, standing } from "../lib/forms.js";
import { number, sentence } from "../lib/format.js";
import { whereIs } from "../lib/pages.js";

const SIZE = 50;

/**
 * @param {HTMLElement} main
 * @param {object} shell
 * @param {string[]} rest the digest's id
 */
export async function render(main, shell, [id]) {
  return id ? one(main, id) : list(main, shell);
}

async function list(main, shell) {
  const rows = h("div", {});
  const fresh = newest();
  const state = Object.assign(standing(shell), { found: null });
  const form = h("form", { class: "filters" }, choice("open", "Show", [["true", "those that gather events"], ["false", "those that were told"], ["", "all"]]));
  const load = async () => {
    const still = fresh();
    const found = await ask("/api/v1/digests", { query: { ...given(form), pageSize: SIZE, cursor: state.cursor } });
    if (!still()) return;
    state.found = found;
    refill(rows, shown(found.items, form.elements.open.value, state), pager({ ...found, totalCount: null }, state, () => load().catch(failed)));
  };
  const failed = (error) => fill(rows, empty(sentence(error.message)));
  form.onchange = () => {
    shell.keep({ open: form.elements.open.value || "all" });
    state.go();
    load().then(() => say(counted(state.found.items.length, state.found.nextCursor))).catch(failed);
  };
  recall(form, shell.query.open === "all" ? { open: "" } : shell.query);
  fill(main, h("div", { class: "page" }, head("Digests"), card(null, form), card(null, fill(rows, loading()))));
  await load();
}

function shown(items, open, state) {
  if (!items.length)
    return none(state, open === "true" ? "No digest gathers events now. A send with a digest opens one; the first event decides when it closes." : "There is no digest.");
  return table(
    "Digests",
    ["person", "key", num("events"), "opened", "closes", "state"],
    items.map((row) => {
      const href = `#/digests/${encodeURIComponent(row.id)}`;
      return { cells: [h("a", { href, text: person(row) }), row.key, number(row.events), when(row.openedAt), when(row.closesAt), stateOf(row)], href };
    }),
    { cards: true },
  );
}

function person(row) {
  return row.recipient.replace(/^user:/, "") + (row.tenantId ? ` of ${row.tenantId}` : "");
}

function stateOf(row) {
  if (row.error) return h("span", { class: "row" }, badge("failed"), row.error);
  return row.toldAt ? badge("delivered") : h("span", { class: "badge wait", text: "gathers" });
}

async function one(main, id) {
  const found = await ask(`/api/v1/digests/${encodeURIComponent(id)}`);
  const { digest, events } = found;
  const user = digest.recipient.startsWith("user:") ? digest.recipient.slice(5) : null;
  const facts = [
    ["Person", user ? h("a", { href: whereIs(user, digest.tenantId), text: user }) : digest.recipient],
    ["Channels", digest.channels.join(", ")],
    ["Opened", when(digest.openedAt)],
    ["Closes", when(digest.closesAt)],
    ["State", stateOf(digest)],
    digest.toldAt && !digest.error ? ["Told by", h("a", { href: `#/notifications/${encodeURIComponent(digest.id)}`, text: "its notification" })] : null,
  ].filter(Boolean);
  fill(
    main,
    h(
      "div",
      { class: "page" },
      head(`Digest ${digest.key}`, h("a", { class: "button", href: "#/digests", text: "All digests" })),
      card(null, h("dl", { class: "facts" }, facts.map(([name, value]) => [h("dt", { text: name }), h("dd", {}, value)]))),
      card(
        `${number(digest.events)} ${digest.events === 1 ? "event" : "events"}`,
        events.length
          ? table("Events", ["event", "template", "category", "when"], events.map((event) => {
              const href = `#/notifications/${encodeURIComponent(event.notificationId)}`;
              return { cells: [h("a", { href, text: event.notificationId }), event.templateKey ?? "no longer kept", event.category ?? "–", when(event.acceptedAt)], href };
            }), { cards: true })
          : empty("No event is kept any more."),
        events.length < digest.events ? h("p", { class: "quiet", text: `The first ${number(events.length)} are shown.` }) : null,
      ),
    ),
  );
}
