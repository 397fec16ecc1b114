/** Publishing: a look at what changes, then the next version. */

import { ask, Problem } from "./api.js";
import { fill, h } from "./dom.js";
import { shownDiff } from "./diff.js";

/** The fields of a template with their labels, in the order in which people read them. */
export const PARTS = [
  ["subjectTemplate", "Subject or title"],
  ["htmlTemplate", "HTML"],
  ["mjml", "MJML"],
  ["bodyTemplate", "Text"],
];
/** What stands beside the text. */
export const MORE = [
  ["engine", "Engine"],
  ["kind", "Kind"],
  ["layout", "Layout"],
  ["category", "Category"],
  ["name", "Name"],
  ["description", "Description"],
  ["defaultVariables", "Default variables"],
  ["sample", "Sample variables"],
  ["push", "Fields of the push"],
  ["inApp", "Fields of the inbox"],
];

/** A field as text, so that two versions can be compared. */
export function asText(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "object") return String(value);
  return Object.keys(value).length ? JSON.stringify(value, null, 2) : "";
}

/** The fields that differ. */
export function changed(before, after) {
  return [...PARTS, ...MORE].filter(([name]) => asText(before?.[name]) !== asText(after[name]));
}

/** The differences as elements; a sentence if there are none. */
export function differences(before, after, none) {
  const found = changed(before, after);
  if (!found.length) return h("p", { class: "quiet", text: none });
  return found.map(([name, label]) => shownDiff(label, asText(before?.[name]), asText(after[name])));
}

/**
 * Store the next version.
 * @param {object} state
 * @param {object} content
 */
export async function publish(state, content) {
  const body = Object.fromEntries([...PARTS, ...MORE].map(([name]) => [name, content[name] ?? null]));
  body.engine ??= "jinja";
  body.kind ??= "message";
  if (!state.used?.id) {
    const { key, channel, locale, tenant } = state;
    return ask("/api/v1/templates", {
      method: "POST",
      body: { ...body, templateKey: key, channel, locale, tenantId: tenant ?? null },
    });
  }
  // Send the version that this edit began with, so that it does not overwrite an edit made meanwhile.
  const newest = (await ask(`/api/v1/templates/${state.used.id}/versions`)).items[0].version;
  if (newest !== state.base)
    throw new Problem(409, "CONFLICT", `Somebody published version ${newest} meanwhile: compare it with yours below, then publish again.`, { newest });
  return ask(`/api/v1/templates/${state.used.id}`, { method: "PUT", body: { ...body, version: newest } });
}

/**
 * Ask before publishing, with everything that changes. Ctrl-S publishes, Esc goes back.
 * @param {object} state
 * @param {object} content
 * @param {() => Promise<void>} done after it was published
 * @param {(error: Error) => void} refused
 */
export function review(state, content, done, refused) {
  const next = (state.base ?? 0) + 1;
  const problem = h("p", { class: "bad", role: "alert" });
  const go = h("button", { class: "primary", text: `Publish version ${next}` });
  const back = h("button", { type: "button", text: "Go on writing", onclick: () => dialog.close() });
  const form = h("form", { method: "dialog", class: "review" },
    h("h2", { id: "review-title", text: `Publish ${state.key} as version ${next}?` }),
    h("p", { class: "quiet", text: "Every process uses it at once. You can roll back to any earlier version." }),
    h("div", { class: "review-changes", tabindex: "0" }, differences(state.used ?? {}, content, "Nothing differs from the version in use.")),
    problem,
    h("div", { class: "row" }, go, back));
  const dialog = h("dialog", { class: "review-dialog", "aria-labelledby": "review-title" }, form);
  form.onsubmit = async (event) => {
    event.preventDefault();
    go.disabled = true;
    try {
      await publish(state, content);
      dialog.close();
      await done();
    } catch (error) {
      go.disabled = false;
      fill(problem, error.message);
      refused(error);
    }
  };
  dialog.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.key !== "s") return;
    event.preventDefault();
    event.stopPropagation();
    form.requestSubmit();
  });
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  go.focus();
}
