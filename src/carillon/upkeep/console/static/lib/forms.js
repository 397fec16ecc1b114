/** Form fields with labels, and redrawing after events. */

import { empty, fill, h, toast } from "./dom.js";
import { inUtc, local, number } from "./format.js";

/**
 * One line of text with its label.
 * @param {string} name
 * @param {string} label
 * @param {object} [more] attributes of the input
 */
export function field(name, label, more = {}) {
  return h(
    "div",
    {},
    h("label", { for: `f-${name}`, text: label }),
    h("input", { id: `f-${name}`, name, autocomplete: "off", spellcheck: "false", ...more }),
  );
}

/**
 * One of several words with its label; a pair is a value and what is shown for it.
 * @param {string} name
 * @param {string} label
 * @param {(string|[string, string])[]} words
 * @param {object} [more] attributes of the select
 */
export function choice(name, label, words, more = {}) {
  return h(
    "div",
    {},
    h("label", { for: `f-${name}`, text: label }),
    h(
      "select",
      { id: `f-${name}`, name, ...more },
      words.map((word) => {
        const [value, text] = Array.isArray(word) ? word : [word, word];
        return h("option", { value, text });
      }),
    ),
  );
}

/**
 * Some lines of text with their label.
 * @param {string} name
 * @param {string} label
 * @param {object} [more] attributes of the textarea; `text` is what it holds
 */
export function area(name, label, more = {}) {
  const { text, ...rest } = more;
  const made = h("textarea", { id: `f-${name}`, name, spellcheck: "false", ...rest });
  made.value = text ?? "";
  return h("div", { class: "wide" }, h("label", { for: `f-${name}`, text: label }), made);
}

/**
 * The values of a form, without empty ones. A date is in UTC: a shared link may be opened where the clocks are others.
 * @param {HTMLFormElement} form
 * @returns {Object<string, string>}
 */
export function given(form) {
  const told = (name, value) => (form.elements[name]?.type === "datetime-local" ? inUtc(value) : value);
  return Object.fromEntries(
    [...new FormData(form)].map(([name, value]) => [name, String(value).trim()]).filter(([, value]) => value).map(([name, value]) => [name, told(name, value)]),
  );
}

/**
 * Fill a form from the address, so that a reload, the back button and a shared link show the same.
 * @param {HTMLFormElement} form
 * @param {Object<string, string>} query
 */
export function recall(form, query) {
  for (const [name, value] of Object.entries(query)) {
    const element = form.elements[name];
    if (element) element.value = element.type === "datetime-local" ? local(value) : value;
  }
  return form;
}

/**
 * Call after a pause, once for a burst of calls; `stop` cancels it.
 * @param {() => void} call
 * @param {number} milliseconds
 */
export function soon(call, milliseconds) {
  let waiting = null;
  const later = () => {
    waiting ??= setTimeout(() => {
      waiting = null;
      call();
    }, milliseconds);
  };
  later.stop = () => {
    clearTimeout(waiting);
    waiting = null;
  };
  return later;
}

/**
 * Redraw soon after a tick, and every few seconds without one; the returned function stops it.
 * @param {{onTick: (call: () => void) => void}} shell
 * @param {() => Promise<any>} draw
 */
export function live(shell, draw) {
  const later = soon(() => draw().catch(() => {}), 500);
  shell.onTick(later);
  const poll = setInterval(later, 2000);
  return () => {
    clearInterval(poll);
    later.stop();
  };
}

/**
 * Answers may overtake one another. Call the result before a request, and what that returns after the answer: it
 * tells whether the answer is still the newest.
 * @returns {() => () => boolean}
 */
export function newest() {
  let asked = 0;
  let shown = 0;
  return () => {
    const turn = ++asked;
    return () => {
      if (turn < shown) return false;
      shown = turn;
      return true;
    };
  };
}

/**
 * Where a list stands. The address says it, so that the back button, a reload and a shared link show the same page.
 * @param {{query: object, keep: (values: object, beside?: object) => void}} shell
 * @param {string} [name] of the cursor in the address, where a page has several lists
 * @returns {{cursor?: string, trail: (string|undefined)[], go: (cursor?: string, trail?: (string|undefined)[]) => void}}
 */
export function standing(shell, name = "cursor") {
  const state = {
    cursor: shell.query[name],
    trail: history.state?.[name] ?? [],
    go(cursor = undefined, trail = []) {
      Object.assign(state, { cursor, trail });
      shell.keep({ ...shell.query, [name]: cursor }, { ...history.state, [name]: trail });
    },
  };
  return state;
}

/**
 * What stands where a page of a list has nothing. Behind the first page that says nothing about the whole list: what
 * stood there may have been lifted or redriven meanwhile.
 * @param {{cursor?: string}} state where the list stands
 * @param {string} sentence about the whole list
 */
export function none(state, sentence) {
  return empty(state.cursor ? "There are no older ones." : sentence);
}

/**
 * Newer and older pages of a list, by its cursor.
 * @param {{items: any[], totalCount: number|null, nextCursor: string|null}} found
 * @param {{cursor?: string, trail: (string|undefined)[], go: Function}} state where the list stands
 * @param {() => any} turn called when `state` has changed
 * @param {string} [label] what is turned, where a page has several lists; it tells their buttons apart
 */
export function pager(found, state, turn, label = "") {
  const count = found.totalCount === null ? null : h("span", { text: `${number(found.totalCount)} in all` });
  if (!state.cursor && !found.nextCursor) return h("p", { class: "pager" }, count);
  const to = (cursor, trail) => () => {
    state.go(cursor, trail);
    return turn();
  };
  const before = state.trail[state.trail.length - 1];
  const id = (word) => [word, ...label.toLowerCase().split(" ").filter(Boolean)].join("-");
  return h(
    "p",
    label ? { class: "pager", role: "group", "aria-label": `Pages of ${label}` } : { class: "pager" },
    h("button", { type: "button", id: id("newest"), text: "Newest", disabled: !state.cursor, onclick: to(undefined, []) }),
    h("button", { type: "button", id: id("newer"), text: "Newer", disabled: !state.trail.length, onclick: to(before, state.trail.slice(0, -1)) }),
    h("button", { type: "button", id: id("older"), text: "Older", disabled: !found.nextCursor, onclick: to(found.nextCursor, [...state.trail, state.cursor]) }),
    count ?? h("span", { text: `${number(found.items.length)} on this page` }),
  );
}

/**
 * The same for the lists of queues, whose API writes `next_cursor` and `total`; nothing where all of a list is shown.
 * @param {any[]} items
 * @param {{next_cursor: string|null, total?: number}} found
 * @param {{cursor?: string, trail: (string|undefined)[], go: Function}} state
 * @param {() => Promise<any>} draw
 * @param {string} label
 */
export function turned(items, found, state, draw, label) {
  if (!state.cursor && !found.next_cursor) return null;
  const turn = () => draw().catch((error) => toast(error.message, "bad"));
  return pager({ items, totalCount: found.total ?? null, nextCursor: found.next_cursor }, state, turn, label);
}

const STOPS = "a[href], button, input, select, textarea, summary, .scroll";

/**
 * Replace the content of an element, and keep what the user has there: the focus, tables that are scrolled aside, and
 * details that are open and have an id. If the element with the focus is gone, the one at its place gets it.
 * @param {HTMLElement} place
 * @param {...any} children
 */
export function refill(place, ...children) {
  const before = stops(place);
  const at = before.findIndex(([one]) => one === document.activeElement);
  const stood = before[at]?.[1] ?? null;
  const aside = new Map(before.filter(([one]) => one.scrollLeft || one.scrollTop).map(([one, key]) => [key, [one.scrollLeft, one.scrollTop]]));
  const opened = new Set([...place.querySelectorAll("details[open][id]")].map((one) => one.id));
  fill(place, ...children);
  for (const one of place.querySelectorAll("details[id]")) if (opened.has(one.id)) one.open = true;
  if (stood || aside.size) settle(place, stops(place), { stood, at, aside });
  return place;
}

function settle(place, now, { stood, at, aside }) {
  for (const [one, key] of now) if (aside.has(key)) [one.scrollLeft, one.scrollTop] = aside.get(key);
  if (!stood) return;
  const same = now.find(([, key]) => key === stood)?.[0];
  // Whether a table is wide enough to be a stop is known only when it is laid out.
  if (same?.matches(".scroll")) same.tabIndex = 0;
  const next = same ?? now.slice(0, at + 1).findLast(([one]) => !one.disabled && !one.matches(".scroll"))?.[0] ?? place.closest("main");
  next?.focus({ preventScroll: true });
}

/** Where the focus can stand, each with a key that tells it from the others; equal ones are told apart by their order. */
function stops(place) {
  const seen = new Map();
  return [...place.querySelectorAll(STOPS)].map((one) => {
    const key = known(one);
    seen.set(key, (seen.get(key) ?? 0) + 1);
    return [one, `${key} ${seen.get(key)}`];
  });
}

function known(one) {
  // The text of the element may change; its id does not.
  if (one.id) return `${one.tagName} ${one.id}`;
  if (one.matches(".scroll")) return `scroll ${one.firstElementChild?.getAttribute("aria-label")}`;
  return [
    one.tagName,
    one.getAttribute("href"),
    one.getAttribute("aria-label"),
    one.tagName === "INPUT" ? "" : one.textContent,
  ].join(" ");
}
