// The pieces of the inbox as DOM: what a producer wrote is always text, never markup.

const SHORT = 140;
const SVG = "http://www.w3.org/2000/svg";
const PATHS = {
  bell: "M12 3a6 6 0 0 0-6 6v3.6L4.4 16a.7.7 0 0 0 .6 1h14a.7.7 0 0 0 .6-1L18 12.6V9a6 6 0 0 0-6-6zM9.8 20a2.3 2.3 0 0 0 4.4 0",
  all: "M2.5 12.5l4 4L14 8M11.5 16l.5.5L20.5 8",
  check: "M5 12.5l4.5 4.5L19 7.5",
  dot: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8z",
  archive: "M4 5h16v4H4zM5.5 9v10h13V9M10 13h4",
  back: "M4 13h4.5l1.5 3h4l1.5-3H20M4 13v6h16v-6M12 11V4M9 6.5L12 3.5l3 3",
  gear: "M4 7h9M17 7h3M4 17h3M11 17h9M15 4.5v5M9 14.5v5",
  left: "M14.5 6l-6 6 6 6",
  close: "M6 6l12 12M18 6L6 18",
};

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}

export function element(name, { text = null, ...attributes } = {}, ...inside) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  if (text !== null) made.textContent = text;
  made.append(...inside);
  return made;
}

/** A button that shows an icon and says its name. */
export function tool(name, label, part, call) {
  const made = element("button", { class: "tool", type: "button", part: `button ${part}`, title: label, "aria-label": label }, icon(name));
  made.addEventListener("click", (event) => {
    event.stopPropagation();
    call(event);
  });
  return made;
}

// A producer wrote it: only what opens a page, a mail or a call, and nothing that runs.
export function safe(url) {
  return typeof url === "string" && /^(https?:\/\/|mailto:|tel:|\/(?!\/))[^\x00-\x20\x7f-\xa0\xad\u200b-\u200f\u2028-\u202f\ufeff\\]*$/.test(url);
}

/** What is shown of a notification: of a message of the inbox, or of any payload with these names. */
export function content(notification) {
  const payload = notification.payload ?? {};
  const body = String(payload.body ?? payload.message ?? payload.text ?? "");
  const known = payload.title || body;
  // A short text without a title is its own title.
  const alone = !payload.title && body && body.length <= SHORT && !body.includes("\n");
  return {
    title: String(payload.title || (alone ? body : notification.event_type)),
    text: alone ? "" : known ? body : Object.keys(payload).length ? JSON.stringify(payload) : "",
    url: safe(payload.url) ? payload.url : null,
    icon: safe(payload.icon) ? payload.icon : null,
    actions: (Array.isArray(payload.actions) ? payload.actions : []).filter((one) => one?.label && safe(one.url)).slice(0, 5),
  };
}

/** `opened(url, event)` is called when the person follows a link. */
export function line(notification, { words, clock, opened, tools }) {
  const shown = content(notification);
  const unread = !notification.is_read;
  const title = shown.url === null
    ? element("span", { class: "title", part: "item-title", text: shown.title, dir: "auto" })
    : link(shown.url, shown.title, { class: "title", part: "item-title", dir: "auto", tabindex: "-1" }, opened);
  const when = element("time", { datetime: notification.event_timestamp, title: clock.full(notification.event_timestamp), part: "time", text: clock.short(notification.event_timestamp) });
  const item = element("li", {
    class: `${unread ? "unread" : ""}${shown.url === null ? "" : " opens"}`.trim(), part: unread ? "item item-unread" : "item",
    tabindex: "-1", "data-id": notification.notification_id, "data-type": notification.event_type, "data-priority": notification.priority,
  });
  const picture = shown.icon === null
    ? element("span", { class: "icon glyph", part: "icon", "aria-hidden": "true" }, icon("bell"))
    : element("img", { class: "icon", part: "icon", src: shown.icon, alt: "", width: 40, height: 40, loading: "lazy", referrerpolicy: "no-referrer" });
  const said = element("div", { class: "said" }, element("div", { class: "first" }, title, when));
  if (unread) title.before(element("span", { class: "quiet", text: `${words.notRead}: ` }));
  if (shown.text) said.append(element("p", { class: "text", part: "item-text", text: shown.text, dir: "auto" }));
  if (shown.actions.length) {
    said.append(element("div", { class: "actions", part: "actions" }, ...shown.actions.map((one) => link(one.url, one.label, { class: "action", part: "action", dir: "auto" }, opened))));
  }
  item.append(picture, said, element("div", { class: "hand" }, ...tools));
  return item;
}

/** What stands where no notification is: why, and what to do. */
export function nothing(why, words) {
  const picture = icon(why === "emptyArchive" ? "archive" : "bell");
  return element("div", { class: "empty", part: "empty" }, picture, element("b", { text: words[why] }), element("span", { text: words[`${why}Text`] }));
}

/** The shape of a notification that is being loaded. */
export function bone() {
  return element("div", { class: "bone" }, element("i"), element("span", {}, element("i"), element("i")));
}

function link(url, text, attributes, opened) {
  const outside = /^https?:/.test(url) ? { target: "_blank", rel: "noopener noreferrer" } : {};
  const made = element("a", { href: url, text, ...attributes, ...outside });
  made.addEventListener("click", (event) => {
    event.stopPropagation();
    opened(url, event);
  });
  return made;
}

/** Times in a language: short ones beside a notification, the whole one on hover, and the day above a group. */
export class Clock {
  constructor(lang) {
    const format = (options) => new Intl.DateTimeFormat(lang, options);
    this._relative = new Intl.RelativeTimeFormat(lang, { numeric: "auto", style: "narrow" });
    this._days = new Intl.RelativeTimeFormat(lang, { numeric: "auto" });
    this._time = format({ hour: "numeric", minute: "2-digit" });
    this._full = format({ dateStyle: "full", timeStyle: "short" });
    this._weekday = format({ weekday: "long" });
    this._day = format({ day: "numeric", month: "long" });
    this._year = format({ day: "numeric", month: "long", year: "numeric" });
  }

  short(at, now = Date.now()) {
    const minutes = Math.round((now - Date.parse(at)) / 60000);
    if (minutes < 1) return this._relative.format(0, "second");
    return minutes < 60 ? this._relative.format(-minutes, "minute") : this._time.format(new Date(at));
  }

  full(at) {
    return this._full.format(new Date(at));
  }

  day(at, now = new Date()) {
    const then = new Date(at);
    // A clock that is a little behind does not read messages of tomorrow.
    const ago = Math.max(0, Math.round((midnight(now) - midnight(then)) / 86400000));
    const word = ago < 2 ? this._days.format(-ago, "day") : ago < 7 ? this._weekday.format(then)
      : then.getFullYear() === now.getFullYear() ? this._day.format(then) : this._year.format(then);
    return word.charAt(0).toLocaleUpperCase() + word.slice(1);
  }
}

function midnight(at) {
  return new Date(at.getFullYear(), at.getMonth(), at.getDate()).getTime();
}
