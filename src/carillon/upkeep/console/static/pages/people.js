/** People: everything about one person, what may be changed for them, and their rights. */

import { ask, spelled, token } from "../lib/api.js";
import { confirm } from "../lib/dialog.js";
import { badge, card, copies, counted, empty, fill, h, head, num, say, table, titled, toast, when } from "../lib/dom.js";
import { field, given, refill } from "../lib/forms.js";
import { many, number, sentence } from "../lib/format.js";
import { lift } from "../lib/lifting.js";
import { whereIs } from "../lib/pages.js";
import { chosen, wishes } from "../lib/person-wishes.js";

const NEWEST = 20;
/** Among so many of the newest notifications a person is looked for. */
const MOST = 100;

/**
 * @param {HTMLElement} main
 * @param {object} shell
 * @param {string[]} rest the person's id
 */
export async function render(main, shell, [id]) {
  return id ? person(main, shell, id, shell.query.tenant ?? "") : search(main, shell);
}

function search(main, shell) {
  const found = h("div", {});
  const form = h(
    "form",
    { class: "filters", role: "search" },
    field("who", "A person's id, or an address", { type: "search", required: true, placeholder: "user-42", value: shell.query.who ?? "" }),
    field("tenant", "Tenant", { placeholder: "only for operators", value: shell.query.tenant ?? "" }),
    h("button", { class: "primary", text: "Look up" }),
  );
  let asked = 0;
  form.onsubmit = async (event) => {
    event.preventDefault();
    const { who, tenant } = given(form);
    if (!who) return;
    shell.keep({ who, tenant });
    fill(found, h("p", { class: "quiet", text: "Looking…" }));
    const turn = ++asked;
    const shown = await matches(who, tenant ?? "").catch((error) => empty(sentence(error.message)));
    // Somebody else was looked up meanwhile.
    if (turn !== asked) return;
    fill(found, shown);
    say(counted(found.querySelectorAll("tbody tr").length));
  };
  fill(
    main,
    h(
      "div",
      { class: "page" },
      head("People"),
      card(null, form, h("p", { class: "quiet note", text: "An id or an address is looked up whole: the beginning of an address finds nobody." })),
      found,
    ),
  );
  if (shell.query.who) form.requestSubmit();
}

/** Whom the text names: as an id, and as an address that notifications went to. */
async function matches(who, tenant) {
  const query = { pageSize: MOST, tenantId: tenant, count: "capped" };
  const [own, sent, byId] = await Promise.all([
    ask(`/api/v1/people/${encodeURIComponent(who)}`, { query: { tenantId: tenant } }),
    ask("/api/v1/notifications", { query: { ...query, recipient: who } }),
    ask("/api/v1/notifications", { query: { ...query, userId: who } }),
  ]);
  // The same id is somebody else in each tenant: an operator who names none finds all of them.
  const people = new Map();
  const found = (id, of, how, at) => { if (!people.has(`${of ?? ""} ${id}`)) people.set(`${of ?? ""} ${id}`, [id, of, how, at]); };
  for (const one of byId.items) found(who, one.tenantId, "by id", one.createdAt);
  if (own.known) found(who, own.tenantId, "by id", own.preferences.updatedAt);
  for (const one of sent.items) if (one.userId) found(one.userId, one.tenantId, "by address", one.createdAt);
  const shown = [...people.values()];
  const anonymous = sent.items.filter((one) => !one.userId).length;
  const more = anonymous
    ? h("p", {}, `${number(anonymous)} of the newest notifications went to this address without naming a person. `, h("a", { href: `#/notifications?${new URLSearchParams({ recipient: who, ...(tenant ? { tenantId: tenant } : {}) })}`, text: "Show them" }))
    : null;
  if (!shown.length) return card(null, more ?? empty("Nobody is known by this id or address."), h("p", {}, h("a", { href: whereIs(who, tenant), text: `Open ${who} all the same` })));
  return card(
    null,
    table("People", ["person", "tenant", "found", "last seen"], shown.map(([id, of, how, at]) => ({ cells: [h("a", { href: whereIs(id, of), text: id }), of ?? "–", how, when(at)], href: whereIs(id, of) })), { cards: true }),
    more,
  );
}

async function person(main, shell, id, tenant) {
  const query = { tenantId: tenant };
  const again = () => person(main, shell, id, tenant);
  const [who, sent] = await Promise.all([
    ask(`/api/v1/people/${encodeURIComponent(id)}`, { query }),
    ask("/api/v1/notifications", { query: { userId: id, tenantId: tenant, pageSize: tenant ? NEWEST : MOST, count: "capped" } }),
  ]);
  // Where no tenant is named, an operator is answered with those of every tenant: the same id is somebody else there.
  const own = sent.items.filter((one) => one.tenantId === who.tenantId).slice(0, NEWEST);
  const addresses = addressesOf(who, own);
  const held = await suppressed(addresses, who.tenantId);
  fill(
    main,
    h(
      "div",
      { class: "page" },
      head(id, who.tenantId ? h("span", { class: "quiet", text: `of ${who.tenantId}` }) : null, copies(id, "Copy id"), h("a", { class: "button", href: "#/people", text: "Find another" })),
      who.known || own.length ? null : h("section", { class: "card human needed" }, h("p", { text: "Nothing is kept about this person: what is shown are the defaults." })),
      h("div", { class: "two" }, reached(addresses, held, again), about(who, query, again)),
      titled("What they want", null, wanted(id, query, who.preferences)),
      h("div", { class: "two" }, gathering(who), throttled(who)),
      newestOnes(id, tenant, own),
      rights(id, who, query),
    ),
  );
}

/** Contacts that the person gave, and addresses that their newest notifications went to. */
function addressesOf(who, sent) {
  const kinds = { email: "email", phone: "sms", pushToken: "push" };
  const found = new Map(Object.entries(who.preferences.contacts).map(([kind, address]) => [address, { address, channel: kinds[kind] ?? kind, from: "preferences" }]));
  for (const route of sent.flatMap((one) => one.routes ?? []))
    if (route.recipient && !found.has(route.recipient)) found.set(route.recipient, { address: route.recipient, channel: route.channel, from: "a notification" });
  return [...found.values()];
}

/** What keeps messages from the addresses: what holds for everybody, and for the person's own tenant; an operator may see those of others. */
async function suppressed(addresses, tenantId) {
  const asked = addresses.slice(0, 20).map(({ address, channel }) => ask("/api/v1/suppressions", { query: { address, channel, ...(tenantId ? { tenantId } : { shared: true }), pageSize: 10 } }).catch(() => ({ items: [] })));
  return (await Promise.all(asked)).flatMap((one) => one.items).filter((one) => !one.tenantId || one.tenantId === tenantId);
}

function reached(addresses, held, again) {
  const state = (one) => held.find((row) => row.address === one.address && row.channel === one.channel);
  if (!addresses.length) return card("Addresses and devices", empty("No address is known: neither in the preferences nor from notifications."));
  return card(
    "Addresses and devices",
    table(
      "Addresses and devices",
      ["channel", "address", "state", ""],
      addresses.map((one) => {
        const row = state(one);
        return [
          one.channel,
          h("span", { class: "address", title: `from ${one.from}`, text: one.address }),
          row ? h("span", { class: "row" }, badge("suppressed"), h("span", { class: "quiet", text: row.reason ?? row.kind })) : badge("active"),
          row ? h("button", { type: "button", class: "small", text: "Lift", "aria-label": `Lift the suppression of ${one.address}`, onclick: () => lift(row, again) }) : "",
        ];
      }),
      { cards: true },
    ),
  );
}

function about(who, query, again) {
  return card("Language and time", wishes(who.preferences, async (change) => {
    if (await changed(who.id, query, change)) await again();
  }));
}

/** The switches; a change draws only them anew, so that nothing that is being typed elsewhere is lost. */
function wanted(id, query, first) {
  const place = h("div", {});
  const draw = (held) => refill(place, chosen(held, async (change) => draw((await changed(id, query, change)) ?? held)));
  draw(first);
  return place;
}

/** The preferences afterwards; null if the change was refused. */
async function changed(id, query, change) {
  try {
    const held = await ask(`/api/v1/preferences/user/${encodeURIComponent(id)}`, { method: "PATCH", query, body: change });
    toast("Changed.");
    return held;
  } catch (error) {
    toast(error.message, "bad");
    return null;
  }
}

function gathering(who) {
  if (!who.digests.length) return card("Digests", empty("No digest gathers events for this person."));
  return card(
    "Digests",
    table("Digests", ["key", num("events"), "closes"], who.digests.map((one) => [h("a", { href: `#/digests/${encodeURIComponent(one.id)}`, text: one.key }), number(one.events), when(one.closesAt)]), { cards: true }),
  );
}

function throttled(who) {
  if (!who.throttles.length) return card("Throttles", empty("No category has a throttle."));
  return card(
    "Throttles",
    table("Throttles", ["category", num("sent"), "at most", ""], who.throttles.map((one) => [one.category, number(one.sent), one.atMost, one.full ? h("span", { class: "badge wait", text: "full" }) : ""]), { cards: true }),
  );
}

function newestOnes(id, tenant, sent) {
  const all = h("a", { href: `#/notifications?${new URLSearchParams({ userId: id, ...(tenant ? { tenantId: tenant } : {}) })}`, text: "All notifications" });
  if (!sent.length) return titled("Notifications", all, empty("No notification names this person."));
  const rows = sent.map((one) => {
    const href = `#/notifications/${encodeURIComponent(one.id)}`;
    return { cells: [h("a", { href, text: one.templateKey }), one.channel ?? "–", badge(one.status), when(one.createdAt)], href };
  });
  return titled("Notifications", all, table("Notifications", ["template", "channel", "status", "when"], rows, { cards: true }));
}

function rights(id, who, query) {
  const state = h("div", { role: "status" });
  return card(
    "Their rights",
    h("p", { class: "quiet", text: "A link opens the person's own page without a login. An export has everything about the person, as lines of JSON. An erasure cannot be undone." }),
    h(
      "div",
      { class: "row" },
      h("button", { type: "button", text: "Make a preference link", disabled: !who.preferenceLinks, title: who.preferenceLinks ? null : "Set consent.keys to make links", onclick: () => link(id, query, state) }),
      h("button", { type: "button", text: "Export", onclick: () => exported(id, query, state) }),
      h("button", { type: "button", class: "danger", text: "Erase…", onclick: () => erase(id, query, state) }),
    ),
    state,
  );
}

async function link(id, query, state) {
  try {
    const made = await ask(`/api/v1/people/${encodeURIComponent(id)}/preference-link`, { method: "POST", query, body: {} });
    fill(state, h("p", { class: "row" }, h("code", { text: made.url }), copies(made.url, "Copy link")));
  } catch (error) {
    fill(state, h("p", { class: "bad", text: error.message }));
  }
}

async function exported(id, query, state) {
  fill(state, "Collecting everything…");
  const named = query.tenantId ? `?${new URLSearchParams({ tenantId: query.tenantId })}` : "";
  try {
    const answer = await fetch(spelled(`/api/v1/people/${encodeURIComponent(id)}/export`) + named, { headers: token() ? { Authorization: `Bearer ${token()}` } : {} });
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    const blob = await answer.blob();
    const made = h("a", { href: URL.createObjectURL(blob), download: `${id}.ndjson`, text: `Save ${id}.ndjson` });
    fill(state, h("p", {}, made, h("span", { class: "quiet", text: ` ${number(blob.size)} bytes` })));
    made.focus();
  } catch (error) {
    fill(state, h("p", { class: "bad", text: `The export failed: ${error.message}` }));
  }
}

/** Only who types the id erases: nothing brings the person back. */
async function erase(id, query, state) {
  const asked = await confirm({
    title: `Erase ${id}?`,
    text: "Notifications, preferences, digests and streams of this person are deleted. Suppressed addresses stay suppressed under a hash. Nothing brings the person back.",
    fields: [field("typed", `Type ${id} to erase this person`, { required: true, pattern: id.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&"), title: id })],
    act: "Erase for good",
    danger: true,
  });
  if (!asked || asked.typed !== id) return;
  fill(state, h("p", { text: "Erasing… This goes on if you close the page." }));
  try {
    const done = await ask(`/api/v1/people/${encodeURIComponent(id)}`, { method: "DELETE", query });
    const removed = Object.entries(done.removed ?? {}).filter(([, count]) => count);
    fill(
      state,
      h("p", { class: done.finished ? "good" : "bad", text: done.finished ? "Erased." : `Not finished: ${done.unfinished.join(", ")} could not be reached. Erase again later: it goes on where it was.` }),
      removed.length ? table("Erased", ["what", num("rows")], removed.map(([what, count]) => [what, number(count)])) : null,
      done.suppressionsKept ? h("p", { class: "quiet", text: `${many(done.suppressionsKept, "suppressed address stays", "suppressed addresses stay")} suppressed, under a hash.` }) : null,
    );
  } catch (error) {
    fill(state, h("p", { class: "bad", text: `Not finished: ${sentence(error.message)} Erase again: it goes on where it was.` }));
  }
}
