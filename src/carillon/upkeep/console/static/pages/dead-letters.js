/** Dead letters: by cause, one by one, and redriving. */

import { ask } from "../lib/api.js";
import { badge, card, empty, fill, h, head, num, table, toast, when } from "../lib/dom.js";
import { choice, field, given, newest, none, pager, recall, refill, soon, standing } from "../lib/forms.js";
import { moment, number } from "../lib/format.js";
import { CHOOSING } from "../lib/keys.js";
import { redriving } from "../lib/redriving.js";

const PAGE_SIZE = 15;
const MOST_CAUSES = 12;
const OF_DEAD_LETTERS = new Set(["redrive", "retry", "stop_redrive"]);
const BY_HAND = { "X-Admin-Override": "true" };

/**
 * @param {HTMLElement} main
 * @param {{surface: object, onTick: (call: () => void) => void, go: (hash: string) => void}} shell
 */
export async function render(main, shell) {
  const state = Object.assign(standing(shell), { filters: {}, chosen: new Map(), total: 0, asking: newest() });
  const places = { causes: h("div", {}), list: h("div", {}), audit: h("div", {}) };
  const draw = async () => {
    const still = state.asking();
    // The list is asked for first: the causes count all dead letters, which takes longer.
    await Promise.all([
      list(places.list, state, draw, panel, still),
      causes(places.causes, state, narrow, still),
      audit(places.audit, still),
      panel.look(),
    ]);
    if (still()) panel.changed();
  };
  const panel = redriving(state, () => draw());
  const form = filters(shell, state, draw);
  const narrow = (cause) => {
    form.elements.channel.value = cause.channel;
    form.elements.classification.value = cause.classification;
    form.requestSubmit();
  };
  fill(
    main,
    h(
      "div",
      { class: "page" },
      head("Dead letters"),
      panel.progress,
      places.causes,
      card("Matching dead letters", form, places.list),
      panel.element,
      card("Audit trail", places.audit),
    ),
  );
  shell.keys(CHOOSING);
  await draw();
  const later = soon(() => {
    if (!state.cursor && !state.chosen.size) draw().catch(() => {});
  }, 1500);
  shell.onTick(later);
  const poll = setInterval(later, 10_000);
  return () => {
    clearInterval(poll);
    later.stop();
    panel.stop();
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
        state.chosen.clear();
        return draw().catch((error) => toast(error.message, "bad"));
      },
    },
    choice("channel", "Channel", [["", "any"], ...shell.surface.channels]),
    field("classification", "Cause"),
    field("provider", "Provider"),
    field("templateKey", "Template"),
    field("failedAfter", "Failed after", { type: "datetime-local" }),
    field("failedBefore", "and before", { type: "datetime-local" }),
    h("button", { text: "Search" }),
    h("button", { type: "reset", text: "Show all", onclick: () => setTimeout(() => form.requestSubmit()) }),
  );
  state.filters = given(recall(form, shell.query));
  return form;
}

/** How many of each cause, with the newest error and what to do about it. */
async function causes(place, state, narrow, still) {
  const body = { reason: "look", dryRun: true };
  const counted = await ask("/api/v1/admin/redrive", { method: "POST", headers: BY_HAND, body });
  if (!counted.matched) {
    if (still()) fill(place, card("Causes", empty("There are no dead letters. They will be listed here, by cause.")));
    return;
  }
  const shown = counted.byCause.toSorted((one, other) => other.count - one.count).slice(0, MOST_CAUSES);
  const newest = await Promise.all(
    shown.map((cause) =>
      ask("/api/v1/dead-letters", {
        query: { channel: cause.channel, classification: cause.classification, pageSize: 1 },
      }).catch(() => ({ items: [] })),
    ),
  );
  const active = (cause) =>
    state.filters.channel === cause.channel && state.filters.classification === cause.classification;
  if (!still()) return;
  refill(
    place,
    card(
      "Causes",
      h(
        "div",
        { class: "broad" },
        table(
          "Causes",
          [num("number"), "channel", "cause", "newest error", "what to do", ""],
          shown.map((cause, at) => {
            const example = newest[at].items[0];
            return [
              h("b", { text: number(cause.count) }),
              cause.channel,
              badge(cause.classification),
              example?.error,
              example?.hint,
              h("button", {
                type: "button",
                text: active(cause) ? "Shown" : "Show",
                "aria-pressed": String(active(cause)),
                "aria-label": `Show ${cause.channel} ${cause.classification}`,
                onclick: () => narrow(cause),
              }),
            ];
          }),
          { cards: true },
        ),
      ),
    ),
  );
}

async function list(place, state, draw, panel, still) {
  const found = await ask("/api/v1/admin/failed-notifications", {
    query: { ...state.filters, cursor: state.cursor, pageSize: PAGE_SIZE },
  });
  if (!still()) return;
  // Behind the first page nothing is counted.
  state.total = found.totalCount;
  const pages = pager(found, state, () => draw().catch((error) => toast(error.message, "bad")));
  if (!found.items.length) {
    const filtered = Object.keys(state.filters).length;
    refill(place, none(state, filtered ? "Nothing matches. Remove a filter to find more." : "There are no dead letters."), state.cursor ? pages : null);
    return;
  }
  const all = h("input", { type: "checkbox", "aria-label": "Choose all of this page" });
  const boxes = found.items.map((one) => box(one, state, panel, all));
  all.onchange = () =>
    boxes.forEach((each) => {
      if (each.checked !== all.checked) each.click();
    });
  const drawn = table(
    "Dead letters",
    ["", "failed", "template", { name: "to", cut: true }, "channel", "provider", "cause", { name: "error", cut: true }, num("attempts")],
    found.items.map((one, at) => ({ href: `#/notifications/${one.id}`, cells: [
      boxes[at],
      when(one.failedAt),
      h("a", { href: `#/notifications/${one.id}`, text: one.templateKey }),
      one.userId ?? one.routeId.split(":").slice(2).join(":"),
      one.channel,
      one.provider,
      badge(one.classification),
      one.lastError,
      number(one.attemptCount),
    ] })),
    { brief: true },
  );
  drawn.querySelector("th").append(all);
  refill(place, drawn, pages);
}

function box(one, state, panel, all) {
  // A notification may have several routes that were given up; each is a dead letter.
  const key = `${one.id}/${one.routeId}`;
  const made = h("input", {
    type: "checkbox",
    // Many may be given up in the same second: only the id identifies the row that has the focus.
    id: `choose-${key}`,
    "aria-label": `Choose ${one.templateKey} on ${one.channel}, failed ${moment(one.failedAt)}`,
  });
  made.checked = state.chosen.has(key);
  made.onchange = () => {
    if (made.checked) state.chosen.set(key, one);
    else state.chosen.delete(key);
    if (!made.checked) all.checked = false;
    panel.changed();
  };
  return made;
}

async function audit(place, still) {
  // The trail is about everything that people do by hand; here stands what they did with dead letters.
  const found = await ask("/api/v1/admin/audit", { query: { pageSize: 100 } });
  if (!still()) return;
  const shown = found.items.filter((one) => OF_DEAD_LETTERS.has(one.action)).slice(0, 8);
  if (!shown.length) {
    fill(place, empty("Nobody has redriven a dead letter lately."));
    return;
  }
  refill(
    place,
    h(
      "div",
      { class: "broad" },
      table(
        "Audit",
        ["when", "who", "action", "reason", "dead letters"],
        shown.map((one) => [when(one.at), one.actor, badge(one.action), one.reason, concerning(one)]),
        { cards: true },
      ),
    ),
  );
}

function concerning(one) {
  if (one.subject && one.action === "retry")
    return h("a", { href: `#/notifications/${one.subject}`, text: "one notification" });
  const words = Object.entries(one.detail.filters ?? {})
    .filter(([name]) => !name.endsWith("_ms"))
    .map(([name, value]) => `${name.replaceAll("_", " ")} ${value}`);
  const rate = one.detail.ratePerSecond ? `, ${one.detail.ratePerSecond} a second` : "";
  const many = one.detail.redriven === undefined ? "" : `, ${number(one.detail.redriven)} of them`;
  if (one.detail.chosen) words.unshift(`${number(one.detail.chosen)} chosen`);
  return `${one.subject ?? (words.join(", ") || "all")}${rate}${many}`;
}
