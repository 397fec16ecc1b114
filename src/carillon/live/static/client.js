// A person's inbox as data: it loads, follows the live stream, resumes where it was, and counts. No dependencies.

const FIRST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 30000;
const MOST_AT_ONCE = 100;
const MISSED_BEATS = 3;
// Who asks is not known any more, or may not read this inbox.
const REFUSALS = [401, 403];

/**
 * Events: `notification` (detail: a new one), `change`, `connected`, `disconnected`, `gap`, `refused` (nobody is signed in any
 * more; detail: the error), `failed` (detail: the error; what was shown before is shown again).
 *
 * Options: `base` (where Carillon is served, "" for the page's own origin), `user` (whose inbox), `ticket` (an async
 * function that fetches a one-use ticket from your own backend, and gives an empty text or throws an error with `status` 401
 * where nobody is signed in; leave it out where nobody is asked who they are),
 * `acknowledge` (false leaves it to you), `pageSize`.
 */
export class Inbox extends EventTarget {
  constructor({ base = "", user, ticket = null, acknowledge = true, pageSize = 20 } = {}) {
    super();
    if (!user) throw new TypeError("an inbox needs a user");
    this.user = user;
    this.notifications = [];
    this.unread = 0;
    this.more = false;
    this.archived = { notifications: [], more: false, loaded: false };
    this.loaded = false;
    this.connected = false;
    this.offline = false;
    this.refused = false;
    this._base = base.replace(/\/$/, "");
    this._ticket = ticket;
    this._shown = null;
    this._acknowledges = acknowledge;
    this._pageSize = Math.min(MOST_AT_ONCE, Math.max(1, pageSize));
    this._lastEventId = null;
    this._arrivals = 0;
    this._asked = 0;
    this._known = 0;
    this._source = null;
    this._timer = null;
    this._wait = FIRST_WAIT_MS;
    this._beat = null;
    this._heardAt = null;
    this._watching = null;
    this._running = false;
    this._renewing = null;
    this._away = () => this._lost(this._source);
    this._back = () => this._again(0);
    this._seen = () => document.hidden || this._again(0);
  }

  /** Load the inbox and follow the stream; calling it again is harmless. */
  async start() {
    if (this._running) return;
    this._running = true;
    addEventListener("offline", this._away);
    addEventListener("online", this._back);
    // They may have signed in again in another tab, or opened the laptop.
    document.addEventListener("visibilitychange", this._seen);
    await this._connect();
  }

  stop() {
    this._running = false;
    removeEventListener("offline", this._away);
    removeEventListener("online", this._back);
    document.removeEventListener("visibilitychange", this._seen);
    clearTimeout(this._timer);
    this._disconnect();
  }

  /** Mark as read: these ids, or everything; `read` false marks as unread again. */
  async markRead(ids = null, read = true) {
    const touched = [...this.notifications, ...this.archived.notifications].filter((one) => ids === null || ids.includes(one.notification_id));
    const fresh = touched.filter((one) => one.is_read !== read && !one.is_archived).length;
    const changed = touched.filter((one) => one.is_read !== read);
    const unread = this.unread;
    for (const one of changed) one.is_read = read;
    this.unread = ids === null ? (read ? 0 : this.notifications.length) : Math.max(0, this.unread + (read ? -fresh : fresh));
    await this._write("read", { notification_ids: ids, read }, () => {
      for (const one of changed) one.is_read = !read;
      this.unread = unread;
    });
  }

  /** Move to the archive: these ids, or everything that is read; `archived` false moves back. */
  async archive(ids = null, archived = true) {
    const [from, to] = archived ? [this.notifications, this.archived.notifications] : [this.archived.notifications, this.notifications];
    const moved = from.filter((one) => (ids === null ? one.is_read : ids.includes(one.notification_id)));
    for (const one of moved) one.is_archived = archived;
    const unread = moved.filter((one) => !one.is_read).length;
    const before = this.unread;
    this.unread = Math.max(0, before + (archived ? -unread : unread));
    const left = from.filter((one) => !moved.includes(one));
    const gained = [...to, ...moved].sort(newestFirst);
    [this.notifications, this.archived.notifications] = archived ? [left, gained] : [gained, left];
    await this._write("archive", { notification_ids: ids, archived }, () => {
      for (const one of moved) one.is_archived = !archived;
      const all = [...this.notifications, ...this.archived.notifications];
      this.notifications = all.filter((one) => !one.is_archived).sort(newestFirst);
      this.archived.notifications = all.filter((one) => one.is_archived).sort(newestFirst);
      this.unread = before;
    });
  }

  /** Load the next page of the inbox, or of its archive. */
  async loadMore({ archived = false } = {}) {
    const asked = archived ? this.archived : this;
    // What was archived here before the archive was loaded says nothing about where its first page ends.
    const last = asked.loaded ? asked.notifications.findLast((one) => one.seq) : null;
    const page = await this._page({ archived, ...(last ? { before: last.seq } : {}) });
    // The archive may have been loaded anew meanwhile.
    const held = archived ? this.archived : this;
    const known = new Set(held.notifications.map((one) => one.notification_id));
    held.notifications.push(...page.notifications.filter((one) => !known.has(one.notification_id)));
    held.notifications.sort(newestFirst);
    held.more = page.count === this._pageSize;
    held.loaded = true;
    this._tell("change");
  }

  /** Which categories come on which channels: `{channels, categories: [{name, title, text, required, ways}]}`. */
  async choices(locale = "") {
    return this._ask("GET", this._path("preferences"), undefined, locale ? { locale } : {});
  }

  /** Choose, such as `{orders: {email: false}}`; what is left out stays. */
  async choose(categories, locale = "") {
    return this._ask("PATCH", this._path("preferences"), { categories }, locale ? { locale } : {});
  }

  /** Acknowledge a notification; only needed with `acknowledge: false`. */
  async acknowledge(id) {
    await this._ask("POST", `/notifications/${encodeURIComponent(id)}/ack`, {}, this._shown === null ? { user_id: this.user } : {});
  }

  async _connect() {
    try {
      // A ticket opens one stream: the browser's own reconnect would send a used one.
      const shown = this._ticket === null ? null : await this._ticket();
      if (this._ticket !== null && !shown) throw Object.assign(new Error("no ticket: nobody is signed in"), { status: 401 });
      this._shown = shown;
      if (this._running) this._open();
    } catch (error) {
      this._noConnection(error);
      this._again();
    }
  }

  _open() {
    const query = new URLSearchParams(this._shown === null ? { user_id: this.user } : { ticket: this._shown });
    if (this._lastEventId !== null) query.set("last_event_id", this._lastEventId);
    this._source?.close();
    const source = new EventSource(`${this._base}/notifications/stream?${query}`);
    this._source = source;
    this._heardAt = null;
    source.addEventListener("connected", (event) => this._arrived(event, source));
    source.addEventListener("notification", (event) => this._take(JSON.parse(event.data), event.lastEventId));
    for (const name of ["connected", "heartbeat"]) source.addEventListener(name, () => this._heard(source));
    source.addEventListener("changed", () => this._load().catch(() => {}));
    source.addEventListener("gap", () => this._missed());
    source.addEventListener("closing", () => this._lost(source, FIRST_WAIT_MS * Math.random()));
    source.onerror = () => (source.readyState === EventSource.CLOSED ? this._turnedAway(source) : this._lost(source));
  }

  /** The server answered, but not with a stream; an EventSource does not say with what. The inbox can be read all the same, or not. */
  async _turnedAway(source) {
    if (this._source !== source) return;
    this._disconnect();
    const error = await this._load().then(() => null, (failed) => failed);
    if (this._source !== null || !this._running) return;
    this._noConnection(error);
    this._again();
  }

  /**
   * A connection may die without a word, as when a laptop sleeps. The first heartbeat tells how often they come; when three are
   * missing, the stream is opened again.
   */
  _heard(source) {
    if (source !== this._source) return;
    const now = performance.now();
    if (this._heardAt !== null) this._beat = now - this._heardAt;
    this._heardAt = now;
    clearTimeout(this._watching);
    if (this._beat !== null) this._watching = setTimeout(() => this._lost(source), MISSED_BEATS * this._beat + FIRST_WAIT_MS);
  }

  async _arrived(event, source) {
    this._wait = FIRST_WAIT_MS;
    if (this._lastEventId === null) this._lastEventId = event.lastEventId;
    // What was marked elsewhere meanwhile is not in the stream.
    const failed = await this._load().then(() => null, (error) => error);
    if (failed !== null) this._lost(source, null, failed);
    if (this._source !== source) return;
    this.connected = true;
    this.offline = false;
    this.refused = false;
    this._tell("connected");
    this._tell("change");
  }

  async _missed() {
    await this._load().catch(() => {});
    this._tell("gap");
  }

  /** Load as much as was shown, and count; the stream may have delivered some of it meanwhile. */
  async _load() {
    const turn = (this._asked += 1);
    const asked = this._arrivals;
    const [limit, most] = [this, this.archived].map((held) => Math.min(MOST_AT_ONCE, Math.max(this._pageSize, held.notifications.length)));
    const put = this.archived.loaded ? this._page({ archived: true, limit: most }) : null;
    const [page, counts, archive] = await Promise.all([this._page({ limit }), this._ask("GET", this._path("unread")), put]);
    // What came meanwhile may or may not be counted: ask again.
    const { unread } = this._arrivals === asked ? counts : await this._ask("GET", this._path("unread"));
    // Answers may overtake one another: an older one knows less.
    if (turn < this._known) return;
    this._known = turn;
    this.notifications = merged(this.notifications, page, limit, (one) => one.arrived > asked);
    this.more = page.count === limit || this.notifications.length > page.count;
    this.unread = unread;
    this.loaded = true;
    if (archive !== null) {
      const notifications = merged(this.archived.notifications, archive, most, () => false);
      this.archived = { notifications, more: archive.count === most || notifications.length > archive.count, loaded: true };
    }
    this._tell("change");
  }

  _take(notification, lastEventId) {
    this._lastEventId = lastEventId;
    const seq = Number(lastEventId);
    const id = notification.notification_id;
    const held = [...this.notifications, ...this.archived.notifications].find((one) => one.notification_id === id);
    // Show each once: delivery is at least once, so a repeat has the same id.
    if (held) held.seq = seq;
    else {
      this.notifications.unshift({ ...notification, seq, is_read: false, is_archived: false, arrived: (this._arrivals += 1) });
      this.unread += 1;
      this._tell("notification", notification);
    }
    this.notifications.sort(newestFirst);
    this._tell("change");
    if (this._acknowledges) this.acknowledge(id).catch(() => {});
  }

  _lost(source, wait = null, error = null) {
    if (source === null || this._source !== source) return;
    this._disconnect();
    // A stream that ends in order is opened again within a second: nobody needs to read of that.
    if (wait === null) this._noConnection(error);
    this._again(wait);
  }

  _noConnection(error = null) {
    const known = this.refused;
    this.offline = true;
    this.refused = REFUSALS.includes(error?.status);
    // Asking again and again does not sign anybody in.
    if (this.refused) this._wait = LONGEST_WAIT_MS;
    if (this.refused && !known) this._tell("refused", error);
    this._tell("change");
  }

  _again(wait = null) {
    if (!this._running || this._source !== null) return;
    clearTimeout(this._timer);
    // Spread the reconnects: a replica that stops disconnects all readers at once.
    this._timer = setTimeout(() => this._connect(), wait ?? this._wait * (0.5 + Math.random()));
    this._wait = Math.min(this._wait * 2, LONGEST_WAIT_MS);
  }

  _disconnect() {
    clearTimeout(this._watching);
    this._source?.close();
    this._source = null;
    if (this.connected) {
      this.connected = false;
      this._tell("disconnected");
    }
  }

  /** Write what is shown already; if that fails, show again what holds, or what held before. */
  async _write(what, body, undo) {
    this._tell("change");
    try {
      await this._ask("POST", this._path(what), body);
    } catch (error) {
      undo();
      this._tell("failed", error);
      this._tell("change");
      if (!REFUSALS.includes(error.status)) await this._load().catch(() => {});
    }
  }

  async _page({ limit = this._pageSize, before = null, archived = false } = {}) {
    const query = { limit, ...(before === null ? {} : { before }), ...(archived ? { archived: true } : {}) };
    return this._ask("GET", this._path(""), undefined, query);
  }

  _path(what) {
    return `/notifications/${encodeURIComponent(this.user)}${what ? `/${what}` : ""}`;
  }

  async _ask(method, path, body = undefined, query = {}) {
    const options = { method, headers: {} };
    if (body !== undefined) {
      options.headers["Content-Type"] = "application/json";
      options.body = JSON.stringify(body);
    }
    // The server reads a slash inside an id only if it is encoded twice.
    const spelled = `${this._base}${path.replaceAll("%2F", "%252F")}`;
    const send = () => fetch(`${spelled}?${new URLSearchParams(this._shown === null ? query : { ...query, ticket: this._shown })}`, options);
    const shown = this._shown;
    let answer = await send();
    if (answer.status === 401 && (await this._renewed(shown))) answer = await send();
    if (answer.ok) return answer.json();
    const error = Object.assign(new Error(`${method} ${path}: ${answer.status}`), { status: answer.status });
    // The stream that is still open belongs to somebody who is signed out.
    if (answer.status === 401) this._lost(this._source, null, error);
    throw error;
  }

  /** A ticket ends after its time, as when a laptop slept: then another one opens another stream. False where there is none. */
  async _renewed(ended) {
    if (this._shown !== ended) return true;
    // Where the stream of this ticket never opened, another ticket is not the answer.
    if (this._ticket === null || !(this.connected || this._renewing)) return false;
    // Several requests may end with one ticket.
    this._renewing ??= (this._disconnect(), this._connect().finally(() => (this._renewing = null)));
    await this._renewing;
    return this._shown !== ended;
  }

  _tell(name, detail = null) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}

/** A page that was loaded anew, and of what was shown that which is older than the page, or which `also` keeps. */
function merged(shown, page, limit, also) {
  const oldest = page.notifications.findLast((one) => one.seq)?.seq ?? 0;
  const ids = new Set(page.notifications.map((one) => one.notification_id));
  const older = (one) => page.count === limit && one.seq && one.seq < oldest;
  return [...page.notifications, ...shown.filter((one) => !ids.has(one.notification_id) && (also(one) || older(one)))].sort(newestFirst);
}

// What waits for an absent person has no number yet, and is newer than everything that has one.
function newestFirst(one, other) {
  return (other.seq ?? Infinity) - (one.seq ?? Infinity) || other.event_timestamp.localeCompare(one.event_timestamp);
}
