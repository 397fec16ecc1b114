/** Form fields with labels, and redrawing after events. */

import { fill, h } from "./dom.js";
import { number } from "./format.js";

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
 * The values of a form, without empty ones.
 * @param {HTMLFormElement} form
 * @returns {Object<string, string>}
 */
export function given(form) {
  return Object.fromEntries(
    [...new FormData(form)].map(([name, value]) => [name, String(value).trim()]).filter(([, value]) => value),
  );
}

/**
 * Fill a form from the address, so that a reload, the back button and a shared link show the same.
 * @param {HTMLFormElement} form
 * @param {Object<string, string>} query
 */
export function recall(form, query) {
  for (const [name, value] of Object.entries(query)) if (form.elements[name]) form.elements[name].value = value;
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
 * Newer and older pages of a list that says how many there are.
 * @param {{totalPages: number, pageNumber: number, totalCount: number}} found
 * @param {(page: number) => any} turn
 */
export function pager(found, turn) {
  if (found.totalPages < 2) return null;
  const at = found.pageNumber;
  return h(
    "p",
    { class: "pager" },
    h("button", { type: "button", text: "Newer", disabled: at <= 1, onclick: () => turn(at - 1) }),
    h("span", { text: `page ${number(at)} of ${number(found.totalPages)}, ${number(found.totalCount)} in all` }),
    h("button", { type: "button", text: "Older", disabled: at >= found.totalPages, onclick: () => turn(at + 1) }),
  );
}

/**
 * Replace the content of an element, and keep the focus on the same link or button.
 * @param {HTMLElement} place
 * @param {...any} children
 */
export function refill(place, ...children) {
  const stood = place.contains(document.activeElement) ? known(document.activeElement) : null;
  fill(place, ...children);
  if (stood)
    [...place.querySelectorAll("a, button, input, select, summary")]
      .find((one) => known(one) === stood)
      ?.focus({ preventScroll: true });
  return place;
}

function known(one) {
  // The text of the element may change; its id does not.
  if (one.id) return `${one.tagName} ${one.id}`;
  return [
    one.tagName,
    one.getAttribute("href"),
    one.getAttribute("aria-label"),
    one.tagName === "INPUT" ? "" : one.textContent,
  ].join(" ");
}
