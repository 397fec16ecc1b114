/** Dialogs: a question before something happens. Escape closes them, and the focus returns to where it was. */

import { h } from "./dom.js";

/**
 * Ask before something happens; the values of the fields, or null if the caller thinks better of it.
 * @param {{title: string, text?: any, fields?: any[], act: string, danger?: boolean}} asked
 * @returns {Promise<Object<string, string>|null>}
 */
export function confirm({ title, text = null, fields = [], act, danger = false }) {
  return new Promise((done) => {
    let answer = null;
    const form = h("form", { method: "dialog", onsubmit: () => { answer = Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, String(value).trim()])); } },
      typeof text === "string" ? h("p", { text }) : text, fields,
      h("div", { class: "acts" }, h("button", { type: "button", text: "Not now", onclick: () => box.close() }),
        h("button", { class: danger ? "danger" : "primary", id: "confirm", text: act })));
    const box = open(title, form);
    box.addEventListener("close", () => done(answer));
  });
}

/**
 * Show something in a dialog that Escape or a button closes.
 * @param {string} title
 * @param {...any} content
 */
export function show(title, ...content) {
  const close = h("div", { class: "acts" }, h("button", { type: "button", text: "Close", onclick: () => box.close() }));
  const box = open(title, ...content, close);
  box.classList.add("broad-one");
  return box;
}

function open(title, ...content) {
  const stood = document.activeElement;
  const box = h("dialog", { "aria-label": title }, h("h2", { text: title }), ...content);
  document.body.append(box);
  box.addEventListener("close", () => {
    box.remove();
    // A refresh may have replaced the element that had the focus.
    (stood?.isConnected ? stood : stood?.id && document.getElementById(stood.id))?.focus?.({ preventScroll: true });
  });
  box.showModal();
  // The focus is on the first button, which stands below what is shown.
  box.scrollTop = 0;
  return box;
}
