/** Categories: what people get without a choice of their own, what nobody can switch off, and who has left. */

import { ask } from "../lib/api.js";
import { card, empty, fill, h, head, num, table } from "../lib/dom.js";
import { number, percent } from "../lib/format.js";

/** @param {HTMLElement} main */
export async function render(main) {
  const found = await ask("/api/v1/categories");
  fill(main, h("div", { class: "page" }, head("Categories"), found.items.length ? shown(found) : none()));
}

function none() {
  return card(null, empty("No categories are configured. Add [categories.NAME] to the settings; templates and sends then name one, and people choose by category and channel."));
}

function shown(found) {
  const channels = Object.keys(found.items[0].defaults);
  const chose = found.items.some((one) => Object.keys(one.left).length || Object.keys(one.joined).length);
  const counted = found.truncated ? `the first ${number(found.people)}` : number(found.people);
  return [
    card(
      "What people get without a choice of their own",
      table(
        "Categories",
        ["category", ...channels, "throttle", ""],
        found.items.map((one) => [
          h("div", {}, h("b", { text: one.title }), h("div", { class: "quiet", text: one.text || one.name })),
          ...channels.map((channel) => h("span", { class: one.defaults[channel] ? "yes" : "no", text: one.defaults[channel] ? "on" : "off" })),
          one.throttle ? `at most ${one.throttle}${one.overflow === "digest" ? ", then a digest" : ""}` : "–",
          h("span", { class: "row" }, one.required ? h("span", { class: "badge", text: "required" }) : null, one.urgent ? h("span", { class: "badge wait", text: "urgent" }) : null),
        ]),
        { cards: true },
      ),
    ),
    card(
      "What people chose",
      !found.people ? null : h("p", { class: "quiet", text: found.people === 1 ? "One person's preferences are kept." : `Among ${counted} people whose preferences are kept.` }),
      !chose ? empty("Nobody has chosen anything yet.") : table(
        "What people chose",
        ["category", "channel", num("left"), num("share"), num("joined")],
        found.items.flatMap((one) =>
          channels
            .filter((channel) => one.left[channel] || one.joined[channel])
            .map((channel) => [one.title, channel, number(one.left[channel] ?? 0), percent(found.people ? (one.left[channel] ?? 0) / found.people : null), number(one.joined[channel] ?? 0)]),
        ),
      ),
    ),
  ];
}
