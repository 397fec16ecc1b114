/** The editor of one template in one language: writing, live preview, drafts, publishing, versions. */

import { ask } from "./api.js";
import { card, fill, h, head, toast } from "./dom.js";
import { newest, soon } from "./forms.js";
import { moment } from "./format.js";
import { code } from "./template-code.js";
import * as drafts from "./template-draft.js";
import { options, values } from "./template-options.js";
import { seen } from "./template-preview.js";
import { asText, changed, differences, PARTS, review } from "./template-publish.js";
import { sending } from "./template-send.js";
import { versions } from "./template-versions.js";
import { samples } from "./samples.js";

const PAUSE_MS = 250;
/** Not of a call: macros and functions are no variables. */
const NAME = /\{\{-?\s*([a-zA-Z_][\w.]*)(?![\w.]*\s*\()/g;
/** Names that templates have without data. */
const GIVEN = new Set(["loop", "brand", "t", "super", "caller", "range", "self"]);
/** What a channel carries beside its texts; the channel is also the name of the field. */
const CARRIED = {
  push: ["Fields of the push", "JSON: image, actionUrl, collapseKey, ttlSeconds, badge, sound, channelId, data. Texts may have tags."],
  inApp: ["Fields of the inbox", "JSON: url, icon, actions. Texts may have tags."],
};
const ROWS = { subjectTemplate: 1, bodyTemplate: 6, htmlTemplate: 12, mjml: 12 };
/** The field of each part that an error names. */
const FIELD_OF = { subject: "subjectTemplate", text: "bodyTemplate", html: "htmlTemplate", mjml: "mjml" };

/**
 * Draw the page of one template.
 * @param {HTMLElement} main
 * @param {object} shell
 * @param {object} catalogue what `/api/v1/console/templates` answers
 * @param {string[]} address key, channel, locale and, for a tenant's own, the tenant
 */
export async function editor(main, shell, catalogue, [key, channel, locale, tenant]) {
  const entry = catalogue.items.find(
    (one) => one.templateKey === key && one.channel === channel && (one.tenantId ?? undefined) === tenant,
  );
  const used = entry?.variants.find((one) => one.locale === locale) ?? null;
  const other = entry?.variants.find((one) => one.locale === catalogue.defaultLocale) ?? entry?.variants[0];
  const state = { key, channel, locale, tenant, used, catalogue, start: used ?? blank(other), asking: newest() };
  state.base = used?.id ? used.version : null;
  let left = () => {};
  let gone = false;
  const again = async () => {
    // The page is drawn anew: this drawing of it must not listen any more, nor keep a draft.
    left({ anew: true });
    left = await editor(main, shell, await ask("/api/v1/console/templates"), [key, channel, locale, tenant]);
    // It may have been left meanwhile.
    if (gone) left({ anew: true });
  };
  const parts = { refusal: h("div", {}), changes: h("div", {}), history: h("div", {}), notice: h("div", { "aria-live": "polite" }), fields: {} };
  const look = soon(() => shown(state, parts), PAUSE_MS);
  build(state, parts, () => {
    fill(parts.refusal);
    look();
  });
  restore(state, parts);
  const publishing = () => review(state, written(parts), published(state, again), (error) => refused(error, state, parts, again));
  fill(main, page(state, parts, entry, publishing));
  const listening = listen(state, parts, publishing);
  left = (how = {}) => {
    look.stop();
    listening();
    if (!how.anew) kept(state, parts);
  };
  const [, last] = await Promise.all([shown(state, parts), versions(parts.history, state, () => written(parts), again)]);
  if (last && !state.draft) state.base = last.version;
  return (how) => {
    gone = true;
    left(how);
  };
}

function published(state, again) {
  return async () => {
    drafts.drop(state);
    toast("Published: every process uses this version now.");
    await again();
  };
}

/** Another person was faster: show their version, and let the next try go on from it. */
function refused(error, state, parts, again) {
  fill(parts.refusal, h("p", { class: "bad", role: "alert", text: error.message }));
  placed(error, parts, state.key);
  if (error.status !== 409 || !error.body?.newest) return;
  state.base = error.body.newest;
  document.querySelector(".review-dialog")?.close();
  versions(parts.history, state, () => written(parts), again).catch(() => {});
}

function blank(other) {
  const empty = { subjectTemplate: null, bodyTemplate: "", htmlTemplate: null, mjml: null, engine: "jinja", kind: "message" };
  return { ...empty, layout: null, sample: {}, defaultVariables: {}, variables: [], ...other, id: null };
}

function page(state, parts, entry, publishing) {
  return h(
    "div",
    { class: "page" },
    head(
      state.key,
      h("span", { class: "quiet", text: standing(state) }),
      h("a", { class: "button", href: "#/templates", text: "All templates" }),
      h("button", { type: "button", class: "primary", text: "Review and publish", title: "Ctrl-S", onclick: publishing }),
    ),
    others(entry, state),
    parts.notice,
    h(
      "div",
      { class: "editor" },
      h("section", { class: "card", "aria-label": "Write" }, h("h2", { text: "Write" }), parts.form, parts.refusal),
      h(
        "section",
        { class: "card editor-seen", "aria-label": "Preview" },
        h("h2", { text: "As the recipient sees it" }),
        parts.problem,
        parts.seen.element,
        sending(state.channel, () => trial(state, parts)),
      ),
    ),
    card("What changes", parts.changes),
    parts.history,
  );
}

function standing({ used, channel, locale }) {
  const where = `${channel}, ${locale}`;
  if (!used) return `${where}: missing`;
  if (!used.id) return `${where}: from a folder`;
  const by = used.updatedBy ? `, by ${used.updatedBy}` : "";
  return `${where}: version ${used.version}${used.isActive ? " is in use" : " is switched off"}${by}`;
}

function others(entry, state) {
  const gaps = entry?.gaps ?? [];
  const known = [...new Set([...(entry?.variants.map((one) => one.locale) ?? []), ...gaps, state.locale])];
  if (known.length < 2) return null;
  const path = (locale) =>
    `#/templates/${[state.key, state.channel, locale, state.tenant].filter(Boolean).map(encodeURIComponent).join("/")}`;
  return h(
    "nav",
    { class: "row", "aria-label": "Languages" },
    known.toSorted().map((locale) =>
      h("a", {
        class: `chip ${gaps.includes(locale) ? "gap" : ""}`,
        href: path(locale),
        "aria-current": locale === state.locale ? "page" : null,
        text: gaps.includes(locale) ? `${locale} missing` : locale,
      }),
    ),
  );
}

function build(state, parts, typed) {
  const oninput = () => {
    typed();
    kept(state, parts);
  };
  for (const [name, label] of PARTS) {
    const note = name === "bodyTemplate" && state.channel === "email" ? "Left empty, the text is made from the HTML." : null;
    parts.fields[name] = code(name, label, { value: state.start[name] ?? "", rows: note ? 3 : ROWS[name], note, oninput });
  }
  parts.channel = state.channel;
  if (CARRIED[state.channel]) {
    const [label, note] = CARRIED[state.channel];
    parts.carried = code("carried", label, { value: asText(state.start[state.channel]), rows: 5, note, oninput });
  }
  const sample = { ...samples(state.start.variables ?? [], state.start.defaultVariables), ...state.start.sample };
  parts.samples = code("samples", "Sample variables", {
    value: JSON.stringify(sample, null, 2),
    rows: 6,
    note: "JSON, published with the template; tests and previews use them.",
    oninput,
  });
  parts.options = options(state, () => {
    visible(state, parts);
    oninput();
  });
  parts.problem = h("p", { class: "bad", role: "alert" });
  parts.seen = seen(state.channel);
  parts.form = h(
    "form",
    { class: "write", onsubmit: (event) => event.preventDefault() },
    PARTS.map(([name]) => parts.fields[name].element),
    parts.carried?.element ?? [],
    parts.samples.element,
    parts.options,
  );
  visible(state, parts);
}

/** Only the fields that the channel and the source of the HTML have. */
function visible(state, parts) {
  const mail = state.channel === "email";
  const source = parts.options.elements.source?.value;
  const hide = {
    subjectTemplate: state.channel === "sms",
    htmlTemplate: !mail || source !== "htmlTemplate",
    mjml: !mail || source !== "mjml",
  };
  for (const [name] of PARTS) parts.fields[name].element.hidden = Boolean(hide[name]);
}

/** Everything that is written, as a version has it; a hidden field is empty. Sample variables that are no JSON stay as they were. */
function written(parts) {
  const content = values(parts.options);
  for (const [name] of PARTS) {
    const { element, input } = parts.fields[name];
    content[name] = element.hidden ? null : input.value || null;
  }
  content.bodyTemplate ??= "";
  if (parts.carried) content[parts.channel] = carried(parts.carried.input.value);
  try {
    content.sample = JSON.parse(parts.samples.input.value || "{}");
  } catch {
    content.sample = {};
  }
  return content;
}

/** The fields; what is no JSON goes to the server as it is, which says what is wrong with it. */
function carried(text) {
  try {
    return text.trim() ? JSON.parse(text) : null;
  } catch {
    return text;
  }
}

/** What the author has changed: compared with the version in use, sample variables aside that the editor made up. */
function touched(state, parts) {
  return changed(state.start, written(parts)).some(([name]) => name !== "sample" || parts.samples.input.value !== state.sampled);
}

function kept(state, parts) {
  if (!touched(state, parts)) drafts.drop(state);
  else if (!drafts.keep(state, { ...written(parts), samples: parts.samples.input.value }, state.base) && !state.told) {
    state.told = true;
    toast("This browser keeps no drafts: publish before you leave the page.", "bad");
  }
}

/** Put a draft back that was not published. */
function restore(state, parts) {
  state.sampled = parts.samples.input.value;
  state.draft = drafts.kept(state);
  if (!state.draft) return;
  const { content, base, at } = state.draft;
  parts.options.restore(content);
  visible(state, parts);
  for (const [name] of PARTS) parts.fields[name].set(content[name] ?? "");
  parts.carried?.set(asText(content[state.channel]));
  parts.samples.set(content.samples ?? JSON.stringify(content.sample ?? {}, null, 2));
  const newer = state.base && base !== state.base ? ` It began with version ${base ?? "none"}; version ${state.base} is in use now.` : "";
  state.base = base ?? state.base;
  fill(
    parts.notice,
    h(
      "div",
      { class: "card draft" },
      h("span", { text: `Your draft of ${moment(at / 1000)} is back.${newer}` }),
      h("button", { type: "button", text: "Discard the draft", onclick: () => discard(state, parts) }),
    ),
  );
}

function discard(state, parts) {
  state.base = state.used?.id ? state.used.version : null;
  parts.options.restore(state.start);
  visible(state, parts);
  for (const [name] of PARTS) parts.fields[name].set(state.start[name] ?? "");
  parts.carried?.set(asText(state.start[state.channel]));
  parts.samples.set(state.sampled);
  drafts.drop(state);
  fill(parts.notice);
  shown(state, parts);
}

/** Ctrl-S reviews and publishes; the browser asks before the page with something unpublished is closed. */
function listen(state, parts, publishing) {
  const keys = (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.key !== "s" || document.querySelector("dialog[open]")) return;
    event.preventDefault();
    publishing();
  };
  const leaving = (event) => {
    if (touched(state, parts)) event.preventDefault();
  };
  document.addEventListener("keydown", keys);
  addEventListener("beforeunload", leaving);
  return () => {
    document.removeEventListener("keydown", keys);
    removeEventListener("beforeunload", leaving);
  };
}

async function shown(state, parts) {
  const still = state.asking();
  const content = written(parts);
  fill(parts.changes, differences(state.used ?? {}, { ...content, sample: touchedSample(state, parts, content) }, "No difference: this is the published version."));
  if (!content.bodyTemplate && !content.htmlTemplate && !content.mjml) {
    if (still()) parts.seen.say("Write a text, and it is shown here.");
    return;
  }
  try {
    const body = { ...asked(state, content), data: completed(state, content, parts.samples) };
    const answer = await ask("/api/v1/templates/render", { method: "POST", body });
    if (!still()) return;
    fill(parts.problem);
    for (const field of Object.values(parts.fields)) field.show([]);
    parts.seen.show(answer);
  } catch (error) {
    if (!still()) return;
    parts.seen.stale();
    const json = error instanceof SyntaxError;
    parts.samples.show(json ? [{ message: "The sample variables are not JSON." }] : []);
    if (!json && !placed(error, parts, state.key)) fill(parts.problem, error.message);
    else fill(parts.problem);
  }
}

/** The sample is a change only if its author typed it. */
function touchedSample(state, parts, content) {
  return parts.samples.input.value === state.sampled ? (state.used?.sample ?? {}) : content.sample;
}

/** Show an error at its line; false if it names no field here: a layout and a partial have lines of their own. */
function placed(error, parts, key) {
  const said = (error.body?.error?.details ?? []).filter((one) => one.line && one.template === key);
  const details = said.map((one) => ({ ...one, field: FIELD_OF[one.part] })).filter((one) => parts.fields[one.field]);
  for (const [name] of PARTS) parts.fields[name].show(details.filter((one) => one.field === name));
  return details.length > 0;
}

function asked(state, content) {
  const { subjectTemplate, bodyTemplate, htmlTemplate, mjml, engine, layout, defaultVariables, push, inApp } = content;
  const all = { subjectTemplate, bodyTemplate, htmlTemplate, mjml, engine, layout, defaultVariables, push: push ?? null, inApp: inApp ?? null };
  const place = { templateKey: state.key, tenantId: state.tenant ?? null, channel: state.channel, locale: state.locale };
  const given = Object.entries({ ...all, ...place }).filter(([, value]) => value !== null && value !== "");
  return Object.fromEntries(given);
}

function trial(state, parts) {
  const content = written(parts);
  return { ...asked(state, content), data: JSON.parse(parts.samples.input.value || "{}") };
}

/** The samples, with a value for every variable of the text. */
function completed(state, content, { input, set }) {
  const data = JSON.parse(input.value || "{}");
  const texts = [...PARTS.map(([name]) => content[name] ?? ""), asText(content[state.channel])];
  const names = texts.flatMap((text) => [...text.matchAll(NAME)].map(([, name]) => name));
  const own = new Set(texts.flatMap((text) => [...text.matchAll(/\{%-?\s*(?:for|set|macro)\s+([\w, ]+)/g)].flatMap(([, list]) => list.split(/[\s,]+/))));
  const fresh = names.filter((name) => {
    const [first] = name.split(".");
    return !(first in data) && !GIVEN.has(first) && !own.has(first);
  });
  if (!fresh.length || document.activeElement === input) return data;
  const whole = { ...data, ...samples(fresh, content.defaultVariables ?? {}) };
  const untouched = input.value === state.sampled;
  set(JSON.stringify(whole, null, 2));
  if (untouched) state.sampled = input.value;
  return whole;
}
