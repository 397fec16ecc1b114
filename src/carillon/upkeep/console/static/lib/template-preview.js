/** The preview of the editor: as the recipient sees it, as text and as source, wide and narrow, light and dark. */

import { fill, h } from "./dom.js";
import { frame } from "./frame.js";
import { preview } from "./preview.js";

const LOOK = "carillon.preview";
const DARK = /prefers-color-scheme:\s*dark/;
const STALE = "What is written now cannot be rendered: this is the last text that could.";
const FOREIGN = /<img\b[^>]*\bsrc\s*=\s*["']?(?:https?:)?\/\//i;

/**
 * @param {string} channel
 * @returns {{element: HTMLElement, show: (seen: object) => void, stale: () => void, say: (sentence: string) => void}}
 */
export function seen(channel) {
  const look = { view: "message", width: "desk", scheme: "light", ...remembered() };
  const place = h("div", { class: "seen", "aria-live": "polite" });
  const notes = h("ul", { class: "seen-notes", "aria-live": "polite" });
  const letter = channel === "email" ? frame("The message as its recipient sees it") : null;
  let shown = null;
  let stale = false;
  const draw = () => {
    if (shown === null) return;
    place.className = `seen ${look.width} ${look.scheme}`;
    place.classList.toggle("seen-stale", stale);
    fill(notes, (stale ? [STALE] : notesOf(shown, look)).map((text) => h("li", { text })));
    if (look.view === "source") fill(place, h("pre", { class: "seen-source", tabindex: "0", text: shown.html ?? shown.body }));
    else if (look.view === "text" || channel !== "email") fill(place, asText(channel, shown, look.view));
    else fill(place, mail(shown, letter, look));
  };
  const tools = h(
    "div",
    { class: "seen-tools", role: "toolbar", "aria-label": "Preview" },
    choices("View", look, "view", { message: "Message", text: "Text", ...(channel === "email" ? { source: "Source" } : {}) }, draw),
    channel === "email" ? choices("Width", look, "width", { desk: "Desktop", phone: "Phone" }, draw) : null,
    choices("Colours", look, "scheme", { light: "Light", dark: "Dark" }, draw),
  );
  return {
    element: h("div", { class: "seen-all" }, tools, place, notes),
    show(answer) {
      shown = answer;
      stale = false;
      draw();
    },
    /** What is written now cannot be rendered. */
    stale() {
      stale = true;
      draw();
    },
    say(sentence) {
      shown = null;
      fill(notes);
      fill(place, h("p", { class: "quiet", text: sentence }));
    },
  };
}

function choices(label, look, name, words, draw) {
  const buttons = Object.entries(words).map(([value, text]) =>
    h("button", {
      type: "button",
      text,
      "aria-pressed": String(look[name] === value),
      onclick: (event) => {
        look[name] = value;
        for (const one of buttons) one.setAttribute("aria-pressed", String(one === event.currentTarget));
        localStorage.setItem(LOOK, JSON.stringify(look));
        draw();
      },
    }),
  );
  return h("span", { class: "switch", role: "group", "aria-label": label }, buttons);
}

function remembered() {
  try {
    return JSON.parse(localStorage.getItem(LOOK)) ?? {};
  } catch {
    return {};
  }
}

function mail(shown, letter, look) {
  if (!shown.html) return preview("email", null, { subject: shown.subject, text: shown.body });
  letter.show(shown.html, { dark: look.scheme === "dark" });
  return h(
    "div",
    { class: "mail seen-mail" },
    h("div", { class: "envelope" }, h("b", { text: shown.subject ?? "(no subject)" })),
    letter.element,
  );
}

function asText(channel, shown, view) {
  if (view === "text") return h("pre", { class: "seen-source", tabindex: "0", text: shown.body });
  const { subject, segments, push, inApp } = shown;
  return preview(channel, null, { subject, text: shown.body, segments, push, inApp });
}

/** What the server warns of, and what only a look at the result shows. */
function notesOf(shown, look) {
  const found = shown.warnings.map((text) => text[0].toUpperCase() + text.slice(1) + ".");
  if (shown.html && look.view === "message") {
    if (look.scheme === "dark" && !DARK.test(shown.html))
      found.push("The mail has no colours of its own for dark: each mail program chooses some.");
    if (FOREIGN.test(shown.html)) found.push("Pictures from other servers are not loaded in this preview.");
  }
  return found;
}
