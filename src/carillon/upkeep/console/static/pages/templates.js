/** Every template in every language it has, and those it lacks. */

import { ask } from "../lib/api.js";
import { card, empty, fill, h, head, table } from "../lib/dom.js";
import { choice, field, given } from "../lib/forms.js";
import { number } from "../lib/format.js";
import { editor } from "../lib/template-editor.js";

/**
 * @param {HTMLElement} main
 * @param {{surface: object, onTick: (call: () => void) => void, go: (hash: string) => void}} shell
 * @param {string[]} rest what follows the page in the address
 */
export async function render(main, shell, rest) {
  const catalogue = await ask("/api/v1/console/templates");
  if (rest.length && rest[0]) return editor(main, shell, catalogue, rest);
  return list(main, shell, catalogue);
}

/** The address of one template in one language. */
function address(entry, locale) {
  const parts = [entry.templateKey, entry.channel, locale, entry.tenantId].filter(Boolean);
  return `#/templates/${parts.map(encodeURIComponent).join("/")}`;
}

function list(main, shell, catalogue) {
  const results = h("div", { "aria-live": "polite" });
  const gaps = catalogue.items.reduce((sum, one) => sum + one.gaps.length, 0);
  const draw = (asked) => fill(results, shown(catalogue, asked));
  const form = h(
    "form",
    {
      class: "filters",
      role: "search",
      onsubmit: (event) => event.preventDefault(),
      oninput: () => draw(given(form)),
    },
    field("key", "Key", { type: "search" }),
    choice("channel", "Channel", [["", "any"], ...shell.surface.channels]),
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
  draw({});
}

function shown(catalogue, asked) {
  const found = catalogue.items.filter(
    (one) =>
      one.templateKey.includes(asked.key ?? "") &&
      (!asked.channel || one.channel === asked.channel) &&
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
    ["key", "channel", "languages", "variables"],
    found.map((one) => [
      h(
        "b",
        { text: one.templateKey },
        one.tenantId ? h("span", { class: "quiet", text: ` of ${one.tenantId}` }) : null,
      ),
      one.channel,
      languages(one),
      variables(one),
    ]),
  );
}

function languages(entry) {
  const had = entry.variants.map((variant) =>
    h(
      "a",
      { class: `chip ${variant.isActive ? "" : "off"}`, href: address(entry, variant.locale) },
      variant.locale,
      h("span", {
        class: "quiet",
        text: variant.id ? ` v${variant.version}${variant.isActive ? "" : " off"}` : " file",
      }),
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
  const names = [...new Set(entry.variants.flatMap((variant) => variant.variables))];
  return names.length ? h("code", { text: names.join(", ") }) : h("span", { class: "quiet", text: "none" });
}
