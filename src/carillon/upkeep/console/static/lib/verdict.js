/** The verdict: what the server says needs attention, the worst first, each sentence with a link to its cause. */

import { h } from "./dom.js";
import { sentence } from "./format.js";

/**
 * The card with the worst as its heading and the rest below.
 * @param {{state: "calm"|"watch"|"needed", text: string, notes: {mood: "bad"|"wait", about: string, name: string, text: string, page: string|null}[]}} attention
 * @param {string[]} pages those that this process has
 */
export function verdict(attention, pages) {
  const [first, ...rest] = attention.notes;
  return h("section", { class: `card human ${attention.state}`, "aria-label": "Verdict" },
    h("h2", {}, first ? said(first, pages) : "Nothing needs attention"),
    rest.length ? h("ul", {}, rest.map((note) => h("li", { class: note.mood }, h("span", {}, said(note, pages))))) : null,
    first ? null : h("p", { text: attention.text }));
}

/** The card where the server or its ledger cannot be asked: nothing about the notifications is known. */
export function unknown(error) {
  return h("section", { class: "card human needed", "aria-label": "Verdict" },
    h("h2", { text: error.status === 503 ? "The ledger does not answer" : error.status ? sentence(error.message) : "Carillon does not answer" }),
    h("p", { text: "How notifications fare is not known; the numbers below are old." }));
}

/** The id keeps the focus on the same sentence when the page is drawn again. */
function said(note, pages) {
  const leads = note.page && pages.includes(note.page.split("?")[0]);
  return leads ? h("a", { id: `${note.about}-${note.name}`, href: `#/${note.page}`, text: note.text }) : h("span", { text: note.text });
}
