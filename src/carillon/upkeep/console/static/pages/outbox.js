/** The messages that the sandbox captured, as their recipients would see them. */

import { ask } from "../lib/api.js";
import { badge, card, counted, empty, fill, h, head, say } from "../lib/dom.js";
import { choice, field, given, newest, recall, refill, soon } from "../lib/forms.js";
import { moment, number } from "../lib/format.js";
import { preview } from "../lib/preview.js";

const SHOWN = 24;
const ASKED = 200;

/**
 * @param {HTMLElement} main
 * @param {{surface: object, onTick: (call: () => void) => void, go: (hash: string) => void}} shell
 */
export async function render(main, shell) {
  const { channel = "", words = "" } = shell.query;
  const state = { channel, words, most: SHOWN, seen: "" };
  const list = h("div", { "aria-busy": "true" });
  const asking = newest();
  const draw = async (again = false) => {
    const still = asking();
    const { channel } = state;
    const found = await ask("/api/v1/sandbox/messages", { query: { channel, limit: ASKED } });
    if (!still() || channel !== state.channel) return;
    const seen = JSON.stringify(found.items);
    if (seen === state.seen && !again) return;
    state.seen = seen;
    list.removeAttribute("aria-busy");
    refill(
      list,
      sheet(
        folded(found.items).filter((one) => holds(one, state.words)),
        state,
        () => draw(true),
      ),
    );
  };
  fill(
    main,
    h(
      "div",
      { class: "page" },
      head("Outbox", h("span", { class: "quiet", text: "The sandbox sent none of these messages." })),
      card(
        null,
        filters(shell, state, () => draw(true)),
      ),
      list,
    ),
  );
  await draw();
  const later = soon(() => draw().catch(() => {}), 700);
  shell.onTick(later);
  const poll = setInterval(later, 5000);
  return () => {
    clearInterval(poll);
    later.stop();
  };
}

function filters(shell, state, draw) {
  const form = h(
    "form",
    {
      class: "filters",
      role: "search",
      onsubmit: (event) => event.preventDefault(),
      oninput: () => {
        Object.assign(state, { channel: "", words: "", most: SHOWN }, given(form));
        shell.keep(given(form));
        Promise.resolve(draw()).then(() => say(counted(document.querySelectorAll(".outbox > li").length)), () => {});
      },
    },
    choice("channel", "Channel", [["", "any"], ...shell.surface.channels]),
    field("words", "Address or words", { type: "search", size: 28 }),
  );
  return recall(form, state);
}

/** Attempts of one message are shown once, with the outcome of the newest. */
function folded(items) {
  const found = new Map();
  for (const one of items) {
    const known = found.get(one.messageId);
    if (known) known.tries.push(one);
    else found.set(one.messageId, { ...one, tries: [one] });
  }
  return [...found.values()];
}

function holds(one, words) {
  const text = [one.recipient, one.message?.subject, one.message?.text, one.notificationId].join(" ").toLowerCase();
  return text.includes(words.toLowerCase());
}

function sheet(found, state, draw) {
  if (!found.length) {
    return card(
      null,
      empty(
        state.words || state.channel
          ? "Nothing matches."
          : "The sandbox got no message since this process began. Every message that it gets appears here at once.",
      ),
    );
  }
  const more = found.length - state.most;
  return [
    h("ul", { class: "outbox", "aria-label": "Messages" }, found.slice(0, state.most).map(item)),
    more > 0
      ? h(
          "p",
          { class: "pager" },
          h("button", {
            type: "button",
            text: `Show ${number(Math.min(more, SHOWN))} more`,
            onclick: () => {
              state.most += SHOWN;
              draw();
            },
          }),
        )
      : null,
  ];
}

function item(one) {
  const earlier =
    one.tries.length > 1
      ? h("div", {
          class: "quiet",
          text: `tried ${one.tries.length} times: ${one.tries
            .map((each) => each.outcome)
            .toReversed()
            .join(", ")}`,
        })
      : null;
  return h(
    "li",
    { class: "card" },
    h("div", { class: "row" }, h("b", { text: one.channel }), badge(one.outcome), h("time", { text: moment(one.at) })),
    h("div", { class: "quiet to", text: one.recipient ?? "no recipient" }),
    one.message ? preview(one.channel, one.recipient, one.message) : empty("The content of this message was not stored."),
    earlier,
    h("a", { href: `#/notifications/${one.notificationId}`, text: "Its history" }),
  );
}
