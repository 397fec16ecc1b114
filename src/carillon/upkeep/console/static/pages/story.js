/** The story of one notification: what happened and why, the message, and what can be done about it. */

import { ask } from "../lib/api.js";
import { confirm, show } from "../lib/dialog.js";
import { badge, card, copies, fill, h, head, titled, toast, when } from "../lib/dom.js";
import { choice, field, newest, refill } from "../lib/forms.js";
import { millis, moment, number } from "../lib/format.js";
import { whereIs } from "../lib/pages.js";
import { preview } from "../lib/preview.js";
import { attempted, explained, gated } from "../lib/words.js";

const BY_HAND = { "X-Admin-Override": "true" };
const ENDS = [["deliveredAt", "Delivered", "good"], ["openedAt", "Opened", "good"], ["clickedAt", "Clicked", "good"], ["failedAt", "Dead letter", "bad"], ["skippedAt", "Skipped", ""]];

export async function story(main, shell, id) {
  const page = h("div", { class: "page" });
  const asking = newest();
  // What somebody has asked for, and a message that does not change, stay while the notification goes on.
  const kept = { why: why(() => kept.one), previews: new Map(), one: null };
  let shown = "";
  const draw = async () => {
    const still = asking();
    const one = await ask(`/api/v1/notifications/${encodeURIComponent(id)}`, { query: { include: "attempts,message" } });
    const now = JSON.stringify(one);
    if (!still() || now === shown) return;
    shown = now;
    kept.one = one;
    refill(page, head(one.templateKey, badge(one.status), acts(one, shell, draw)), facts(one, shell), inOrder(one.routes).map((route) => told(route, shell, kept.previews)), kept.why);
  };
  await draw();
  fill(main, page);
  shell.keys({ b: ["back to the list", () => history.back()], y: ["copy the id", () => document.getElementById("copy-id")?.click()], e: ["explain", () => document.getElementById("explain")?.click()] });
  const poll = setInterval(() => draw().catch(() => {}), 2000);
  shell.onTick(() => draw().catch(() => {}));
  return () => clearInterval(poll);
}

function acts(one, shell, draw) {
  const may = shell.surface.pages.includes("dead-letters");
  const failed = one.routes.filter((route) => route.status === "failed");
  return h("div", { class: "row" },
    h("button", { type: "button", id: "raw", text: "Raw JSON", onclick: () => show("Raw JSON", h("pre", { text: JSON.stringify(one, null, 2) }), copies(JSON.stringify(one, null, 2), "Copy")) }),
    one.status === "queued" ? h("button", { class: "danger", type: "button", id: "cancel", text: "Cancel", onclick: () => cancel(one, draw).catch(told_) }) : null,
    failed.length && may ? h("button", { class: "primary", type: "button", id: "retry", text: "Try again", onclick: () => retry(one, failed, draw).catch(told_) }) : null);
}

function told_(error) {
  toast(error.message, "bad");
}

async function cancel(one, draw) {
  const waiting = one.routes.filter((route) => route.status === "queued").length;
  const given = await confirm({ title: "Cancel this notification?", act: "Cancel it", danger: true,
    text: `${waiting === 1 ? "Its route that waits is" : `Its ${number(waiting)} routes that wait are`} skipped for good. A call that is under way is not interrupted.` });
  if (!given) return;
  const done = await ask(`/api/v1/notifications/${encodeURIComponent(one.id)}/cancel`, { method: "POST" });
  toast(done.tooLate ? `Cancelled; ${number(done.tooLate)} too late, in a provider's call.` : "Cancelled.");
  await draw();
}

/** Try again, also by another provider; the reason goes into the audit trail. */
async function retry(one, failed, draw) {
  const channels = new Set(failed.map((route) => route.channel));
  const { items } = await ask("/api/v1/admin/providers").catch(() => ({ items: [] }));
  // A provider of two of its channels is one choice.
  const able = new Map(items.filter((each) => channels.has(each.channel)).map((each) => [each.provider, each]));
  const others = [...able.values()].map((each) => [each.provider, `${each.provider}${each.state === "closed" ? "" : `, its breaker is ${each.state.replace("_", " ")}`}`]);
  const given = await confirm({ title: "Try again?", act: "Try again", text: "It keeps its id and its history and gets a fresh budget. A provider that you choose is called first, whatever its breaker says.",
    fields: [field("reason", "Reason, for the audit trail", { required: true, maxlength: 1000 }), choice("provider", "By", [["", "the usual order of providers"], ...others])] });
  if (!given) return;
  await ask(`/api/v1/admin/notifications/${encodeURIComponent(one.id)}/retry`, {
    method: "POST", headers: BY_HAND, body: { reason: given.reason, forceProvider: given.provider || null } });
  toast("It is tried again, with a fresh budget.");
  await draw();
}

/** A link to a page that this console has, or else to the notifications that share the value. */
function linked(shell, page, href, filter, text) {
  return h("a", { href: shell.surface.pages.includes(page) ? href : `#/notifications?${new URLSearchParams(filter)}`, text });
}

function facts(one, shell) {
  const shown = [
    ["Id", h("span", { class: "row" }, h("code", { text: one.id }), Object.assign(copies(one.id, "Copy"), { id: "copy-id" }))],
    ["Accepted", when(one.createdAt)],
    ["Person", one.userId && linked(shell, "people", whereIs(one.userId, one.tenantId), { userId: one.userId }, one.userId)],
    ["Template", linked(shell, "templates", `#/templates/${encodeURIComponent(one.templateKey)}`, { templateKey: one.templateKey }, one.templateKey)],
    ["Category", one.category], ["Tenant", one.tenantId], ["Origin", one.serviceOrigin], ["Priority", one.priority], ["Language", one.locale],
    ["Scheduled", one.scheduledFor && when(one.scheduledFor)], ["Expires", one.expiresAt && when(one.expiresAt)],
    ["Trace", one.traceId && h("a", { href: `#/notifications?traceId=${encodeURIComponent(one.traceId)}`, text: one.traceId })],
    ["Correlation", one.correlationId && h("code", { text: one.correlationId })],
  ];
  return card("Request", h("dl", { class: "facts columns" }, shown.filter(([, value]) => value).map(([name, value]) =>
    h("div", {}, h("dt", { text: name }), h("dd", {}, value)))),
  Object.keys(one.data).length ? h("details", { id: "variables" }, h("summary", { text: "Variables" }), h("pre", { text: JSON.stringify(one.data, null, 2) })) : null);
}

/** The routes of a chain as they are tried; what a gate skipped comes last. */
function inOrder(routes) {
  return routes.toSorted((one, other) => (one.step ?? Infinity) - (other.step ?? Infinity) || 0);
}

function told(route, shell, previews) {
  const points = [...route.attempts.map((one) => attempt(one, shell)), ending(route)].filter(Boolean);
  return titled(`${route.channel} to ${route.recipient ?? whom(route)}`, badge(route.status),
    h("div", { class: "story" }, h("ol", { class: "timeline" }, h("li", { class: "dot" }, h("b", { text: "Accepted" }), " ", when(route.createdAt), chain(route)), points),
      route.message ? h("div", {}, h("h3", { text: "As the recipient sees it" }), drawn(route, previews)) : null));
}

/** The message of a route, drawn once. */
function drawn(route, previews) {
  const key = JSON.stringify([route.routeId, route.message]);
  if (!previews.has(key)) previews.set(key, preview(route.channel, route.recipient, route.message, { drawn: true }));
  return previews.get(key);
}

/** A route without an address names its person: email:user:ada. */
function whom(route) {
  return route.routeId.split(":").slice(2).join(":") || route.routeId;
}

function chain(route) {
  return route.step === null ? null : h("div", { class: "quiet", text: `Channel ${number(route.step)} of a chain that ends once the message is ${route.goal}.` });
}

function attempt(one, shell) {
  return h("li", { class: `dot ${one.outcome === "sent" ? "good" : "bad"}` },
    h("b", {}, `Attempt ${one.number} by `, shell.surface.pages.includes("providers") ? h("a", { href: `#/providers/${encodeURIComponent(one.provider)}`, text: one.provider }) : one.provider), " ",
    badge(one.outcome), " ", when(one.startedAt),
    h("div", { class: "quiet", text: `${attempted(one)}. It took ${millis(one.durationMs)}.${one.settled === "applied" ? "" : ` This result was ${one.settled}.`}` }),
    one.error ? h("div", { class: "bad", text: reason(one) }) : null);
}

/** The cause and the error text; a text that begins with the cause is shown alone. */
function reason(one) {
  return !one.classification || one.error.startsWith(`${one.classification}: `) ? one.error : `${one.classification}: ${one.error}`;
}

function ending(route) {
  const found = ENDS.filter(([name]) => route[name]).map(([name, word, mood]) =>
    h("li", { class: `dot ${mood}` }, h("b", { text: word }), " ", when(route[name]), reasonOf(name, route)));
  if (route.waitsFor) found.push(h("li", { class: "dot wait" }, h("b", { text: route.gate === "quiet_hours" ? "Waits for" : "Waits" }), " ", route.waitsFor));
  if (route.nextAttemptAt && !found.length) found.push(h("li", { class: "dot wait" }, h("b", { text: "Next attempt" }), " ", when(route.nextAttemptAt)));
  return found;
}

/** Why a route was given up or skipped, and until when its address is suppressed. */
function reasonOf(name, route) {
  if (!["failedAt", "skippedAt"].includes(name)) return null;
  const by = route.suppression;
  const end = by?.until ? `until ${moment(by.until)}` : "until it is lifted";
  const said = route.lastError ? (by ? `${route.lastError} (${by.kind}), ${end}` : route.lastError) : "";
  return [name === "skippedAt" ? h("div", { text: gated(route) }) : null, said ? h("div", { class: name === "failedAt" ? "bad" : "quiet", text: said }) : null];
}

/** The same request, as far as it is known: what is not in it would let other gates decide. */
function again(one) {
  const { templateKey, userId, tenantId, category, serviceOrigin, data, metadata, priority, isBulk, locale } = one;
  const channels = [...new Set(inOrder(one.routes).map((route) => route.channel))];
  const goal = one.routes.find((route) => route.goal)?.goal;
  // How long each channel of a chain has is not told, and no gate asks.
  const chained = goal ? { until: goal, after: "10m" } : {};
  const to = channels.length > 1 ? { channels, ...chained } : { channel: one.channel, recipient: one.recipient };
  return { templateKey, userId, tenantId, category, serviceOrigin, data, metadata, priority, isBulk, locale, ...to };
}

function why(story) {
  const shown = h("div", {});
  const explain = async () => {
    const found = await ask("/api/v1/notifications/explain", { method: "POST", body: Object.fromEntries(Object.entries(again(story())).filter(([, value]) => value !== null)) });
    fill(shown, h("p", {}, "The same request now: ", badge(found.outcome), found.message ? ` ${found.message}` : ""),
      h("ol", { class: "gates", "aria-label": "Gates" }, found.steps.map((step) => {
        const { name, lines } = explained(step);
        return h("li", {}, h("b", { text: name }), badge(step.verdict === "pass" ? "passed" : step.verdict), h("span", {}, lines.map((line) => h("span", { class: "fact", text: line }))));
      })));
  };
  return card("What would happen now", h("p", { class: "quiet", text: "Runs the gates of a send for the same request; writes and sends nothing." }),
    h("button", { type: "button", id: "explain", text: "Explain", onclick: () => explain().catch(told_) }), shown);
}
