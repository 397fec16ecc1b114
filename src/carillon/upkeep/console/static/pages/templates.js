/** Every template in every language it has, and those it lacks. */

import { ask } from "../lib/api.js";
import { card, counted, empty, fill, h, head, say, table } from "../lib/dom.js";
import { choice, field, given, recall } from "../lib/forms.js";
import { moment, number } from "../lib/format.js";
import { all } from "../lib/template-draft.js";
import { editor } from "../lib/template-editor.js";

/**
 * @param {HTMLElement} main
 * @param {{surface: object, onTick: (call: () => void) => void, go: (hash: string) => void}} shell
 * @param {string[]} rest what follows the page in the address
 */
export async function render(main, shell, rest) {
  const catalogue = await ask("/api/v1/console/templates");
  if (rest[0] === "new" && !rest[1]) return fresh(main, shell, catalogue);
  // A key without channel and language may have many texts: the list shows them.
  if (rest[0] && rest.length < 3) {
    history.replaceState(null, "", `#/templates?${new URLSearchParams({ key: rest[0], channel: rest[1] ?? "" })}`);
    return list(main, shell, catalogue);
  }
  if (rest.length && rest[0]) return editor(main, shell, catalogue, rest);
  return list(main, shell, catalogue);
}

/** The address of one template in one language. */
function address(entry, locale) {
  const parts = [entry.templateKey, entry.channel, locale, entry.tenantId].filter(Boolean);
  return `#/templates/${parts.map(encodeURIComponent).join("/")}`;
}

function list(main, shell, catalogue) {
  const results = h("div", {});
  const gaps = catalogue.items.reduce((sum, one) => sum + one.gaps.length, 0);
  const drafted = new Set(all().map((names) => JSON.stringify(names)));
  const draw = (asked) => fill(results, shown(catalogue, asked, drafted));
  const form = h(
    "form",
    {
      class: "filters",
      role: "search",
      onsubmit: (event) => event.preventDefault(),
      oninput: () => {
        draw(given(form));
        say(counted(results.querySelectorAll("tbody tr").length));
        shell.keep(given(form));
      },
    },
    field("key", "Key or name", { type: "search" }),
    choice("channel", "Channel", [["", "any"], ...shell.surface.channels]),
    choice("category", "Category", [["", "any"], ...categories(catalogue)]),
    choice("kind", "Kind", [
      ["", "any"],
      ["message", "messages"],
      ["layout", "layouts"],
      ["partial", "partials"],
      ["catalogue", "translations"],
    ]),
    choice("lacks", "Languages", [
      ["", "any"],
      ["gaps", "something is missing"],
    ]),
  );
  fill(
    main,
    h(
      "div",
      { class: "page" },
      head("Templates", h("a", { class: "button primary", href: "#/templates/new", text: "New template" })),
      gaps
        ? h(
            "section",
            { class: "card human needed" },
            h("h2", { text: "Missing" }),
            h("p", {
              text: `${number(gaps)} missing: people with that language get no message, or one in another language.`,
            }),
          )
        : null,
      card(null, form),
      card(
        null,
        results,
        catalogue.truncated
          ? h("p", { class: "quiet", text: "There are more templates than this page shows: search by key over the API." })
          : null,
      ),
    ),
  );
  draw(given(recall(form, shell.query)));
}

function categories(catalogue) {
  const used = catalogue.items.flatMap((one) => one.variants.map((variant) => variant.category));
  return [...new Set([...catalogue.categories, ...used].filter(Boolean))].toSorted();
}

function shown(catalogue, asked, drafted) {
  const found = catalogue.items.filter(
    (one) =>
      [one.templateKey, ...one.variants.map((variant) => variant.name ?? "")].some((text) => text.toLowerCase().includes((asked.key ?? "").toLowerCase())) &&
      (!asked.channel || one.channel === asked.channel) &&
      (!asked.category || one.variants.some((variant) => variant.category === asked.category)) &&
      (!asked.kind || one.variants.some((variant) => variant.kind === asked.kind)) &&
      (!asked.lacks || one.gaps.length),
  );
  if (!catalogue.items.length)
    return empty(
      "There is no template yet.",
      h("a", { class: "button", href: "#/templates/new", text: "Write the first template" }),
    );
  if (!found.length) return empty(asked.lacks ? "Nothing is missing." : "Nothing matches.");
  return table(
    "Templates",
    ["key", "channel", "category", "languages", "variables", "changed"],
    found.map((one) => [
      named(one),
      one.channel,
      one.variants.find((variant) => variant.category)?.category ?? h("span", { class: "quiet", text: "none" }),
      languages(one, drafted),
      variables(one),
      latest(one),
    ]),
    { cards: true },
  );
}

function named(entry) {
  const [first] = entry.variants;
  const kind = first && first.kind !== "message" ? h("span", { class: "badge", text: first.kind }) : null;
  const name = entry.variants.find((variant) => variant.name)?.name;
  return h(
    "div",
    {},
    h("span", { class: "row" }, h("b", { text: entry.templateKey }), kind, entry.tenantId ? h("span", { class: "quiet", text: `of ${entry.tenantId}` }) : null),
    name ? h("div", { class: "quiet", text: name }) : null,
  );
}

/** Who changed the template last, and when. */
function latest(entry) {
  const last = entry.variants.filter((variant) => variant.updatedAt).toSorted((one, other) => other.updatedAt.localeCompare(one.updatedAt))[0];
  if (!last) return h("span", { class: "quiet", text: "from a folder" });
  return h("span", {}, h("time", { datetime: last.updatedAt, title: last.updatedAt, text: moment(last.updatedAt) }), last.updatedBy ? ` by ${last.updatedBy}` : "");
}

function languages(entry, drafted) {
  const hasDraft = (locale) => drafted.has(JSON.stringify([entry.tenantId ?? "", entry.templateKey, entry.channel, locale]));
  const had = entry.variants.map((variant) =>
    h(
      "a",
      { class: `chip ${variant.isActive ? "" : "off"}`, href: address(entry, variant.locale) },
      variant.locale,
      h("span", {
        class: "quiet",
        text: variant.id ? ` v${variant.version}${variant.isActive ? "" : " off"}` : " file",
      }),
      hasDraft(variant.locale) ? h("span", { class: "wait", text: " draft" }) : null,
    ),
  );
  const lacked = entry.gaps.map((locale) =>
    h(
      "a",
      { class: "chip gap", href: address(entry, locale), "aria-label": `${locale} is missing` },
      locale,
      h("span", { text: " missing" }),
    ),
  );
  return h("span", { class: "row" }, had, lacked);
}

function variables(entry) {
  // The variables of a template with logic are known when it is rendered: its sample names them.
  const names = [...new Set(entry.variants.flatMap((one) => (one.variables.length ? one.variables : Object.keys(one.sample))))];
  return names.length ? h("code", { text: names.join(", ") }) : h("span", { class: "quiet", text: "none" });
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
      pattern: "[a-z]{2}(-[A-Z]{2})?",
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
