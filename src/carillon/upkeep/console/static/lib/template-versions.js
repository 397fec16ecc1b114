/** The versions of a template: their authors, the differences from the version in use, and rolling back. */

import { ask } from "./api.js";
import { badge, card, empty, fill, h, table, toast } from "./dom.js";
import { shownDiff } from "./diff.js";
import { moment } from "./format.js";

const PARTS = [
  ["subjectTemplate", "Subject or title"],
  ["bodyTemplate", "Text"],
  ["htmlTemplate", "HTML"],
  ["mjml", "MJML"],
];

/**
 * @param {HTMLElement} place
 * @param {{used: object|null, newest?: number}} state
 * @param {() => Promise<void>} again draws the page anew
 */
export async function versions(place, state, again) {
  if (!state.used?.id) {
    fill(
      place,
      card(
        "Versions",
        empty(
          state.used
            ? "This template comes from a folder and has no versions here. Publish it to keep versions."
            : "There is no version yet.",
        ),
      ),
    );
    return;
  }
  const found = (await ask(`/api/v1/templates/${state.used.id}/versions`)).items;
  state.newest = found[0].version;
  const difference = h("div", { "aria-live": "polite" });
  const used = (one) => one.version === state.used.version && state.used.isActive;
  fill(
    place,
    card(
      "Versions",
      table(
        "Versions",
        ["version", "written", "by", "", ""],
        found.map((one) => [
          h("span", { class: "row" }, `v${one.version}`, used(one) ? badge("active") : null),
          moment(one.updatedAt),
          one.createdBy ?? "unknown",
          used(one)
            ? ""
            : h("button", {
                type: "button",
                text: "Compare",
                "aria-label": `Compare version ${one.version} with the version in use`,
                onclick: () => fill(difference, compared(one, state.used)),
              }),
          used(one)
            ? ""
            : h("button", {
                type: "button",
                text: "Roll back to this",
                "aria-label": `Roll back to version ${one.version}`,
                onclick: () => back(one, state, again),
              }),
        ]),
      ),
      difference,
    ),
  );
}

async function back(one, state, again) {
  const made = await ask(`/api/v1/templates/${state.used.id}/publish`, {
    method: "POST",
    body: { version: one.version },
  });
  toast(`Version ${one.version} is in use again, as version ${made.version}.`);
  await again();
}

function compared(one, used) {
  const parts = PARTS.filter(([name]) => (one[name] ?? "") !== (used[name] ?? ""));
  return [
    h("h3", { text: `From version ${used.version}, which is in use, to version ${one.version}` }),
    parts.length
      ? parts.map(([name, label]) => shownDiff(label, used[name] ?? "", one[name] ?? ""))
      : h("p", { class: "quiet", text: "They are identical." }),
  ];
}
