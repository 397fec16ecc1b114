/** The editor of one template in one language: live preview, differences, publishing, rolling back. */

import { ask, Problem } from "./api.js";
import { card, fill, h, head, toast } from "./dom.js";
import { shownDiff } from "./diff.js";
import { area, choice, field, newest, soon } from "./forms.js";
import { preview } from "./preview.js";
import { samples } from "./samples.js";
import { versions } from "./template-versions.js";

const PARTS = [
  ["subjectTemplate", "Subject or title"],
  ["bodyTemplate", "Text"],
  ["htmlTemplate", "HTML"],
  ["mjml", "MJML"],
];
const PAUSE_MS = 250;
const NAME = /\{\{\s*([\w.]+)\s*\}\}/g;

/**
 * Draw the page of one template.
 * @param {HTMLElement} main
 * @param {object} shell
 * @param {object} catalogue what `/api/v1/console/templates` answers
 * @param {string[]} address key, channel, locale and, for a tenant's own, the tenant
 */
export async function editor(main, shell, catalogue, [key, channel, locale, tenant]) {
  if (key === "new" && !channel) return fresh(main, shell, catalogue);
  const entry = catalogue.items.find(
    (one) => one.templateKey === key && one.channel === channel && (one.tenantId ?? undefined) === tenant,
  );
  const used = entry?.variants.find((one) => one.locale === locale) ?? null;
  const other = entry?.variants.find((one) => one.locale === catalogue.defaultLocale) ?? entry?.variants[0];
  const state = { key, channel, locale, tenant, used, start: used ?? blank(other), asking: newest() };
  const again = async () => editor(main, shell, await ask("/api/v1/console/templates"), [key, channel, locale, tenant]);
  const parts = {
    form: h("form", { class: "write" }),
    seen: h("div", { "aria-live": "polite" }),
    changes: h("div", {}),
    problem: h("p", { class: "bad", role: "alert" }),
    // Apart from the preview's problem: a preview that comes later must not remove the reason of a refusal.
    refusal: h("div", {}),
    history: h("div", {}),
  };
  const look = soon(() => shown(state, parts), PAUSE_MS);
  build(state, parts, look, again);
  fill(
    main,
    h(
      "div",
      { class: "page" },
      head(
        key,
        h("span", { class: "quiet", text: standing(state) }),
        h("a", { class: "button", href: "#/templates", text: "All templates" }),
      ),
      others(entry, state),
      h(
        "div",
        { class: "two" },
        card("Write", parts.form),
        card("As the recipient sees it", parts.problem, parts.seen, samplesOf(state, parts, look)),
      ),
      card("What changes", parts.changes),
      parts.history,
    ),
  );
  await Promise.all([shown(state, parts), versions(parts.history, state, again)]);
  if (state.newest) parts.form.querySelector("button").textContent = `Publish version ${state.newest + 1}`;
  return () => look.stop();
}

function blank(other) {
  return {
    subjectTemplate: other?.subjectTemplate ?? null,
    bodyTemplate: other?.bodyTemplate ?? "",
    htmlTemplate: other?.htmlTemplate ?? null,
    mjml: other?.mjml ?? null,
    engine: other?.engine ?? "jinja",
    kind: other?.kind ?? "message",
    layout: other?.layout ?? null,
    sample: other?.sample ?? {},
    defaultVariables: other?.defaultVariables ?? {},
    variables: other?.variables ?? [],
  };
}

function standing({ used, channel, locale }) {
  const where = `${channel}, ${locale}`;
  if (!used) return `${where}: missing`;
  if (!used.id) return `${where}: from a folder`;
  return `${where}: version ${used.version}${used.isActive ? " is in use" : " is switched off"}`;
}

function others(entry, state) {
  const known = [...(entry?.variants.map((one) => one.locale) ?? []), ...(entry?.gaps ?? [])];
  if (known.length < 2) return null;
  const path = (locale) =>
    `#/templates/${[state.key, state.channel, locale, state.tenant].filter(Boolean).map(encodeURIComponent).join("/")}`;
  return h(
    "nav",
    { class: "row", "aria-label": "Languages" },
    known.toSorted().map((locale) =>
      h("a", {
        class: `chip ${entry.gaps.includes(locale) ? "gap" : ""}`,
        href: path(locale),
        "aria-current": locale === state.locale ? "page" : null,
        text: entry.gaps.includes(locale) ? `${locale} missing` : locale,
      }),
    ),
  );
}

function build(state, parts, look, again) {
  const wanted = PARTS.filter(([name]) => name !== "htmlTemplate" || state.channel === "email")
    .filter(([name]) => name !== "subjectTemplate" || state.channel !== "sms")
    // The HTML of a template has one source.
    .filter(([name]) => (name === "mjml" ? Boolean(state.start.mjml) : name !== "htmlTemplate" || !state.start.mjml));
  const next = state.used?.id ? state.used.version + 1 : 1;
  fill(
    parts.form,
    wanted.map(([name, label]) =>
      area(name, label, {
        rows: name === "subjectTemplate" ? 1 : name === "bodyTemplate" ? 7 : 6,
        text: state.start[name] ?? "",
      }),
    ),
    h(
      "div",
      { class: "row" },
      h("button", { class: "primary", text: `Publish version ${next}` }),
      h("span", {
        class: "quiet",
        text:
          state.used && !state.used.id
            ? "The ledger stores this version, which overrides the template in the folder."
            : "Every process then uses this version.",
      }),
    ),
    parts.refusal,
  );
  parts.form.oninput = () => {
    fill(parts.refusal);
    look();
  };
  parts.form.onsubmit = (event) => {
    event.preventDefault();
    return publish(state, written(parts.form))
      .then(again)
      .catch((error) => fill(parts.refusal, h("p", { class: "bad", role: "alert", text: error.message })));
  };
}

/** The content of the fields, without empty ones. */
function written(form) {
  return Object.fromEntries(PARTS.map(([name]) => [name, form.elements[name]?.value || null]));
}

async function publish(state, content) {
  const { subjectTemplate, bodyTemplate, htmlTemplate, mjml } = content;
  const body = { subjectTemplate, bodyTemplate, htmlTemplate, mjml, sample: state.sample ?? state.start.sample };
  if (state.used?.id) {
    // Send the version that this edit began with, so that it does not overwrite an edit made meanwhile.
    const newest = (await ask(`/api/v1/templates/${state.used.id}/versions`)).items[0].version;
    if (newest !== (state.newest ?? newest))
      throw new Problem(409, "CONFLICT", `Somebody published version ${newest} meanwhile: read it first.`, null);
    await ask(`/api/v1/templates/${state.used.id}`, { method: "PUT", body: { ...body, version: newest } });
  } else {
    await ask("/api/v1/templates", {
      method: "POST",
      body: {
        ...body,
        templateKey: state.key,
        channel: state.channel,
        locale: state.locale,
        defaultVariables: state.start.defaultVariables,
        engine: state.start.engine,
        kind: state.start.kind,
        layout: state.start.layout,
        tenantId: state.tenant ?? null,
      },
    });
  }
  toast("Published: every process uses this version now.");
}

function samplesOf(state, parts, look) {
  const made = area("samples", "Sample variables", {
    rows: 5,
    text: JSON.stringify({ ...samples(state.start.variables, state.start.defaultVariables), ...state.start.sample }, null, 2),
  });
  parts.samples = made.querySelector("textarea");
  parts.samples.oninput = look;
  return made;
}

async function shown(state, parts) {
  const still = state.asking();
  const content = written(parts.form);
  fill(parts.changes, changed(state, content));
  if (!content.bodyTemplate && !content.htmlTemplate && !content.mjml) {
    if (still()) fill(parts.seen, h("p", { class: "quiet", text: "Write a text, and it is shown here." }));
    return;
  }
  const { engine, layout, defaultVariables } = state.start;
  const asked = { ...content, channel: state.channel, locale: state.locale, engine, layout, defaultVariables };
  try {
    const data = completed(state, content, parts.samples);
    state.sample = data;
    const seen = await ask("/api/v1/templates/render", {
      method: "POST",
      body: { ...Object.fromEntries(Object.entries(asked).filter(([, value]) => value !== null)), data },
    });
    if (!still()) return;
    fill(parts.problem);
    fill(
      parts.seen,
      preview(state.channel, "ada@example.org", { subject: seen.subject, text: seen.body, html: seen.html }),
    );
  } catch (error) {
    if (still()) fill(parts.problem, error instanceof SyntaxError ? "The sample variables are not JSON." : error.message);
  }
}

/** The samples, with a value for every variable of the text. */
function completed(state, content, place) {
  const data = JSON.parse(place.value || "{}");
  const names = Object.values(content).flatMap((text) => [...(text ?? "").matchAll(NAME)].map(([, name]) => name));
  const fresh = names.filter((name) => !(name.split(".")[0] in data));
  if (!fresh.length) return data;
  const whole = { ...data, ...samples(fresh, state.start.defaultVariables) };
  if (document.activeElement !== place) place.value = JSON.stringify(whole, null, 2);
  return document.activeElement === place ? data : whole;
}

function changed(state, content) {
  const before = state.used ?? {};
  const parts = PARTS.filter(([name]) => (before[name] ?? "") !== (content[name] ?? ""));
  if (!parts.length) return h("p", { class: "quiet", text: "No difference: this is the published version." });
  return parts.map(([name, label]) => shownDiff(label, before[name] ?? "", content[name] ?? ""));
}

function fresh(main, shell, catalogue) {
  const form = h(
    "form",
    {
      class: "filters",
      onsubmit: (event) => {
        event.preventDefault();
        const { key, channel, locale } = Object.fromEntries(new FormData(form));
        shell.go(`#/templates/${[key, channel, locale].map(encodeURIComponent).join("/")}`);
      },
    },
    field("key", "Key", {
      required: true,
      pattern: "[a-z0-9._\\-]+",
      maxlength: 200,
      title: "a-z, 0-9, dot, underscore, hyphen",
    }),
    choice("channel", "Channel", shell.surface.channels),
    field("locale", "Language", {
      required: true,
      value: catalogue.defaultLocale,
      pattern: "[a-z]{2,3}(-[A-Z]{2})?",
      title: "as en or en-US",
    }),
    h("button", { class: "primary", text: "Write it" }),
  );
  fill(
    main,
    h(
      "div",
      { class: "page" },
      head("New template", h("a", { class: "button", href: "#/templates", text: "All templates" })),
      card(null, form),
    ),
  );
}
