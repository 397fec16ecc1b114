/** A message as its recipient sees it: a push, a card of the inbox, a mail or a text. Its HTML is not trusted. */

import { h } from "./dom.js";
import { frame } from "./frame.js";

/**
 * `drawn` shows the HTML of a mail at once; a list of mails has many of them, and draws one when it is opened.
 * @param {string} channel
 * @param {string|null} to
 * @param {{subject?: string|null, text: string, html?: string|null, segments?: object, mail?: object, push?: object, inApp?: object}} message
 */
export function preview(channel, to, message, { drawn = false } = {}) {
  switch (channel) {
    case "email":
      return mail(to, message, drawn && Boolean(message.html));
    case "sms":
      return h("div", { class: "phone" }, h("div", { class: "bubble", text: message.text }), parts(message.segments));
    case "push":
      return notice(message, message.push);
    case "inApp":
      return notice(message, message.inApp);
    default:
      return h("pre", { text: message.text });
  }
}

function mail(to, message, drawn) {
  const text = h("div", { class: "letter", text: message.text });
  return h(
    "div",
    { class: "mail" },
    h(
      "div",
      { class: "envelope" },
      to ? h("div", {}, h("span", { class: "quiet", text: "To " }), to) : null,
      envelope(message.mail),
      h("b", { text: message.subject ?? "(no subject)" }),
    ),
    drawn ? letter(message.html) : text,
    files(message.mail?.attachments),
    drawn ? h("details", {}, h("summary", { text: "Text" }), text) : null,
    message.html ? (drawn ? source(message.html) : rich(message.html)) : null,
  );
}

function letter(html) {
  const made = frame("The message as its recipient sees it");
  made.show(html);
  return made.element;
}

function source(html) {
  return h("details", {}, h("summary", { text: "Source" }), h("pre", { text: html }));
}

/** The HTML part, drawn when somebody opens it. */
function rich(html) {
  const place = h("div", {});
  const made = h("details", { class: "rich" }, h("summary", { text: "HTML as sent" }), place);
  made.addEventListener("toggle", () => {
    if (!made.open || place.firstChild) return;
    place.append(letter(html), source(html));
  });
  return made;
}

/** The lines between the recipient and the subject; a blind copy is shown here and nowhere else. */
function envelope(mail) {
  if (!mail) return null;
  const lines = { From: mail.sender, Cc: mail.cc?.join(", "), Bcc: mail.bcc?.join(", "), "Not sent to, suppressed:": mail.leftOut?.join(", "), "Reply to": mail.replyTo };
  const own = Object.entries(mail.headers ?? {}).map(([name, value]) => [`${name}:`, value]);
  const event = mail.calendar ? [["Invitation", `${mail.calendar.title}, ${mail.calendar.start}`]] : [];
  return [...Object.entries(lines), ...own, ...event]
    .filter(([, value]) => value)
    .map(([name, value]) => h("div", {}, h("span", { class: "quiet", text: `${name} ` }), value));
}

function files(attachments) {
  if (!attachments?.length) return null;
  const about = (file) =>
    ` ${file.contentType}, ${file.bytes == null ? "not fetched yet" : `${file.bytes} bytes`}${file.inline ? ", inside the text" : ""}`;
  return h(
    "div",
    { class: "files" },
    attachments.map((file) => h("div", {}, file.filename, h("span", { class: "quiet", text: about(file) }))),
  );
}

function parts(segments) {
  if (!segments) return null;
  const counted = `${segments.segments} ${segments.segments === 1 ? "part" : "parts"} of ${segments.encoding}, ${segments.units} units`;
  return h("div", { class: "quiet", text: counted });
}

/** A push or a card of the inbox, with its buttons; what a card does not show is listed beneath. */
function notice(message, more = null) {
  const { title, body, actions, ...rest } = more ?? {};
  return h(
    "div",
    { class: "phone" },
    h(
      "div",
      { class: "notice" },
      h("b", { text: title ?? message.subject ?? "Notification" }),
      h("div", { text: body ?? message.text }),
      actions?.length ? h("div", { class: "row" }, actions.map((one) => h("span", { class: "chip", title: one.url, text: one.label }))) : null,
    ),
    carried(rest),
  );
}

function carried(more) {
  const shown = Object.entries(more).filter(([, value]) => value !== null && value !== undefined);
  if (!shown.length) return null;
  return h(
    "div",
    { class: "quiet" },
    shown.map(([name, value]) => h("div", { text: `${name}: ${typeof value === "object" ? JSON.stringify(value) : value}` })),
  );
}
