/** What stands beside the text of a template: where its HTML comes from, engine, layout, category, name, defaults. */

import { h } from "./dom.js";
import { area, choice, field } from "./forms.js";

const KINDS = [
  ["message", "message"],
  ["layout", "layout: others extend it"],
  ["partial", "partial: others include it"],
  ["catalogue", "translations"],
];

/**
 * @param {object} state
 * @param {() => void} oninput
 * @returns {HTMLFormElement & {restore: (content: object) => void}}
 */
export function options(state, oninput) {
  const { start, catalogue, channel } = state;
  const layouts = catalogue.items
    .filter((one) => one.channel === channel && one.variants.some((variant) => variant.kind === "layout"))
    .map((one) => one.templateKey);
  const fieldset = h(
    "div",
    { class: "filters" },
    channel === "email" ? choice("source", "HTML from", [["", "text only"], ["htmlTemplate", "HTML"], ["mjml", "MJML"]]) : null,
    choice("layout", "Layout", [["", "none"], ...new Set([...layouts, start.layout].filter(Boolean))]),
    choice("category", "Category", [["", "none"], ...new Set([...catalogue.categories, start.category].filter(Boolean))]),
    choice("engine", "Engine", [["jinja", "jinja: loops, conditions"], ["simple", "simple: {{name}} only"]]),
    choice("kind", "Kind", KINDS),
    field("name", "Name", { maxlength: 200 }),
    field("description", "Description", { maxlength: 2000 }),
    area("defaultVariables", "Default variables", { rows: 3 }),
  );
  const made = h("details", { class: "options" }, h("summary", { text: "Layout, category and more" }), fieldset);
  // The details stand inside the form of the editor, so they look like a form to their users.
  made.elements = Object.fromEntries([...fieldset.querySelectorAll("[name]")].map((one) => [one.name, one]));
  made.restore = (content) => put(made.elements, content, channel);
  made.restore(start);
  fieldset.addEventListener("input", (event) => {
    event.stopPropagation();
    oninput();
  });
  return made;
}

function put(elements, content, channel) {
  if (elements.source) elements.source.value = content.mjml ? "mjml" : content.htmlTemplate || (!content.bodyTemplate && channel === "email") ? "htmlTemplate" : "";
  for (const name of ["layout", "category", "name", "description"]) elements[name].value = content[name] ?? "";
  elements.engine.value = content.engine ?? "jinja";
  elements.kind.value = content.kind ?? "message";
  const defaults = content.defaultVariables ?? {};
  elements.defaultVariables.value = Object.keys(defaults).length ? JSON.stringify(defaults, null, 2) : "";
}

/** The values as a version has them; default variables that are no JSON are marked, and stay away. */
export function values({ elements }) {
  const content = { engine: elements.engine.value, kind: elements.kind.value };
  for (const name of ["layout", "category", "name", "description"]) content[name] = elements[name].value.trim() || null;
  const given = elements.defaultVariables;
  try {
    content.defaultVariables = JSON.parse(given.value || "{}");
    given.setCustomValidity("");
    given.removeAttribute("aria-invalid");
  } catch {
    content.defaultVariables = {};
    given.setCustomValidity("not JSON");
    given.setAttribute("aria-invalid", "true");
  }
  return content;
}
