// The page around the component: whose inbox, in which language and colours, a ticket where a token is needed, and samples.

import { LANGUAGES } from "/inbox/inbox.js";

const form = document.getElementById("who");
const answer = document.getElementById("answer");
const SAMPLES = {
  order: {
    title: "Your order is on its way", body: "Parcel 7 of the bell foundry left Aarau and arrives tomorrow before noon.", icon: "/inbox/parcel.svg",
    actions: [{ label: "Track it", url: "https://example.org/orders/7" }, { label: "Change the day", url: "https://example.org/orders/7/day" }],
  },
  security: { title: "A new device signed in", body: "Firefox on Linux, near Bern. Was that not you? Change your password now.", icon: "/inbox/shield.svg", url: "https://example.org/security" },
  team: { title: "Grace mentioned you", body: "“The great bell is cast. Could you look at its tuning before Friday?”", icon: "/inbox/team.svg", url: "https://example.org/threads/12" },
};
// One of these doors is open, whatever the blueprint is.
const DOORS = [
  (user, shown) => ["/api/v1/notifications/send", { templateKey: "welcome", channel: "inApp", recipient: user, data: { name: user, link: "/" }, inApp: shown }],
  (user, shown) => ["/api/v1/notifications/send", { templateKey: "order_confirmed", channel: "inApp", recipient: user, locale: "en-US", data: { orderId: "7", name: user }, inApp: shown }],
  (user, shown) => ["/notifications", { event_type: "sample", user_id: user, payload: shown }],
];

function bearer() {
  const token = form.elements.token.value;
  return token ? { Authorization: `Bearer ${token}` } : {};
}

async function post(path, body) {
  return fetch(path, { method: "POST", headers: { ...bearer(), "Content-Type": "application/json" }, body: JSON.stringify(body) });
}

async function ticketFor(user) {
  const made = await post("/notifications/stream/tickets", { user_id: user });
  if (!made.ok) throw Object.assign(new Error(`no ticket: ${made.status}`), { status: made.status });
  return (await made.json()).ticket;
}

function made(mode) {
  const { user, lang, theme, token } = form.elements;
  const inbox = document.createElement("carillon-inbox");
  inbox.setAttribute("user", user.value);
  inbox.setAttribute("lang", lang.value);
  if (theme.value) inbox.setAttribute("theme", theme.value);
  if (mode) inbox.setAttribute("mode", mode);
  if (token.value) inbox.ticket = () => ticketFor(user.value);
  return inbox;
}

function open() {
  document.documentElement.dataset.theme = form.elements.theme.value;
  for (const id of ["whom", "named"]) document.getElementById(id).textContent = form.elements.user.value;
  document.getElementById("inbox").replaceChildren(made(""));
  document.getElementById("bell").replaceChildren(made("bell"));
}

async function send(name) {
  let refused = null;
  for (const door of DOORS) {
    const said = await post(...door(form.elements.user.value, SAMPLES[name])).catch(() => null);
    if (said?.ok) return (answer.textContent = "Sent.");
    refused = said?.status ?? "no answer";
    if (refused === 401) break;
  }
  answer.textContent = refused === 401 ? "This Carillon asks for a token." : `Not sent (${refused}).`;
}

const asked = new URLSearchParams(location.search);
const names = new Intl.DisplayNames(["en"], { type: "language" });
for (const lang of LANGUAGES) form.elements.lang.append(new Option(names.of(lang), lang));
form.elements.lang.value = LANGUAGES.find((lang) => (asked.get("lang") ?? navigator.language).startsWith(lang)) ?? "en";
form.elements.theme.value = asked.get("theme") ?? "";
if (asked.get("user")) form.elements.user.value = asked.get("user");
form.addEventListener("submit", (event) => {
  event.preventDefault();
  open();
});
for (const name of ["lang", "theme"]) form.elements[name].addEventListener("change", open);
document.getElementById("samples").addEventListener("click", (event) => {
  if (event.target.dataset.sample) send(event.target.dataset.sample);
});
open();
