/** Keys: single letters do what a click does. They are silent while the caller types. */

import { show } from "./dialog.js";
import { h } from "./dom.js";
import { shown } from "./pages.js";

const PATIENCE_MS = 1200;
const own = new Map();
let listening = false;

/**
 * Keys of the page that is shown; they are forgotten when it is left.
 * @param {{[key: string]: [string, () => void]}} keys what each does, in words, and the function
 */
export function give(keys) {
  for (const [key, does] of Object.entries(keys)) own.set(key, does);
}

/** The key that chooses the row which has the focus, for pages whose rows are chosen. */
export const CHOOSING = { x: ["choose the row", () => document.activeElement.closest("tr")?.querySelector("input[type=checkbox]")?.click()] };

export function forget() {
  own.clear();
}

/**
 * Listen to the keyboard.
 * @param {() => string[]} pages the pages of the caller
 * @param {{[key: string]: [string, () => void]}} always keys that every page has
 */
export function listen(pages, always) {
  if (listening) return;
  listening = true;
  let after = 0;
  const going = () => new Map(shown(pages()).filter((one) => one.key).map((one) => [one.key, one]));
  const all = { "?": ["show the keys", () => help(pages, always)], ...always, j: ["next row", () => step(1)], k: ["row before", () => step(-1)] };
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && leaves(event.target)) return document.getElementById("main").focus();
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || document.querySelector("dialog[open]")) return;
    const waiting = Date.now() - after < PATIENCE_MS;
    after = 0;
    const page = waiting ? going().get(event.key) : null;
    const does = page ? () => { location.hash = `#/${page.page}`; } : (own.get(event.key) ?? all[event.key])?.[1];
    if (does) {
      event.preventDefault();
      does();
    } else if (event.key === "g") after = Date.now();
  });
  document.getElementById("keys").onclick = () => help(pages, always);
}

/** The browser clears a search field on Escape; who has cleared it wants the keys back. */
function leaves(element) {
  return element.type === "search" && !element.value && !document.querySelector("dialog[open]");
}

function typing(element) {
  return element.isContentEditable || ["TEXTAREA", "SELECT"].includes(element.tagName) || (element.tagName === "INPUT" && !["checkbox", "radio", "button"].includes(element.type));
}

/** Put the focus on the next row that opens something, or on the one before. */
function step(by) {
  const rows = [...document.querySelectorAll("main tr.opens")];
  if (!rows.length) return;
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const next = rows[at < 0 ? 0 : Math.max(0, Math.min(rows.length - 1, at + by))];
  next.querySelector("a")?.focus();
  next.scrollIntoView({ block: "nearest" });
}

function help(pages, always) {
  const line = (key, words) => h("div", {}, h("dt", { text: words }), h("dd", {}, key.split(" ").map((one, at) => [at ? " " : "", h("kbd", { text: one })])));
  const section = (title, lines) => lines.length ? [h("h3", { text: title }), h("dl", { class: "keys" }, lines)] : null;
  show("Keys",
    section("On this page", [...own].map(([key, [words]]) => line(key, words))),
    section("Everywhere", [line("?", "show the keys"), ...Object.entries(always).map(([key, [words]]) => line(key, words)),
      line("j", "next row"), line("k", "row before"), line("Enter", "open the row"), line("Esc", "close a dialog, clear or leave a search")]),
    section("Go to", shown(pages()).filter((one) => one.key).map((one) => line(`g ${one.key}`, one.title))));
}
