/** Search notifications: one box, chips, saved views, actions on many, export. The story of one is in story.js. */

import { ask } from "../lib/api.js";
import * as bulk from "../lib/bulk.js";
import { badge, counted, fill, h, head, loading, num, say, table, toast, when } from "../lib/dom.js";
import { download } from "../lib/export.js";
import { field, given, newest, none, pager, recall, refill, soon, standing } from "../lib/forms.js";
import { inUtc, number } from "../lib/format.js";
import { CHOOSING } from "../lib/keys.js";
import { views } from "../lib/views.js";
import { story } from "./story.js";

// What was delivered after a redrive keeps the error of its first life; it is no news any more.
const REACHED = new Set(["delivered", "opened", "sent"]);
const PAGE_SIZE = 50;
const PATH = "/api/v1/notifications";
const STATUSES = ["queued", "sent", "delivered", "opened", "failed", "skipped"];
const FURTHER = [["userId", "Person"], ["recipient", "Address"], ["templateKey", "Template"], ["traceId", "Trace"], ["serviceOrigin", "Origin"]];
/** For those who see every tenant. */
const OF_OPERATORS = [["tenantId", "Tenant"]];
const TIMES = [["acceptedAfter", "Accepted after"], ["acceptedBefore", "and before"]];
const CAPPED = 1000;
const ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const COLUMNS = {
  id: (one) => one.id, createdAt: (one) => one.createdAt, templateKey: (one) => one.templateKey, userId: (one) => one.userId, recipient: (one) => one.recipient,
  channel: (one) => one.channel, status: (one) => one.status, attempts: (one) => one.attemptCount, error: (one) => one.lastError, tenantId: (one) => one.tenantId,
};

export async function render(main, shell, [id]) {
  return id ? story(main, shell, id) : list(main, shell);
}

async function list(main, shell) {
  const { cursor: _, ...asked } = shell.query;
  const state = Object.assign(standing(shell), { asked, chosen: new Map(), found: null, acting: new Set(), asking: newest() });
  const places = { chips: h("div", { class: "page" }), results: h("div", {}, loading(8)), acts: h("div", { class: "row" }) };
  const draw = async () => {
    const still = state.asking();
    const found = await ask(PATH, { query: { ...wire(state.asked), cursor: state.cursor, count: state.cursor ? undefined : "capped", pageSize: PAGE_SIZE } });
    if (!still()) return;
    state.found = found;
    refill(places.results, found.items.length ? rows(found.items, state, acts) : nothing(state), pager({ ...found, totalCount: null }, state, turn));
    acts();
  };
  const acts = () => refill(places.acts, actions(state, shell, again));
  const again = () => { state.chosen.clear(); return draw(); };
  const turn = () => draw().catch(told);
  const search = (asked) => {
    state.asked = asked;
    state.chosen.clear();
    shell.keep(asked);
    state.go();
    recall(fresh(form), asked);
    chips();
    return draw().then(() => say(counted(state.found.items.length, state.found.nextCursor))).catch(told);
  };
  const form = searching(state, shell, search);
  const chips = () => refill(places.chips, filters(state, form, shell, search),
    views("notifications", state.asked, search, chips));
  recall(form, state.asked);
  chips();
  fill(main, h("div", { class: "page" }, head("Notifications"),
    h("section", { class: "card search" }, form, places.chips), h("section", { class: "card" }, places.acts, places.results)));
  const later = soon(() => { if (!state.cursor && !state.chosen.size) draw().catch(() => {}); }, 1500);
  // Subscribe before the first request, so that no event is missed.
  shell.onTick(later);
  shell.keys(CHOOSING);
  await draw();
  // No tick tells what other processes do.
  const poll = setInterval(later, 10_000);
  return () => {
    clearInterval(poll);
    later.stop();
  };
}

function told(error) {
  toast(error.message, "bad");
}

function fresh(form) {
  form.reset();
  return form;
}

/** What the address says, as the API takes it. */
function wire(asked) {
  const made = { ...asked };
  for (const [name] of TIMES) if (made[name]) made[name] = inUtc(made[name]);
  return made;
}

function searching(state, shell, search) {
  const words = shell.surface.pages.includes("overview") ? [...FURTHER, ...OF_OPERATORS] : FURTHER;
  const further = h("details", { open: [...words, ...TIMES].some(([name]) => state.asked[name]) }, h("summary", { text: "More filters" }),
    h("div", { class: "more" }, words.map(([name, label]) => field(name, label)), TIMES.map(([name, label]) => field(name, label, { type: "datetime-local" }))));
  return h("form", { role: "search", class: "find", onsubmit: (event) => {
    event.preventDefault();
    const asked = whole(event.target, state);
    if (ID.test(asked.q ?? "")) return toStory(asked, shell, search);
    return search(asked);
  } }, h("div", { class: "row find-row" }, h("input", { type: "search", name: "q", id: "f-q", class: "grow", "aria-label": "Search", autocomplete: "off", spellcheck: "false",
    placeholder: "Id, person, trace, beginning of an address or template, words of an error" }),
  h("button", { class: "primary", text: "Search" })), further);
}

/** An id leads to its story at once; a person may have an id of the same shape. */
function toStory(asked, shell, search) {
  return ask(`${PATH}/${encodeURIComponent(asked.q)}`).then(() => shell.go(`#/notifications/${encodeURIComponent(asked.q)}`), () => search(asked));
}

/** What the form holds, sent or not, with the chips that are pressed. */
function whole(form, { asked }) {
  const beside = Object.entries(asked).filter(([name]) => !(name in form.elements));
  return { ...Object.fromEntries(beside), ...given(form) };
}

/** Chips of states and channels; a pressed one filters. */
function filters(state, form, shell, search) {
  const { asked } = state;
  const chip = (name, value) => h("button", { type: "button", class: "chip", id: `${name}-${value}`, "aria-pressed": String(asked[name] === value), text: value,
    onclick: () => {
      const { [name]: now, ...rest } = whole(form, state);
      return search(now === value ? rest : { ...rest, [name]: value });
    } });
  const set = Object.keys(asked).length;
  return h("div", { class: "chips" }, h("span", { class: "chips", role: "group", "aria-label": "Status" }, STATUSES.map((word) => chip("status", word))),
    h("span", { class: "chips", role: "group", "aria-label": "Channel" }, shell.surface.channels.map((word) => chip("channel", word))),
    set ? h("button", { type: "button", class: "ghost small", id: "clear", text: "Clear", onclick: () => search({}) }) : null);
}

function nothing(state) {
  const filtered = Object.keys(state.asked).length;
  return none(state, filtered ? "Nothing matches. Remove a filter to find more." : "Nothing has been accepted yet.");
}

function rows(items, state, acts) {
  const box = (one) => {
    const made = h("input", { type: "checkbox", id: `choose-${one.id}`, "aria-label": `Choose ${one.templateKey} to ${one.userId ?? one.recipient}` });
    made.checked = state.chosen.has(one.id);
    made.onchange = () => {
      if (made.checked) state.chosen.set(one.id, one);
      else state.chosen.delete(one.id);
      acts();
    };
    return made;
  };
  const made = table("Notifications", ["", "accepted", "what", { name: "to", cut: true }, "channel", "status", num("attempts"), { name: "error", cut: true }], items.map((one) => {
    const href = `#/notifications/${encodeURIComponent(one.id)}`;
    return { href, cells: [box(one), when(one.createdAt), h("a", { href, text: one.templateKey }), one.userId ?? one.recipient, one.channel, stateOf(one),
      number(one.attemptCount), why(one)] };
  }), { brief: true });
  const all = h("input", { type: "checkbox", "aria-label": "Choose all of this page" });
  all.onchange = () => { for (const each of made.querySelectorAll("tbody input")) if (each.checked !== all.checked) each.click(); };
  made.querySelector("th").append(all);
  return made;
}

/** Why it has not arrived: its error, and for what it waits. */
function why(one) {
  if (REACHED.has(one.status)) return "";
  const waits = one.routes?.find((route) => route.waitsFor)?.waitsFor;
  return [one.lastError, waits && `waits: ${waits}`].filter(Boolean).join("; ");
}

/** What waits for its time says which. */
function stateOf(one) {
  if (one.status !== "queued" || !one.scheduledFor || Date.parse(one.scheduledFor) < Date.now()) return badge(one.status);
  return h("span", { class: "row whole" }, badge(one.status), h("span", { class: "quiet" }, when(one.scheduledFor)));
}

/** What can be done with those chosen, or with all that match; nothing is done before it was counted. */
function actions(state, shell, again) {
  const chosen = [...state.chosen.values()];
  const may = shell.surface.pages.includes("dead-letters");
  const fits = chosen.length ? { cancel: true, redrive: true } : bulk.fitting(state.asked);
  const whom = chosen.length ? `${number(chosen.length)} chosen` : "all that match";
  const act = (id, text, call) => h("button", { type: "button", id, text, "aria-disabled": String(state.acting.has(id)), onclick: () => once(id, () => call(chosen, wire(state.asked), again)) });
  // An export takes many pages: it says that it is under way, and a second click does not begin it again.
  const once = async (id, call) => {
    if (state.acting.has(id)) return;
    state.acting.add(id);
    document.getElementById(id)?.setAttribute("aria-disabled", "true");
    await Promise.resolve().then(call).catch(told);
    state.acting.delete(id);
    document.getElementById(id)?.setAttribute("aria-disabled", "false");
  };
  const total = state.found?.totalCount ?? null;
  const count = total === null ? h("span", {}) : h("span", { class: "quiet", text: total >= CAPPED ? `${number(CAPPED)} or more` : `${number(total)} in all` });
  return [count, h("span", { class: "grow" }), may && fits.cancel ? act("bulk-cancel", `Cancel ${whom}`, bulk.cancel) : null, may && fits.redrive ? act("bulk-redrive", `Try ${whom} again`, bulk.redrive) : null,
    state.found?.items.length ? [act("export-csv", "CSV", () => download("csv", PATH, wire(state.asked), COLUMNS)), act("export-ndjson", "NDJSON", () => download("ndjson", PATH, wire(state.asked), COLUMNS))] : null];
}
