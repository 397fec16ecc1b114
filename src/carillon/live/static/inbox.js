// <carillon-inbox>: a bell with a popover, or a page, over a person's inbox. No dependencies, no build step.

import { choices } from "./choices.js";
import { Inbox } from "./client.js";
import { placeIn, pressed, stopAt } from "./keys.js";
import { SHEET } from "./style.js";
import { bone, Clock, content, element, icon, line, nothing, tool } from "./view.js";
import { counted, directionOf, languageOf, LANGUAGES, said, wordsOf } from "./words.js";

export { Inbox, LANGUAGES };

const UNDO_MS = 6000;
const MINUTE_MS = 60000;
const MOST_COUNTED = 99;

/**
 * `<carillon-inbox user="ada">` shows the inbox in place, `mode="bell"` a bell that opens it.
 *
 * Attributes: `user`, `base`, `mode`, `side` ("start" opens a bell's popover to the other side), `lang`, `theme` ("light" or
 * "dark"; otherwise as the system says), `page-size`. Properties: `ticket` (see Inbox), `words`. Without a `user` it is empty.
 * Events: `carillon-notification` (a new one came), `carillon-count` (detail: the unread ones), `carillon-open` (detail:
 * notification and url; preventDefault keeps the browser from following the link), `carillon-refused` (nobody is signed in).
 */
export class InboxElement extends HTMLElement {
  static observedAttributes = ["user", "base", "mode", "lang", "theme", "dir"];

  get ticket() { return this._ticket ?? null; }

  // Frameworks give a new function and new words at each of their renders: that alone opens no new stream.
  set ticket(value) {
    const before = this.ticket;
    this._ticket = value;
    if ((before === null) !== (this.ticket === null)) this._restart();
  }

  get words() { return this._own ?? {}; }

  set words(value) {
    const before = JSON.stringify(this.words);
    this._own = value;
    if (JSON.stringify(this.words) !== before) this._restart();
  }

  connectedCallback() {
    // A page may have set them before this file was loaded: then they hide what the class does with them.
    for (const name of ["ticket", "words"]) {
      if (!Object.hasOwn(this, name)) continue;
      const value = this[name];
      delete this[name];
      this[name] = value;
    }
    this._placed = true;
    const root = this.shadowRoot ?? this.attachShadow({ mode: "open" });
    root.adoptedStyleSheets = [SHEET];
    if (!this.getAttribute("user")) return root.replaceChildren();
    this._lang = languageOf(this.getAttribute("lang") || this.closest("[lang]")?.getAttribute("lang") || navigator.language || "en");
    this._words = wordsOf(this._lang, this.words);
    this._clock = new Clock(this._lang);
    this._bell = this.getAttribute("mode") === "bell";
    this._view = "inbox";
    this._focused = null;
    root.replaceChildren(this._frame());
    this._start();
  }

  disconnectedCallback() {
    this._placed = false;
    this.inbox?.stop();
    this.inbox = null;
    clearInterval(this._ticking);
    clearTimeout(this._undoing);
    document.removeEventListener("pointerdown", this._outside, true);
  }

  attributeChangedCallback(_name, before, after) {
    if (before !== after) this._restart();
  }

  _restart() {
    // While an element is made, its attributes are told before it is placed.
    if (!this._placed) return;
    this.disconnectedCallback();
    this.connectedCallback();
  }

  /** Open the popover of a bell. */
  open() {
    if (!this._bell || !this.inbox) return;
    this._panel.hidden = false;
    // At an edge of the window the popover opens to the other side, whatever `side` says.
    this._panel.classList.remove("turned");
    const place = this._panel.getBoundingClientRect();
    this._panel.classList.toggle("turned", place.left < 0 || place.right > document.documentElement.clientWidth);
    this._button.setAttribute("aria-expanded", "true");
    document.addEventListener("pointerdown", this._outside, true);
    this._show();
    (this._items()[0] ?? this._panel).focus();
  }

  close() {
    if (!this._bell || !this.inbox || this._panel.hidden) return;
    const inside = this.shadowRoot.activeElement !== null;
    this._panel.hidden = true;
    this._button.setAttribute("aria-expanded", "false");
    document.removeEventListener("pointerdown", this._outside, true);
    if (inside) this._button.focus();
  }

  _outside = (event) => {
    if (!event.composedPath().includes(this)) this.close();
  };

  _start() {
    const size = Number(this.getAttribute("page-size")) || 20;
    this.inbox = new Inbox({ base: this.getAttribute("base") ?? "", user: this.getAttribute("user"), ticket: this.ticket && (() => this.ticket()), pageSize: size });
    this.inbox.addEventListener("change", () => this._soon());
    this.inbox.addEventListener("notification", (event) => {
      this._speaker.textContent = said(this._words.fresh, { title: content(event.detail).title });
      this._send("carillon-notification", event.detail);
    });
    this.inbox.addEventListener("failed", () => this._failed());
    this.inbox.addEventListener("refused", () => this._send("carillon-refused", { user: this.inbox.user }));
    this._ticking = setInterval(() => this._soon(), MINUTE_MS);
    this._counted = null;
    this._show();
    this.inbox.start();
  }

  _frame() {
    const words = this._words;
    this._speaker = element("div", { class: "quiet", role: "status", "aria-live": "polite" });
    this._panel = element(this._bell ? "div" : "section", {
      class: "panel", part: "panel", tabindex: "-1", "aria-label": words.title, role: this._bell ? "dialog" : "region", hidden: this._bell,
    });
    this._panel.addEventListener("keydown", (event) => this._key(event));
    this._heading = element("div", { class: "head", part: "header" });
    this._tabs = element("div", { class: "tabs", part: "tabs", role: "tablist" });
    this._notice = element("div", { class: "notice", part: "notice", role: "status", hidden: true });
    this._body = element("div", { class: "body", part: "body", id: "body" });
    this._foot = element("div", { class: "foot", role: "status" });
    this._panel.append(this._heading, this._tabs, this._notice, this._body, this._foot);
    const frame = element("div", { class: "frame", lang: this._lang, dir: this.getAttribute("dir") || directionOf(this._lang) }, this._speaker);
    if (this._bell) {
      this._button = element("button", { class: "bell", type: "button", part: "bell", "aria-haspopup": "dialog", "aria-expanded": "false" }, icon("bell"));
      this._count = element("span", { class: "count", part: "count", "aria-hidden": "true", hidden: true });
      this._button.append(this._count);
      this._button.addEventListener("click", () => (this._panel.hidden ? this.open() : this.close()));
      frame.append(this._button);
    }
    frame.append(this._panel);
    return frame;
  }

  // Several changes of one moment are drawn once.
  _soon() {
    if (this._drawing) return;
    this._drawing = true;
    queueMicrotask(() => {
      this._drawing = false;
      if (this.inbox) this._show();
    });
  }

  _show() {
    const { unread, offline, refused } = this.inbox;
    if (this._counted !== unread) this._send("carillon-count", (this._counted = unread));
    this.toggleAttribute("live", this.inbox.connected);
    this._notice.hidden = !offline || (refused && !this.inbox.loaded);
    this._notice.textContent = refused ? this._words.signedOutText : this._words.offline;
    if (this._bell) {
      const many = unread > MOST_COUNTED ? `${MOST_COUNTED}+` : String(unread);
      this._count.textContent = many;
      this._count.hidden = unread === 0;
      this._button.classList.toggle("offline", offline);
      this._button.setAttribute("aria-label", unread ? `${this._words.title}, ${counted(this._words, unread, this._lang)}` : this._words.title);
      if (this._panel.hidden) return;
    }
    const inside = this._panel.contains(this.shadowRoot.activeElement);
    this._showHeading();
    if (this._view !== "choices") this._showList();
    this._keepFocus(inside);
  }

  /** What had the focus may be gone, or may be disabled: without it in the panel, no key would do anything. */
  _keepFocus(inside) {
    if (inside && !this._panel.contains(this.shadowRoot.activeElement)) this._panel.focus();
  }

  _showHeading() {
    const { unread } = this.inbox;
    const words = this._words;
    const choosing = this._view === "choices";
    const active = this.shadowRoot.activeElement;
    const focused = this._heading.contains(active) || this._tabs.contains(active) ? active.getAttribute("part") : null;
    const title = element("h2", { part: "title", text: choosing ? words.settings : words.title });
    if (!choosing) title.append(element("small", { class: "unread-count", text: unread ? counted(words, unread, this._lang) : "" }));
    const tools = [];
    if (choosing) {
      const back = tool("left", words.goBack, "go-back", () => this._turn("inbox"));
      back.classList.add("turns");
      this._heading.replaceChildren(back, title);
    } else {
      const all = tool("all", words.all, "mark-all", () => this.inbox.markRead());
      all.disabled = unread === 0;
      tools.push(all, tool("gear", words.settings, "settings", () => this._turn("choices")));
      this._heading.replaceChildren(title, ...tools);
    }
    if (this._bell) this._heading.append(tool("close", words.close, "close", () => this.close()));
    this._tabs.hidden = choosing;
    this._tabs.replaceChildren(...["inbox", "archive"].map((view) => this._tab(view)));
    if (focused) this.shadowRoot.querySelector(`[part="${focused}"]`)?.focus();
  }

  _tab(view) {
    const chosen = this._view === view;
    const made = element("button", { type: "button", role: "tab", part: `tab tab-${view}`, "aria-selected": String(chosen), "aria-controls": "body", tabindex: chosen ? "0" : "-1", text: this._words[view] });
    made.addEventListener("click", () => this._turn(view));
    return made;
  }

  async _turn(view) {
    this._view = view;
    this._focused = null;
    if (view === "archive" && !this.inbox.archived.loaded) this.inbox.loadMore({ archived: true }).catch(() => this._failed());
    const inside = this._heading.contains(this.shadowRoot.activeElement);
    this._show();
    if (inside) this.shadowRoot.querySelector(view === "choices" ? "[part~=go-back]" : "[part~=settings]")?.focus();
    if (view === "choices") await this._showChoices();
  }

  _showList() {
    const archived = this._view === "archive";
    const held = archived ? this.inbox.archived : this.inbox;
    if (!held.loaded && this.inbox.refused) return this._body.replaceChildren(nothing("signedOut", this._words));
    if (!held.loaded) return this._body.replaceChildren(element("div", { "aria-busy": "true", "aria-label": this._words.loading }, ...[1, 2, 3].map(bone)));
    if (!held.notifications.length) return this._body.replaceChildren(nothing(archived ? "emptyArchive" : "empty", this._words));
    const active = this._body.contains(this.shadowRoot.activeElement) ? this.shadowRoot.activeElement : null;
    const row = active?.closest("li") ?? null;
    const inRow = placeIn(row, active);
    const groups = new Map();
    for (const one of held.notifications) {
      const day = this._clock.day(one.event_timestamp);
      if (!groups.has(day)) groups.set(day, []);
      groups.get(day).push(one);
    }
    const drawn = [...groups].map(([day, some], number) => element("div", { role: "group", "aria-labelledby": `day-${number}` },
      element("h3", { id: `day-${number}`, part: "day", text: day }), element("ul", { part: "list" }, ...some.map((one) => this._line(one)))));
    const top = this._body.scrollTop;
    this._body.replaceChildren(...drawn);
    if (held.more) this._body.append(this._more(archived));
    this._body.scrollTop = top;
    const items = this._items();
    const place = items.find((item) => item.dataset.id === this._focused) ?? items[Math.min(this._place ?? 0, items.length - 1)];
    place.tabIndex = 0;
    if (row !== null) (place.dataset.id === row.dataset.id ? stopAt(place, inRow) : place).focus();
    else if (active?.matches(".more")) (this._body.querySelector(".more") ?? items.at(-1)).focus();
  }

  _line(notification) {
    const words = this._words;
    const id = notification.notification_id;
    const read = notification.is_read;
    const marks = tool(read ? "dot" : "check", read ? words.unreadAgain : words.read, "mark", () => this.inbox.markRead([id], !read));
    const puts = notification.is_archived
      ? tool("back", words.back, "unarchive", () => this.inbox.archive([id], false))
      : tool("archive", words.put, "archive", () => this._archive(id));
    const made = line(notification, { words, clock: this._clock, tools: [marks, puts], opened: (url, event) => this._opened(notification, url, event) });
    for (const button of made.querySelectorAll(".hand button")) button.tabIndex = -1;
    made.addEventListener("focus", () => this._reach(made));
    made.addEventListener("click", () => {
      this._reach(made);
      this._follow(notification, made);
    });
    return made;
  }

  _more(archived) {
    const made = element("button", { class: "more", type: "button", part: "more", text: this._words.more });
    made.addEventListener("click", () => {
      // Not disabled: a disabled button loses the focus.
      if (made.ariaDisabled === "true") return;
      made.ariaDisabled = "true";
      this.inbox.loadMore({ archived }).catch(() => this._failed()).finally(() => (made.ariaDisabled = null));
    });
    return made;
  }

  _archive(id) {
    this._place = this._items().findIndex((item) => item.dataset.id === id);
    this.inbox.archive([id]);
    this._toast(this._words.archivedOne, () => this.inbox.archive([id], false));
  }

  _failed() {
    this._toast(this.inbox?.refused ? this._words.signedOutText : this._words.failed);
  }

  _toast(text, undo = null) {
    clearTimeout(this._undoing);
    const made = element("div", { class: "toast", part: "toast" }, element("span", { text }));
    if (undo !== null) {
      const button = element("button", { type: "button", part: "undo", text: this._words.undo });
      button.addEventListener("click", () => {
        this._hush();
        undo();
      });
      made.append(button);
    }
    this._foot.replaceChildren(made);
    const end = () => {
      // It stays while somebody is about to press its button.
      if (made.matches(":hover, :focus-within")) this._undoing = setTimeout(end, UNDO_MS);
      else this._hush();
    };
    this._undoing = setTimeout(end, UNDO_MS);
  }

  _hush() {
    const inside = this._foot.contains(this.shadowRoot.activeElement);
    this._foot.replaceChildren();
    if (inside) (this._items().find((item) => item.tabIndex === 0) ?? this._panel).focus();
  }

  _opened(notification, url, event) {
    if (!notification.is_read) this.inbox.markRead([notification.notification_id]);
    if (!this._send("carillon-open", { notification, url }, true)) event.preventDefault();
  }

  /** A click on a notification, or Enter: it is read, and its link is followed. */
  _follow(notification, item) {
    const target = item.querySelector("a.title");
    if (target) target.click();
    else if (!notification.is_read) this.inbox.markRead([notification.notification_id]);
  }

  _items() {
    return [...this._body.querySelectorAll("li")];
  }

  _reach(item) {
    this._focused = item.dataset.id;
    this._place = this._items().indexOf(item);
    for (const one of this._items()) one.tabIndex = one === item ? 0 : -1;
  }

  _key(event) {
    if (event.key === "Escape" && this._bell) {
      event.stopPropagation();
      return this.close();
    }
    if (event.target.getAttribute?.("role") === "tab" && /^Arrow(Left|Right)$/.test(event.key)) {
      this._turn(this._view === "inbox" ? "archive" : "inbox");
      return this._tabs.querySelector("[aria-selected=true]").focus();
    }
    const rtl = this.shadowRoot.querySelector(".frame").dir === "rtl";
    if (pressed(event, { items: this._items(), rtl, follow: (item) => this._follow(this._of(item), item) })) event.preventDefault();
  }

  _of(item) {
    return [...this.inbox.notifications, ...this.inbox.archived.notifications].find((one) => one.notification_id === item.dataset.id);
  }

  async _showChoices() {
    const words = this._words;
    this._body.replaceChildren(element("div", { "aria-busy": "true" }, ...[1, 2, 3].map(bone)));
    try {
      const found = await this.inbox.choices(this._lang);
      const choose = (change) => this.inbox.choose(change).then(() => this._toast(words.saved));
      const form = choices(found, words, choose, () => this._failed());
      if (this._view === "choices") this._body.replaceChildren(form);
    } catch {
      if (this.inbox) this._turn("inbox");
      this._failed();
    }
  }

  _send(name, detail, cancelable = false) {
    return this.dispatchEvent(new CustomEvent(name, { detail, bubbles: true, composed: true, cancelable }));
  }
}

if (!customElements.get("carillon-inbox")) customElements.define("carillon-inbox", InboxElement);
