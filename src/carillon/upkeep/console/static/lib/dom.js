/** Elements from plain values: text is always text, never markup. */

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

/** The placeholder of an empty list. */
export function empty(sentence, ...beside) {
  return h("div", { class: "empty" }, h("p", { text: sentence }), ...beside);
}

/** A badge: a word in the colour of its meaning. */
export function badge(word) {
  return h("span", { class: `badge ${MOODS[word] ?? ""}`, text: word });
}

const MOODS = {
  delivered: "good", opened: "good", sent: "good", closed: "good", finish: "good", success: "good", active: "good",
  queued: "wait", retry: "wait", defer: "wait", half_open: "wait", throttled: "wait", fail_over: "wait",
  failed: "bad", bury: "bad", open: "bad", disabled: "bad", endpoint_disabled: "bad", endpoint_enabled: "good", unavailable: "bad", refused: "bad", unknown: "bad", rejected: "bad",
  skipped: "dull",
};

/** A table; `rows` are arrays of cells. */
export function table(label, columns, rows) {
  return h("div", { class: "scroll" }, h("table", { "aria-label": label },
    h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col", text: name })))),
    h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell) => h("td", {}, cell ?? "–")))))));
}

/** Show a message for a moment, also to screen readers. */
export function toast(sentence, mood = "") {
  const said = h("div", { class: `toast ${mood}`, text: sentence });
  document.getElementById("toasts").append(said);
  setTimeout(() => said.remove(), 6000);
}
