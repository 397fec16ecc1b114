/** Elements from plain values: text is always text, never markup. */

import { ago, sentence as whole, utc } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";

/**
 * Make an element.
 * @param {string} tag `div`, or `svg:path` for a drawing
 * @param {object} [given] attributes; `on…` are listeners, `data` a map, `text` the content
 * @param {...(Node|string|null|undefined|Array)} children
 * @returns {HTMLElement|SVGElement}
 */
export function h(tag, given = {}, ...children) {
  const drawing = tag.startsWith("svg:");
  const made = drawing ? document.createElementNS(SVG, tag.slice(4)) : document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") made.textContent = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "data") Object.assign(made.dataset, value);
    else if (name === "value") made.value = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...flat(children));
  return made;
}

/** Replace what an element holds. */
export function fill(element, ...children) {
  element.replaceChildren(...flat(children));
  return element;
}

function flat(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}

/** A heading with what belongs beside it. */
export function head(title, ...beside) {
  return h("div", { class: "head" }, h("h1", { text: title }), h("span", { class: "grow" }), ...beside);
}

/** A card with a title. */
export function card(title, ...children) {
  return h("section", { class: "card" }, title ? h("h2", { text: title }) : null, ...children);
}

/** A card whose title has something beside it. */
export function titled(title, beside, ...children) {
  return h("section", { class: "card" }, h("div", { class: "title" }, h("h2", { text: title }), h("span", { class: "grow" }), beside), ...children);
}

/** The placeholder of an empty list. */
export function empty(sentence, ...beside) {
  return h("div", { class: "empty" }, h("p", { text: sentence }), ...beside);
}

/** A badge: a word in the colour of its meaning. */
export function badge(word, said = String(word).replaceAll("_", " ")) {
  return h("span", { class: `badge ${MOODS[word] ?? ""}`, text: said });
}

const MOODS = {
  passed: "good", delivered: "good", opened: "good", sent: "good", closed: "good", finish: "good", success: "good", active: "good",
  queued: "wait", paused: "wait", retry: "wait", defer: "wait", half_open: "wait", throttled: "wait", fail_over: "wait",
  failed: "bad", bury: "bad", open: "bad", disabled: "bad", endpoint_disabled: "bad", endpoint_enabled: "good", unavailable: "bad", refused: "bad", unknown: "bad", rejected: "bad",
  skipped: "dull",
};

/**
 * A table. A column is its name, or `num(name)` for numbers, or `{name, cut: true}` for long texts that end in an ellipsis.
 * A row is an array of cells, or `{cells, href}`: the whole row then opens the address, beside its link.
 * On a phone `cards` shows each row as a card; with `brief` a card has three lines and names only what needs a name.
 * @param {string} label what a screen reader says
 * @param {(string|{name: string, num?: boolean, cut?: boolean})[]} columns
 * @param {(any[]|{cells: any[], href: string})[]} rows
 * @param {{cards?: boolean, brief?: boolean}} [more]
 */
export function table(label, columns, rows, { cards = false, brief = false } = {}) {
  const named = columns.map((column) => (typeof column === "string" ? { name: column } : column));
  const kind = (column, cell) => [column.num ? "num" : column.cut ? "cut" : "", ["–", null, undefined].includes(cell) ? "none" : ""].filter(Boolean).join(" ") || null;
  const place = h("div", { class: `scroll${cards || brief ? " cards" : ""}${brief ? " brief" : ""}` }, h("table", { "aria-label": label },
    h("thead", {}, h("tr", {}, named.map((column) => h("th", { scope: "col", class: column.num ? "num" : null }, column.name || h("span", { class: "unseen", text: "actions" }))))),
    h("tbody", {}, rows.map((row) => {
      const { cells, href } = Array.isArray(row) ? { cells: row } : row;
      return h("tr", href ? { class: "opens", onclick: (event) => opened(event, href) } : {}, cells.map((cell, at) =>
        h("td", { class: kind(named[at], cell), data: named[at].name ? { name: named[at].name } : {}, title: named[at].cut && typeof cell === "string" ? cell : null }, cell === "" ? null : cell ?? "–")));
    }))));
  WIDTHS.observe(place);
  return place;
}

/** What scrolls sideways can be reached by keyboard; what fits is no stop on the way. */
const WIDTHS = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (target.scrollWidth > target.clientWidth + 1) for (const [name, value] of scrolls(target)) target.setAttribute(name, value);
    else for (const [name] of scrolls(target)) target.removeAttribute(name);
  }
});

/** A stop on the way says what it is. */
function scrolls(place) {
  return [["tabindex", "0"], ["role", "group"], ["aria-label", `${place.firstElementChild.getAttribute("aria-label")}, scrolls sideways`]];
}

/** A column of numbers. */
export function num(name) {
  return { name, num: true };
}

function opened(event, href) {
  // Links, boxes and buttons in the row do what they say; who selects text does not want to leave.
  if (event.target.closest("a, button, input, select, summary, label") || String(getSelection())) return;
  if (event.ctrlKey || event.metaKey) window.open(href, "_blank", "noopener");
  else location.hash = href;
}

/** How long ago, with the moment in UTC on hover; it stays right while it is shown. */
export function when(value) {
  if (!value) return "–";
  const at = typeof value === "number" ? new Date(value * 1000) : new Date(value);
  const made = h("time", { datetime: at.toISOString(), title: utc(at) });
  made.textContent = ago(at);
  return made;
}

/** Write every relative time anew. */
export function age(root = document) {
  for (const one of root.querySelectorAll("time[datetime]")) {
    const now = ago(new Date(one.dateTime));
    if (one.textContent !== now) one.textContent = now;
  }
}

/** Lines that stand for what is being loaded. */
export function loading(lines = 4) {
  return h("div", { class: "loading", role: "status", "aria-label": "Loading" }, Array.from({ length: lines }, () => h("i", {})));
}

/** A button that puts a text into the clipboard. */
export function copies(text, label) {
  return h("button", { type: "button", class: "ghost small", text: label, onclick: async (event) => {
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else byHand(text, event.currentTarget);
    toast("Copied.");
  } });
}

/** Browsers give a clipboard to https and loopback only; a console inside a company's network may be neither. */
function byHand(text, button) {
  const field = h("textarea", { class: "unseen", value: text });
  // Beside the button: outside of an open dialog nothing can be selected.
  button.after(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  button.focus();
  if (!done) throw new Error("This browser lets the page copy nothing: select the text instead.");
}

/** Tell a screen reader in one sentence what a search found: a table that is read out whole at each change helps nobody. */
export function say(sentence) {
  const said = document.getElementById("said");
  if (said.textContent !== sentence) said.textContent = sentence;
}

/** How many rows are shown, for `say`. */
export function counted(rows, more = false) {
  return rows ? `${rows}${more ? " or more" : ""} ${rows === 1 ? "row" : "rows"}` : "Nothing was found";
}

/** Show a message for a moment, also to screen readers. */
export function toast(sentence, mood = "") {
  // What went wrong is told in the words of the server, which are no sentence.
  const said = h("div", { class: `toast ${mood}`, text: mood === "bad" ? whole(sentence) : sentence });
  document.getElementById("toasts").append(said);
  setTimeout(() => said.remove(), 6000);
}
