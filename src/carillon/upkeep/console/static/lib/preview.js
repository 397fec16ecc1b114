/** A message as its recipient sees it: a push, a mail or a text. Markup is shown as text, because it is not trusted. */

import { h } from "./dom.js";

/**
 * @param {string} channel
 * @param {string|null} to
 * @param {{subject?: string|null, text: string, html?: string|null, segments?: object, mail?: object, push?: object, inApp?: object}} message
 */
export function preview(channel, to, message) {
  switch (channel) {
    case "email": return mail(to, message);
    case "sms": return h("div", { class: "phone" }, h("div", { class: "bubble", text: message.text }), parts(message.segments));
    case "push": case "inApp": return h("div", { class: "phone" }, h("div", { class: "notice" },
      h("b", { text: message.subject ?? "Notification" }), h("div", { text: message.text })), carried(message.push ?? message.inApp));
    default: return h("pre", { text: message.text });
  }
}

function mail(to, message) {
  return h("div", { class: "mail" }, h("div", { class: "envelope" }, h("div", {}, h("span", { class: "quiet", text: "To " }), to ?? "–"),
    envelope(message.mail), h("b", { text: message.subject ?? "(no subject)" })), h("div", { class: "letter", text: message.text }),
  files(message.mail?.attachments),
  message.html ? h("details", {}, h("summary", { text: "HTML as sent" }), h("pre", { text: message.html })) : null);
}

/** The lines between the recipient and the subject; a blind copy is shown here and nowhere else. */
function envelope(mail) {
  if (!mail) return null;
  const lines = { From: mail.sender, Cc: mail.cc?.join(", "), Bcc: mail.bcc?.join(", "), "Not sent to, suppressed:": mail.leftOut?.join(", "), "Reply to": mail.replyTo };
  const own = Object.entries(mail.headers ?? {}).map(([name, value]) => [`${name}:`, value]);
  const event = mail.calendar ? [["Invitation", `${mail.calendar.title}, ${mail.calendar.start}`]] : [];
  return [...Object.entries(lines), ...own, ...event].filter(([, value]) => value)
    .map(([name, value]) => h("div", {}, h("span", { class: "quiet", text: `${name} ` }), value));
}

function files(attachments) {
  if (!attachments?.length) return null;
  return h("div", { class: "files" }, attachments.map((file) => h("div", {}, file.filename, h("span", { class: "quiet",
    text: ` ${file.contentType}, ${file.bytes == null ? "not fetched yet" : `${file.bytes} bytes`}${file.inline ? ", inside the text" : ""}` }))));
}

function parts(segments) {
  if (!segments) return null;
  return h("div", { class: "quiet", text: `${segments.segments} ${segments.segments === 1 ? "part" : "parts"} of ${segments.encoding}, ${segments.units} units` });
}

function carried(more) {
  if (!more) return null;
  const shown = Object.entries(more).map(([name, value]) => `${name}: ${typeof value === "object" ? JSON.stringify(value) : value}`);
  return h("div", { class: "quiet" }, shown.map((text) => h("div", { text })));
}
