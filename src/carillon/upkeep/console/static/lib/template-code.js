/** A field for templates: line numbers, tinted tags, and errors at their line. A plain textarea stays underneath. */

import { fill, h } from "./dom.js";

/** Above this length the text is shown without tint, so that typing stays fast. */
const MOST_TINTED = 30_000;
const TOKENS = new RegExp(
  [
    "(?<comment>\\{#[\\s\\S]*?#\\}|<!--[\\s\\S]*?-->)",
    "(?<logic>\\{%[\\s\\S]*?%\\})",
    "(?<value>\\{\\{[\\s\\S]*?\\}\\})",
    "(?<tag></?[a-zA-Z][\\w-]*|/?>)",
    "(?<text>\"[^\"<>{}\\n]*\")",
  ].join("|"),
  "g",
);

/**
 * @param {string} name
 * @param {string} label
 * @param {{value?: string, rows?: number, note?: string, hidden?: boolean, oninput?: () => void, describedBy?: string}} given
 * @returns {{element: HTMLElement, input: HTMLTextAreaElement, show: (errors: object[]) => void, set: (value: string) => void}}
 */
export function code(name, label, given = {}) {
  const id = `f-${name}`;
  const input = h("textarea", { id, name, spellcheck: "false", autocapitalize: "off", autocomplete: "off", rows: given.rows ?? 1, "aria-describedby": `${id}-errors` });
  const under = h("pre", { class: "code-lines", "aria-hidden": "true" });
  const said = h("ul", { class: "code-errors", id: `${id}-errors` });
  let errors = [];
  const draw = () => fill(under, lines(input.value, errors));
  input.value = given.value ?? "";
  input.addEventListener("input", () => {
    errors = [];
    mark(input, said, errors);
    draw();
    given.oninput?.();
  });
  draw();
  const element = h(
    "div",
    { class: "code-field", data: { part: name } },
    h("label", { for: id, text: label }),
    given.note ? h("span", { class: "quiet code-note", text: given.note }) : null,
    h("div", { class: `code ${given.rows > 3 ? "" : given.rows > 1 ? "small" : "one"}` }, h("div", { class: "code-both" }, under, input)),
    said,
  );
  return {
    element,
    input,
    show(found) {
      errors = found;
      mark(input, said, errors);
      draw();
    },
    set(value) {
      input.value = value;
      errors = [];
      mark(input, said, errors);
      draw();
    },
  };
}

function mark(input, said, errors) {
  input.toggleAttribute("aria-invalid", errors.length > 0);
  fill(
    said,
    errors.map((one) =>
      h(
        "li",
        { role: "alert" },
        one.line
          ? h("button", { type: "button", class: "to-line", text: `Line ${one.line}${one.column ? `, column ${one.column}` : ""}`, onclick: () => place(input, one) })
          : null,
        h("span", { text: one.line ? `: ${one.message}` : one.message }),
      ),
    ),
  );
}

/** Put the caret where an error is. */
function place(input, { line, column }) {
  const before = input.value.split("\n").slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
  const at = Math.min(before + Math.max((column ?? 1) - 1, 0), input.value.length);
  input.focus();
  input.setSelectionRange(at, at);
}

function lines(text, errors) {
  const bad = new Set(errors.map((one) => one.line));
  return tinted(text).map((parts, at) =>
    h("span", { class: bad.has(at + 1) ? "line-of bad-line" : "line-of" }, parts.length ? parts : "\u200b"),
  );
}

/** The tokens of each line; a token over several lines is cut at their ends. */
function tinted(text) {
  const found = [[]];
  const add = (piece, kind) => {
    for (const [at, part] of piece.split("\n").entries()) {
      if (at) found.push([]);
      if (part) found.at(-1).push(kind ? h("span", { class: `tint-${kind}`, text: part }) : part);
    }
  };
  if (text.length > MOST_TINTED) {
    add(text, "");
    return found;
  }
  let last = 0;
  for (const match of text.matchAll(TOKENS)) {
    if (match.index > last) add(text.slice(last, match.index), "");
    add(match[0], Object.entries(match.groups).find(([, value]) => value !== undefined)[0]);
    last = match.index + match[0].length;
  }
  add(text.slice(last), "");
  return found;
}
