/** The versions of a template: who wrote each and what changed in it, the differences, and rolling back. */

import { ask } from "./api.js";
import { confirm } from "./dialog.js";
import { badge, card, empty, fill, h, table, toast } from "./dom.js";
import { diff } from "./diff.js";
import { moment } from "./format.js";
import { asText, changed, differences } from "./template-publish.js";

/**
 * @param {HTMLElement} place
 * @param {{used: object|null, base?: number|null}} state
 * @param {() => object} written what is in the editor now
 * @param {() => Promise<void>} again draws the page anew
 */
export async function versions(place, state, written, again) {
  if (!state.used?.id) {
    const said = state.used
      ? "This template comes from a folder and has no versions here. Publish it to keep versions."
      : "There is no version yet.";
    fill(place, card("Versions", empty(said)));
    return null;
  }
  const found = (await ask(`/api/v1/templates/${state.used.id}/versions`)).items;
  const difference = h("div", { "aria-live": "polite" });
  const used = (one) => one.version === state.used.version && state.used.isActive;
  const rows = found.map((one, at) => [
    h("span", { class: "row" }, `v${one.version}`, used(one) ? badge("active") : null),
    h("time", { datetime: one.updatedAt, title: one.updatedAt, text: moment(one.updatedAt) }),
    one.createdBy ?? "unknown",
    summary(found[at + 1] ?? null, one),
    h("span", { class: "row" }, ...actions(one, used(one), state, { difference, written, again })),
  ]);
  fill(place, card("Versions", table("Versions", ["version", "written", "by", "what changed", ""], rows, { cards: true }), difference));
  return found[0];
}

function actions(one, used, state, { difference, written, again }) {
  const show = (...children) => {
    fill(difference, children);
    difference.scrollIntoView({ block: "nearest" });
  };
  const mine = h("button", {
    type: "button",
    text: "Compare with mine",
    "aria-label": `Compare version ${one.version} with what is written above`,
    onclick: () =>
      show(h("h3", { text: `From version ${one.version} to what is written above` }), differences(one, written(), "They are identical.")),
  });
  if (used) return [mine];
  return [
    h("button", {
      type: "button",
      text: "Compare",
      "aria-label": `Compare version ${one.version} with the version in use`,
      onclick: () =>
        show(
          h("h3", { text: `From version ${state.used.version}, which is in use, to version ${one.version}` }),
          differences(state.used, one, "They are identical."),
        ),
    }),
    mine,
    h("button", {
      type: "button",
      text: "Roll back to this",
      "aria-label": `Roll back to version ${one.version}`,
      onclick: () => back(one, state, again),
    }),
  ];
}

/** How many lines of which field a version changed. */
function summary(before, after) {
  if (!before) return h("span", { class: "quiet", text: "the first version" });
  const parts = changed(before, after).map(([name, label]) => {
    const marks = diff(asText(before[name]), asText(after[name])).map(({ mark }) => mark);
    const count = (wanted) => marks.filter((mark) => mark === wanted).length;
    return h("span", { class: "summary" }, `${label} `, h("ins", { text: `+${count("+")}` }), " ", h("del", { text: `−${count("-")}` }));
  });
  return parts.length ? h("span", { class: "row" }, parts) : h("span", { class: "quiet", text: "nothing" });
}

/** As with publishing, every process uses it at once: a look at what changes comes first. */
async function back(one, state, again) {
  const text = h("div", { class: "review" }, h("p", { class: "quiet", text: "Every process uses it at once." }),
    h("div", { class: "review-changes", tabindex: "0", role: "group", "aria-label": "What changes" }, differences(state.used, one, "They are identical.")));
  const given = await confirm({ title: `Roll back to version ${one.version}?`, text, act: "Roll back" });
  if (!given) return;
  const made = await ask(`/api/v1/templates/${state.used.id}/publish`, { method: "POST", body: { version: one.version } });
  toast(`Version ${one.version} is in use again, as version ${made.version}.`);
  await again();
}
