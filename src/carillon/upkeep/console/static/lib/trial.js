/** A trial send: a form, and the attempts as they happen. */

import { ask } from "./api.js";
import { badge, card, empty, fill, h, say, toast } from "./dom.js";
import { choice, field, given } from "./forms.js";
import { millis, moment } from "./format.js";
import { samples } from "./samples.js";

const ADDRESSES = {
  email: "ada@example.org",
  sms: "+491701234567",
  push: "demo-device",
  inApp: "demo",
  webhook: "https://example.org/hook",
};
const STEP_MS = 400;

/** @returns {{element: HTMLElement, start: () => Promise<void>, stop: () => void}} */
export function trial(shell) {
  const watched = { timer: null, id: null };
  const story = h("div", {}, empty("Send a message: every attempt is shown here."));
  const form = h("div", {});
  return {
    element: card("Try it", form, story),
    start: async () => {
      const found = await ask("/api/v1/console/templates").catch(() => ({ items: [] }));
      fill(
        form,
        asking(
          shell,
          found.items.filter((one) => shell.surface.channels.includes(one.channel) && one.variants.some((each) => each.kind === "message")),
          story,
          watched,
        ),
      );
    },
    stop: () => {
      clearTimeout(watched.timer);
      watched.id = null;
    },
  };
}

function asking(shell, entries, story, watched) {
  if (!entries.length) return empty("There is no template to send.");
  const words = entries.map((one, at) => [String(at), `${one.templateKey} by ${one.channel}`]);
  const form = h(
    "form",
    {
      class: "filters",
      onsubmit: (event) => {
        event.preventDefault();
        return send(entries[Number(given(form).template)], form.elements.to.value.trim(), story, watched).catch(
          (error) => toast(error.message, "bad"),
        );
      },
    },
    choice("template", "Message", words, {
      onchange: () => {
        form.elements.to.value = ADDRESSES[entries[form.elements.template.value].channel] ?? "";
      },
    }),
    field("to", "To", { required: true, value: ADDRESSES[entries[0].channel] ?? "" }),
    h("button", { class: "primary", text: "Send" }),
  );
  return form;
}

async function send(entry, to, story, watched) {
  const variant = entry.variants[0];
  const body = {
    templateKey: entry.templateKey,
    channel: entry.channel,
    recipient: to,
    locale: variant.locale,
    data: samples(variant.variables, variant.defaultVariables),
  };
  if (entry.channel === "inApp") body.userId = to;
  const sent = await ask("/api/v1/notifications/send", { method: "POST", body });
  clearTimeout(watched.timer);
  watched.id = sent.notificationId;
  const step = async () => {
    const over = await look(sent.notificationId, story).catch(() => false);
    if (!over && watched.id === sent.notificationId) watched.timer = setTimeout(step, STEP_MS);
  };
  await step();
}

async function look(id, story) {
  const one = await ask(`/api/v1/notifications/${encodeURIComponent(id)}`, { query: { include: "attempts" } });
  const tries = one.routes.flatMap((route) => route.attempts);
  fill(
    story,
    h("p", {}, badge(one.status), " ", h("a", { href: `#/notifications/${id}`, text: "its history" })),
    h(
      "ol",
      { class: "timeline" },
      tries.map((each) =>
        h(
          "li",
          { class: each.outcome === "sent" ? "good" : "bad" },
          h("b", { text: `Attempt ${each.number} by ${each.provider}` }),
          " ",
          badge(each.outcome),
          " ",
          h("time", { text: moment(each.startedAt) }),
          h("div", { class: "quiet", text: `${millis(each.durationMs)}, ${each.verdict.replace("_", " ")}` }),
        ),
      ),
      tries.length ? null : h("li", { class: "wait", text: "Waiting for its first attempt" }),
    ),
  );
  say(`${one.status}, ${tries.length} ${tries.length === 1 ? "attempt" : "attempts"}`);
  return one.status !== "queued";
}
