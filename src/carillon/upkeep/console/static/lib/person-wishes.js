/** What a person wants, to be read and changed: categories by channel, language, time zone, quiet hours. */

import { h } from "./dom.js";
import { field } from "./forms.js";

const TITLES = { email: "Email", sms: "Text message", push: "Push", inApp: "Inbox", webhook: "Webhook" };
const DAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/**
 * A grid of switches: whole channels first, then every category.
 * @param {object} held
 * @param {(change: object) => void} change
 */
export function chosen(held, change) {
  const channels = Object.keys(held.channels);
  const categories = Object.entries(held.categories);
  const all = h(
    "tr",
    {},
    h("th", { scope: "row", text: "Everything without a category" }),
    channels.map((channel) => h("td", {}, toggle(`${TITLES[channel] ?? channel}`, held.channels[channel].isEnabled, (on) => change({ channels: { [channel]: { isEnabled: on } } })))),
  );
  const rows = categories.map(([name, by]) => {
    const fixed = held.required.includes(name);
    return h(
      "tr",
      {},
      h("th", { scope: "row" }, name, fixed ? h("span", { class: "quiet", text: " required" }) : null),
      channels.map((channel) => h("td", {}, toggle(`${name} by ${TITLES[channel] ?? channel}`, by[channel], (on) => change({ categories: { [name]: { [channel]: on } } }), fixed))),
    );
  });
  const grid = h(
    "div",
    { class: "scroll" },
    h("table", { class: "wishes", "aria-label": "What they want" }, h("thead", {}, h("tr", {}, h("th", { scope: "col", text: "category" }), channels.map((channel) => h("th", { scope: "col", text: TITLES[channel] ?? channel })))), h("tbody", {}, all, rows)),
    categories.length ? null : h("p", { class: "quiet", text: "No categories are configured: whole channels are all there is to choose." }),
  );
  return h("div", { class: "slim" }, grid);
}

function toggle(label, on, change, fixed = false) {
  return h("input", { type: "checkbox", role: "switch", "aria-label": label, checked: on, disabled: fixed, onchange: (event) => change(event.currentTarget.checked) });
}

/**
 * Language, time zone and quiet hours.
 * @param {object} held
 * @param {(change: object) => void} change
 */
export function wishes(held, change) {
  const quiet = held.quietHours;
  const day = (name) =>
    h("label", { class: "day" }, h("input", { type: "checkbox", name: "day", value: name, checked: !quiet.days.length || quiet.days.includes(name) }), name);
  const form = h(
    "form",
    { class: "filters wishes-form" },
    field("locale", "Language", { value: held.preferredLocale ?? "", placeholder: "the tenant's", pattern: "[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*" }),
    field("zone", "Time zone", { value: held.timeZone ?? "", placeholder: "UTC", list: "zones" }),
    h("datalist", { id: "zones" }, (Intl.supportedValuesOf?.("timeZone") ?? []).map((value) => h("option", { value }))),
    h("label", { class: "day" }, h("input", { type: "checkbox", name: "quiet", checked: quiet.enabled }), "Quiet hours"),
    field("start", "from", { type: "time", value: quiet.startTime ?? "22:00" }),
    field("end", "to", { type: "time", value: quiet.endTime ?? "07:00" }),
    h("fieldset", {}, h("legend", { text: "on" }), DAYS.map(day)),
    h("button", { text: "Change" }),
  );
  form.onsubmit = (event) => {
    event.preventDefault();
    const made = new FormData(form);
    const days = made.getAll("day");
    change({
      preferredLocale: made.get("locale") || null,
      timeZone: made.get("zone") || null,
      quietHours: made.get("quiet") ? { enabled: true, startTime: made.get("start"), endTime: made.get("end"), days: days.length === 7 ? [] : days } : null,
    });
  };
  return form;
}
