/** Search notifications, and show the story of one: routes, attempts, waits and the message. */

import { ask } from "../lib/api.js";
import { badge, card, empty, fill, h, head, table, toast } from "../lib/dom.js";
import { field, given, newest, recall, refill } from "../lib/forms.js";
import { millis, moment, number } from "../lib/format.js";
import { preview } from "../lib/preview.js";

const PAGE_SIZE = 25;
const FILTERS = [
  ["userId", "Person"], ["recipient", "Address"], ["templateKey", "Template"], ["traceId", "Trace"],
];

export async function render(main, shell, [id]) {
  return id ? story(main, shell, id) : list(main, shell);
}

async function list(main, shell) {
  const asked = { page: Number(shell.query.page) || 1 };
  const results = h("div", { "aria-live": "polite" });
  const asking = newest();
  const draw = async () => {
    const still = asking();
    const found = await ask("/api/v1/notifications", { query: { ...asked, pageSize: PAGE_SIZE } });
    if (still()) refill(results, found.items.length ? rows(found) : nothing(asked), pager(found, asked, shell, draw));
  };
  const filters = recall(form(shell, asked, draw), shell.query);
  Object.assign(asked, wanted(filters));
  fill(main, h("div", { class: "page" }, head("Notifications"), card(null, filters), card(null, results)));
  let waiting = null;
  // Subscribe before the first request, so that no event is missed.
  shell.onTick(() => { if (asked.page === 1) waiting ??= setTimeout(() => { waiting = null; draw().catch(() => {}); }, 1500); });
  await draw();
  return () => clearTimeout(waiting);
}

function nothing(asked) {
  const filtered = Object.entries(asked).some(([name, value]) => name !== "page" && value);
  return empty(filtered ? "Nothing matches. Remove a filter to find more." : "Nothing has been accepted yet.");
}

function form(shell, asked, draw) {
  const field = ([name, label]) => h("div", {}, h("label", { for: `f-${name}`, text: label }),
    h("input", { id: `f-${name}`, name, autocomplete: "off", spellcheck: "false" }));
  const choice = (name, label, words) => h("div", {}, h("label", { for: `f-${name}`, text: label }),
    h("select", { id: `f-${name}`, name }, h("option", { value: "", text: "any" }), words.map((word) => h("option", { value: word, text: word }))));
  const number_ = h("div", {}, h("label", { for: "f-id", text: "Id" }), h("input", { id: "f-id", name: "id", autocomplete: "off", spellcheck: "false" }));
  return h("form", { class: "filters", role: "search", onsubmit: (event) => {
    event.preventDefault();
    const id = event.target.elements.id.value.trim();
    if (id) return shell.go(`#/notifications/${encodeURIComponent(id)}`);
    shell.keep(given(event.target));
    for (const name of Object.keys(asked)) delete asked[name];
    Object.assign(asked, wanted(event.target), { page: 1 });
    return draw();
  } }, FILTERS.map(field), number_, choice("channel", "Channel", shell.surface.channels),
  choice("status", "Status", ["queued", "sent", "delivered", "opened", "failed", "skipped"]),
  h("div", {}, h("label", { for: "f-after", text: "Accepted after" }), h("input", { id: "f-after", name: "acceptedAfter", type: "datetime-local" })),
  h("button", { class: "primary", text: "Search" }));
}

/** What the form asks for, as the API takes it. */
function wanted(form) {
  const { id: _, ...found } = given(form);
  if (found.acceptedAfter) found.acceptedAfter = new Date(found.acceptedAfter).toISOString();
  return found;
}

function rows(found) {
  return table("Notifications", ["when", "what", "to", "channel", "status", "attempts"], found.items.map((one) => [
    moment(one.createdAt), h("a", { href: `#/notifications/${one.id}`, text: one.templateKey }), one.userId ?? one.recipient,
    one.channel, badge(one.status), number(one.attemptCount)]));
}

function pager(found, asked, shell, draw) {
  if (found.totalPages < 2) return h("p", { class: "quiet", text: `${number(found.totalCount)} in all` });
  const step = (by) => () => { asked.page += by; shell.keep({ ...shell.query, page: asked.page }); draw(); };
  return h("p", { class: "pager" },
    h("button", { type: "button", text: "Newer", disabled: found.pageNumber <= 1, onclick: step(-1) }),
    h("span", { text: ` page ${number(found.pageNumber)} of ${number(found.totalPages)}, ${number(found.totalCount)} in all ` }),
    h("button", { type: "button", text: "Older", disabled: found.pageNumber >= found.totalPages, onclick: step(1) }));
}

async function story(main, shell, id) {
  const page = h("div", { class: "page" });
  const asking = newest();
  let shown = "";
  const draw = async () => {
    const still = asking();
    const one = await ask(`/api/v1/notifications/${encodeURIComponent(id)}`, { query: { include: "attempts,message" } });
    const now = JSON.stringify(one);
    if (!still() || now === shown) return;
    shown = now;
    refill(page, head(one.templateKey, badge(one.status), one.status === "queued" ? cancel(one, draw) : null),
      facts(one), retrying(one, draw), one.routes.map((route) => told(route)), why(one));
  };
  await draw();
  fill(main, page);
  const poll = setInterval(() => draw().catch(() => {}), 2000);
  shell.onTick(() => draw().catch(() => {}));
  return () => clearInterval(poll);
}

function cancel(one, draw) {
  return h("button", { class: "danger", type: "button", text: "Cancel", onclick: async () => {
    await ask(`/api/v1/notifications/${encodeURIComponent(one.id)}/cancel`, { method: "POST" });
    await draw();
  } });
}

/** Dead letters of this notification can be tried again from here; a reason goes into the audit trail. */
function retrying(one, draw) {
  if (!one.routes.some((route) => route.status === "failed")) return null;
  const act = h("button", { class: "primary", id: "retry", text: "Try again" });
  return card("Given up", h("form", { class: "filters", onsubmit: async (event) => {
    event.preventDefault();
    act.disabled = true;
    try {
      await ask(`/api/v1/admin/notifications/${encodeURIComponent(one.id)}/retry`, {
        method: "POST", headers: { "X-Admin-Override": "true" }, body: { reason: event.target.elements.reason.value.trim() } });
      toast("It is tried again, with a fresh budget.");
      await draw();
    } catch (error) {
      toast(error.message, "bad");
      act.disabled = false;
    }
  } }, field("reason", "Reason", { required: true, value: "tried again in the console", size: 32 }), act));
}

function facts(one) {
  const shown = [["Id", one.id], ["Accepted", moment(one.createdAt)], ["Person", one.userId], ["Tenant", one.tenantId], ["Origin", one.serviceOrigin],
    ["Priority", one.priority], ["Locale", one.locale], ["Scheduled", one.scheduledFor && moment(one.scheduledFor)], ["Trace", one.traceId], ["Correlation", one.correlationId]];
  return card("Request", h("dl", { class: "facts" }, shown.filter(([, value]) => value).map(([name, value]) =>
    [h("dt", { text: name }), h("dd", { text: value })])),
  Object.keys(one.data).length ? h("details", {}, h("summary", { text: "Variables" }), h("pre", { text: JSON.stringify(one.data, null, 2) })) : null);
}

function told(route) {
  const points = [...route.attempts.map(attempt), ending(route)].filter(Boolean);
  return h("section", { class: "card" }, h("h2", {}, `${route.channel} to ${route.recipient ?? route.routeId} `, badge(route.status)),
    h("div", { class: "story" }, h("ol", { class: "timeline" }, h("li", { class: "dot" }, h("b", { text: "Accepted" }), " ", h("time", { text: moment(route.createdAt) })), points),
      route.message ? h("div", {}, h("h3", { text: "As the recipient sees it" }), preview(route.channel, route.recipient, route.message)) : null));
}

function attempt(one) {
  const next = one.nextTryInMs === null ? "" : `, next attempt after ${millis(one.nextTryInMs)}`;
  return h("li", { class: `dot ${one.outcome === "sent" ? "good" : "bad"}` },
    h("b", { text: `Attempt ${one.number} by ${one.provider}` }), " ", badge(one.outcome), " ", h("time", { text: moment(one.startedAt) }),
    h("div", { class: "quiet", text: `${millis(one.durationMs)}, ${one.verdict.replace("_", " ")}${next}${one.settled === "applied" ? "" : `, ${one.settled}`}` }),
    one.error ? h("div", { class: "bad", text: reason(one) }) : null);
}

/** The cause and the error text; a text that begins with the cause is shown alone. */
function reason(one) {
  return !one.classification || one.error.startsWith(`${one.classification}: `) ? one.error : `${one.classification}: ${one.error}`;
}

function ending(route) {
  const ends = [["deliveredAt", "Delivered", "good"], ["openedAt", "Opened", "good"], ["clickedAt", "Clicked", "good"], ["failedAt", "Dead letter", "bad"], ["skippedAt", "Skipped", ""]];
  const found = ends.filter(([name]) => route[name]).map(([name, word, mood]) =>
    h("li", { class: `dot ${mood}` }, h("b", { text: word }), " ", h("time", { text: moment(route[name]) }), reasonOf(name, route)));
  if (route.waitsFor) found.push(h("li", { class: "dot wait" }, h("b", { text: "Waits" }), " ", route.waitsFor));
  if (route.nextAttemptAt && !found.length) found.push(h("li", { class: "dot wait" }, h("b", { text: "Next attempt" }), " ", h("time", { text: moment(route.nextAttemptAt) })));
  return found;
}

/** Why a route was given up or skipped, and until when its address is suppressed. */
function reasonOf(name, route) {
  if (!route.lastError || !["failedAt", "skippedAt"].includes(name)) return null;
  const by = route.suppression;
  const end = by?.until ? `until ${moment(by.until)}` : "until it is lifted";
  return h("div", { class: name === "failedAt" ? "bad" : "quiet", text: by ? `${route.lastError} (${by.kind}), ${end}` : route.lastError });
}

function why(one) {
  const shown = h("div", {});
  const explain = async () => {
    const body = { templateKey: one.templateKey, channel: one.channel, recipient: one.recipient, data: one.data, priority: one.priority, isBulk: one.isBulk };
    if (one.userId) body.userId = one.userId;
    if (one.locale) body.locale = one.locale;
    const found = await ask("/api/v1/notifications/explain", { method: "POST", body: Object.fromEntries(Object.entries(body).filter(([, value]) => value !== null)) });
    fill(shown, h("p", {}, "The same request now: ", badge(found.outcome), found.message ? ` ${found.message}` : ""),
      table("Gates", ["gate", "verdict", "details"], found.steps.map((step) => [step.step, badge(step.verdict), h("code", { text: JSON.stringify(step.detail) })])));
  };
  return card("What would happen now", h("p", { class: "quiet", text: "Runs the gates of a send for the same request; writes and sends nothing." }),
    h("button", { type: "button", text: "Explain", onclick: explain }), shown);
}
