/** A message as its recipient sees it: a push, a mail or a text. Markup is shown as text, because it is not trusted. */

import { h } from "./dom.js";

/**
 * @param {string} channel
 * @param {string|null} to
 * @param {{subject?: string|null, text: string, html?: string|null}} message
 */
export function preview(channel, to, message) {
  switch (channel) {
    case "email": return mail(to, message);
    case "sms": return h("div", { class: "phone" }, h("div", { class: "bubble", text: message.text }));
    case "push": case "inApp": return h("div", { class: "phone" }, h("div", { class: "notice" },
      h("b", { text: message.subject ?? "Notification" }), h("div", { text: message.text })));
    default: return h("pre", { text: message.text });
  }
}

function mail(to, message) {
  return h("div", { class: "mail" }, h("div", { class: "envelope" }, h("div", {}, h("span", { class: "quiet", text: "To " }), to ?? "–"),
    h("b", { text: message.subject ?? "(no subject)" })), h("div", { class: "letter", text: message.text }),
  message.html ? h("details", {}, h("summary", { text: "HTML as sent" }), h("pre", { text: message.html })) : null);
}
