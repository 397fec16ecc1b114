/** "Send it to me": what is written, published or not, goes to an address of its author. */

import { ask } from "./api.js";
import { fill, h } from "./dom.js";
import { field } from "./forms.js";

const ADDRESS = "carillon.test-address ";
const WANTED = {
  email: ["Your email address", "email"],
  sms: ["Your phone number", "tel"],
  push: ["The token of your device", "text"],
  webhook: ["An address that you own", "url"],
  inApp: ["Your user id", "text"],
};

/**
 * @param {string} channel
 * @param {() => object} written the body of the request, without the recipient
 */
export function sending(channel, written) {
  const [label, type] = WANTED[channel] ?? WANTED.push;
  const answer = h("p", { role: "status" });
  const form = h(
    "form",
    { class: "filters send-test" },
    field("test-recipient", label, { type, required: true, value: localStorage.getItem(ADDRESS + channel) ?? "", autocomplete: "on" }),
    h("button", { text: "Send it to me" }),
    answer,
  );
  form.onsubmit = async (event) => {
    event.preventDefault();
    const recipient = form.elements["test-recipient"].value.trim();
    fill(answer, "Sending…");
    answer.className = "quiet";
    try {
      const sent = await ask("/api/v1/templates/test-send", { method: "POST", body: { ...written(), recipient } });
      localStorage.setItem(ADDRESS + channel, recipient);
      fill(
        answer,
        sent.status === "skipped" ? "Not sent: this address is suppressed. " : "On its way. ",
        h("a", { href: `#/notifications/${encodeURIComponent(sent.notificationId)}`, text: "See its story" }),
      );
    } catch (error) {
      answer.className = "bad";
      fill(answer, error instanceof SyntaxError ? "The sample variables are not JSON." : error.message);
    }
  };
  return form;
}
