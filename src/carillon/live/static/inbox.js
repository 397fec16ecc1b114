// A person's inbox as a live stream: it connects, resumes where it was, acknowledges and counts. No dependencies.

const FIRST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 30000;
const REMEMBERED = 1000;

/**
 * Events: `notification` (detail: the notification), `change`, `connected`, `disconnected`, `gap`.
 *
 * Options: `base` (where Carillon is served, "" for the page's own origin), `user` (whose inbox), `ticket` (an async
 * function that fetches a one-use ticket from your own backend; leave it out where nobody is asked who they are),
 * `acknowledge` (false leaves it to you).
 */
export class Inbox extends EventTarget {
  constructor({ base = "", user, ticket = null, acknowledge = true } = {}) {
    super();
    if (!user) throw new TypeError("an inbox needs a user");
    this.user = user;
    this.notifications = [];
    this.connected = false;
    this._base = base.replace(/\/$/, "");
    this._ticket = ticket;
    this._shown = null;
    this._acknowledges = acknowledge;
    this._lastEventId = null;
    this._seen = new Set();
    this._source = null;
    this._timer = null;
    this._wait = FIRST_WAIT_MS;
    this._running = false;
  }

  get unread() {
    return this.notifications.filter((notification) => !notification.is_read).length;
  }

  /** Load the inbox and follow the stream; calling it again is harmless. */
  async start() {
    if (this._running) return;
    this._running = true;
    await this._connect();
  }

  stop() {
    this._running = false;
    clearTimeout(this._timer);
    this._disconnect();
  }

  /** Mark as read: these ids, or everything. */
  async markRead(ids = null) {
    await this._ask("POST", `/notifications/${encodeURIComponent(this.user)}/read`, { notification_ids: ids });
    for (const notification of this.notifications) {
      if (ids === null || ids.includes(notification.notification_id)) notification.is_read = true;
    }
    this._tell("change");
  }

  /** Acknowledge a notification; only needed with `acknowledge: false`. */
  async acknowledge(id) {
    await this._ask("POST", `/notifications/${encodeURIComponent(id)}/ack`, {});
  }

  async _connect() {
    try {
      // A ticket opens one stream: the browser's own reconnect would send a used one.
      this._shown = this._ticket === null ? null : await this._ticket();
      if (!this._running) return;
      this._open();
    } catch (error) {
      this._again();
    }
  }

  _open() {
    const query = new URLSearchParams(this._who());
    if (this._lastEventId !== null) query.set("last_event_id", this._lastEventId);
    const source = new EventSource(`${this._base}/notifications/stream?${query}`);
    this._source = source;
    source.addEventListener("connected", (event) => this._arrived(event));
    source.addEventListener("notification", (event) => this._take(JSON.parse(event.data), event.lastEventId));
    source.addEventListener("gap", () => this._missed());
    source.addEventListener("closing", () => this._lost(source, FIRST_WAIT_MS * Math.random()));
    source.onerror = () => this._lost(source);
  }

  async _arrived(event) {
    this.connected = true;
    this._wait = FIRST_WAIT_MS;
    if (this._lastEventId === null) {
      this._lastEventId = event.lastEventId;
      await this._load().catch(() => {});
    }
    this._tell("connected");
  }

  async _missed() {
    await this._load().catch(() => {});
    this._tell("gap");
  }

  /** Load what was there before the stream began. */
  async _load() {
    const inbox = await this._ask("GET", `/notifications/${encodeURIComponent(this.user)}`);
    // The stream may have delivered some of these meanwhile.
    for (const notification of inbox.notifications.reverse()) this._add(notification);
    this.notifications.sort((one, other) => (other.seq ?? Infinity) - (one.seq ?? Infinity));
    this._tell("change");
  }

  _take(notification, lastEventId) {
    this._lastEventId = lastEventId;
    const known = this._seen.has(notification.notification_id);
    if (known) {
      const held = this.notifications.find((one) => one.notification_id === notification.notification_id);
      if (held) held.seq = Number(lastEventId);
    }
    this._add({ ...notification, seq: Number(lastEventId), is_read: false });
    if (!known) this._tell("notification", notification);
    this._tell("change");
    if (this._acknowledges) this.acknowledge(notification.notification_id).catch(() => {});
  }

  /** Show each once: delivery is at least once, so a repeat has the same id. */
  _add(notification) {
    if (this._seen.has(notification.notification_id)) return;
    this._seen.add(notification.notification_id);
    this.notifications.unshift(notification);
    if (this.notifications.length > REMEMBERED) {
      this._seen.delete(this.notifications.pop().notification_id);
    }
  }

  _lost(source, wait = null) {
    if (this._source !== source) return;
    this._disconnect();
    this._again(wait);
  }

  _again(wait = null) {
    if (!this._running) return;
    clearTimeout(this._timer);
    // Spread the reconnects: a replica that stops disconnects all readers at once.
    this._timer = setTimeout(() => this._connect(), wait ?? this._wait * (0.5 + Math.random()));
    this._wait = Math.min(this._wait * 2, LONGEST_WAIT_MS);
  }

  _disconnect() {
    if (this._source !== null) this._source.close();
    this._source = null;
    if (this.connected) {
      this.connected = false;
      this._tell("disconnected");
    }
  }

  _who() {
    return this._shown === null ? { user_id: this.user } : { ticket: this._shown };
  }

  async _ask(method, path, body = undefined) {
    // A path that names the person needs no user_id.
    const query = this._shown === null && !path.endsWith("/ack") ? {} : this._who();
    const options = { method, headers: {} };
    if (body !== undefined) {
      options.headers["Content-Type"] = "application/json";
      options.body = JSON.stringify(body);
    }
    const answer = await fetch(`${this._base}${path}?${new URLSearchParams(query)}`, options);
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status}`);
    return answer.json();
  }

  _tell(name, detail = null) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}

const SHEET = new CSSStyleSheet();
SHEET.replaceSync(`
  :host { display: block; font: 15px/1.5 system-ui, sans-serif; }
  header { display: flex; align-items: center; gap: 0.6em; padding: 0.4em 0; }
  .badge { min-width: 1.6em; padding: 0 0.4em; border-radius: 1em; background: #b3261e; color: #fff; text-align: center; }
  .badge[hidden] { display: none; }
  .state::before { content: "●"; color: #9aa0a6; }
  .state.live::before { color: #188038; }
  ol { list-style: none; margin: 0; padding: 0; }
  li { padding: 0.5em 0.7em; border-left: 3px solid transparent; }
  li.unread { border-left-color: #1a73e8; background: rgb(26 115 232 / 8%); }
  li strong { font-weight: 600; }
  li time, li .priority { color: #5f6368; font-size: 0.85em; }
  button { font: inherit; margin-left: auto; }
`);

/** `<carillon-inbox user="ada" base="">`; set its `ticket` property before you insert it, if the stream needs a ticket. */
export class InboxElement extends HTMLElement {
  ticket = null;

  connectedCallback() {
    const root = this.shadowRoot ?? this.attachShadow({ mode: "open" });
    root.adoptedStyleSheets = [SHEET];
    root.replaceChildren(...this._frame());
    this.inbox = new Inbox({ base: this.getAttribute("base") ?? "", user: this.getAttribute("user"), ticket: this.ticket });
    for (const name of ["change", "connected", "disconnected"]) this.inbox.addEventListener(name, () => this._show());
    this._button.addEventListener("click", () => this.inbox.markRead());
    this.inbox.start();
  }

  disconnectedCallback() {
    this.inbox.stop();
  }

  _frame() {
    const header = document.createElement("header");
    this._state = element("span", "state");
    this._badge = element("span", "badge");
    this._badge.hidden = true;
    this._button = element("button", "", "Mark all as read");
    this._list = document.createElement("ol");
    this._list.setAttribute("aria-live", "polite");
    header.append(this._state, element("span", "", "Notifications"), this._badge, this._button);
    return [header, this._list];
  }

  _show() {
    this._state.classList.toggle("live", this.inbox.connected);
    this._badge.textContent = String(this.inbox.unread);
    this._badge.hidden = this.inbox.unread === 0;
    this._list.replaceChildren(...this.inbox.notifications.map(line));
  }
}

function line(notification) {
  const item = element("li", notification.is_read ? "" : "unread");
  item.dataset.id = notification.notification_id;
  const payload = notification.payload ?? {};
  const text = payload.message ?? payload.body ?? payload.text ?? payload.title ?? JSON.stringify(payload);
  const when = element("time", "", new Date(notification.event_timestamp).toLocaleString());
  item.append(element("strong", "", notification.event_type), " ", element("span", "priority", notification.priority), " ", when);
  item.append(document.createElement("br"));
  if (safe(payload.icon)) item.append(Object.assign(element("img", "icon"), { src: payload.icon, alt: "", width: 20, height: 20 }), " ");
  if (payload.title && payload.title !== text) item.append(element("b", "title", payload.title), " ");
  item.append(safe(payload.url) ? link(payload.url, text) : element("span", "text", text));
  const actions = Array.isArray(payload.actions) ? payload.actions.slice(0, 5) : [];
  for (const action of actions) if (action?.label && safe(action.url)) item.append(" ", link(action.url, action.label, "action"));
  return item;
}

// A producer wrote it: only what opens a page, a mail or a call, and nothing that runs.
function safe(url) {
  return typeof url === "string" && /^(https?:\/\/|mailto:|tel:|\/(?!\/))[^\x00-\x20\x7f-\xa0\xad\u200b-\u200f\u2028-\u202f\ufeff\\]*$/.test(url);
}

function link(url, text, className = "text") {
  return Object.assign(element("a", className, text), { href: url, rel: "noopener noreferrer", target: "_blank" });
}

// Always as text, never as markup: a producer wrote it.
function element(name, className, text = "") {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.textContent = text;
  return made;
}

if (!customElements.get("carillon-inbox")) customElements.define("carillon-inbox", InboxElement);
