/** The addresses that nothing is sent to: why, until when, added and lifted by hand. */

import { ask } from "../lib/api.js";
import { badge, card, counted, fill, h, head, say, table, toast, when } from "../lib/dom.js";
import { choice, field, given, newest, none, pager, recall, refill, soon, standing } from "../lib/forms.js";
import { moment } from "../lib/format.js";
import { lift } from "../lib/lifting.js";

const PAGE_SIZE = 25;
const KINDS = ["bounced", "complained", "unsubscribed", "invalid", "manual"];
const PATH = "/api/v1/suppressions";

/**
 * @param {HTMLElement} main
 * @param {{surface: object, onTick: (call: () => void) => void, go: (hash: string) => void}} shell
 */
export async function render(main, shell) {
  const state = Object.assign(standing(shell), { filters: {}, asking: newest() });
  const place = h("div", {});
  const draw = () => list(place, state, draw);
  fill(
    main,
    h(
      "div",
      { class: "page" },
      head("Suppressions"),
      card("Nothing is sent to", filters(shell, state, draw), place),
      card("Add by hand", adding(shell, draw)),
    ),
  );
  await draw();
  const later = soon(() => {
    if (!state.cursor) draw().catch(() => {});
  }, 1500);
  shell.onTick(later);
  const poll = setInterval(later, 10_000);
  return () => {
    clearInterval(poll);
    later.stop();
  };
}

function filters(shell, state, draw) {
  const form = h(
    "form",
    {
      class: "filters tight",
      role: "search",
      onsubmit: (event) => {
        event.preventDefault();
        shell.keep(given(form));
        state.filters = given(form);
        state.go();
        return draw().then((found) => { if (found) say(counted(found.items.length, found.nextCursor)); }).catch((error) => toast(error.message, "bad"));
      },
    },
    choice("channel", "Channel", [["", "any"], ...shell.surface.channels]),
    field("address", "Address", { type: "search", size: 28 }),
    choice("kind", "Kind", [["", "any"], ...KINDS]),
    shell.surface.pages.includes("overview") ? field("tenantId", "Tenant") : null,
    h("button", { text: "Search" }),
    h("button", { type: "reset", text: "Show all", onclick: () => setTimeout(() => form.requestSubmit()) }),
  );
  state.filters = given(recall(form, shell.query));
  return form;
}

async function list(place, state, draw) {
  const still = state.asking();
  const found = await ask(PATH, { query: { ...state.filters, cursor: state.cursor, pageSize: PAGE_SIZE } });
  if (!still()) return null;
  const pages = pager(found, state, () => draw().catch((error) => toast(error.message, "bad")));
  if (!found.items.length) {
    const filtered = Object.keys(state.filters).length;
    refill(place, none(state, filtered ? "Nothing matches. Remove a filter to find more." : "No address is suppressed."), state.cursor ? pages : null);
    return found;
  }
  refill(
    place,
    table(
      "Suppressions",
      ["address", "channel", "kind", "until", "for", "reason", "from", "since", ""],
      found.items.map((one) => [
        h("span", { class: "address", text: one.address }),
        one.channel,
        badge(one.kind),
        one.expiresAt ? moment(one.expiresAt) : "it is lifted",
        one.tenantId ?? "everybody",
        one.reason,
        one.source,
        when(one.createdAt),
        h("button", {
          type: "button",
          id: `lift-${one.id}`,
          text: "Lift",
          "aria-label": `Lift ${one.channel} ${one.address} for ${one.tenantId ?? "everybody"}`,
          onclick: () => lift(one, draw),
        }),
      ]),
      { cards: true },
    ),
    pages,
  );
  return found;
}

function adding(shell, draw) {
  const form = h(
    "form",
    {
      class: "filters tight",
      onsubmit: async (event) => {
        event.preventDefault();
        const body = Object.fromEntries(Object.entries(given(form)).map(([name, value]) => [name.slice(4), value]));
        try {
          await ask(PATH, { method: "POST", body });
          form.reset();
          toast(`Nothing more is sent to ${body.address}.`, "good");
        } catch (error) {
          toast(error.message, "bad");
        }
        await draw();
      },
    },
    // Names of their own: the fields above have the same labels.
    choice("add-channel", "Channel to suppress", shell.surface.channels),
    field("add-address", "Address to suppress", { required: true, size: 28 }),
    field("add-reason", "Reason", { required: true }),
    field("add-expiresAt", "Until, or for ever", { type: "datetime-local" }),
    shell.surface.pages.includes("overview") ? field("add-tenantId", "Tenant, or everybody") : null,
    h("button", { class: "primary", text: "Suppress" }),
  );
  return form;
}
