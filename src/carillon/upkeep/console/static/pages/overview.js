/** The first page: a verdict, tiles that lead to their lists, and what the ledger says about a time. */

import { ask } from "../lib/api.js";
import { calling } from "../lib/calling.js";
import { bar, chart } from "../lib/charts.js";
import { badge, card, empty, fill, h, head, loading, num, table, titled, toast, when } from "../lib/dom.js";
import { newest, refill } from "../lib/forms.js";
import { inUtc, local, millis, moment, number, percent, sentence, span } from "../lib/format.js";
import { lately } from "../lib/recent.js";
import { unknown, verdict } from "../lib/verdict.js";

const HOUR = 3_600_000;
const RANGES = { "1h": ["1 h", HOUR], "24h": ["24 h", 24 * HOUR], "7d": ["7 d", 168 * HOUR] };
const DIMENSIONS = ["channel", "provider", "template", "tenant"];
const FAILING = 0.2;
const PATIENCE_MS = 300;
const MOODS = { breaker_open: "bad", breaker_closed: "good" };

export async function render(main, shell) {
  const state = chosen(shell.query);
  const places = { verdict: h("div", {}), figures: h("div", {}), groups: h("div", {}, card("What ended in this time", loading())), bottom: h("div", { class: "page" }), when: h("div", { class: "row" }) };
  const charts = { ended: chart("Accepted, delivered, failed and skipped over the time"), calls: chart("Average and slowest call that delivered, over the time") };
  const [asking, charting] = [newest(), newest()];
  let known = null;
  let counting = null;
  const cleared = (sentence) => { for (const one of Object.values(charts)) one.clear(sentence); };
  const draw = async () => {
    const still = asking();
    const [drawn, about] = [charting(), JSON.stringify(state)];
    // Answers may overtake one another, and another time may have been chosen meanwhile.
    const due = () => drawn() && JSON.stringify(state) === about;
    const charted = ask("/api/v1/console/history", { query: asked(state) });
    // What fails below must not leave this without anybody who listens.
    charted.catch(() => {});
    // Without the page Providers this process serves no list of them. Only operators may see targets: an endpoint may belong to any tenant.
    const listed = (path) => (shell.surface.pages.includes("providers") ? ask(path).catch(() => ({ items: [] })) : { items: [] });
    const [overview, providers, targets] = await Promise.all([ask("/api/v1/console/overview"), listed("/api/v1/admin/providers"), listed("/api/v1/admin/targets")]);
    if (!still()) return;
    const top = (history) => refill(places.figures, figures(overview, history, state, shell.surface.pages));
    refill(places.verdict, verdict(overview.attention, shell.surface.pages));
    // A long time in a large ledger takes a moment; the verdict does not wait for it.
    top(known);
    charted.then((history) => {
      if (!due()) return;
      clearTimeout(counting);
      known = history;
      top(history);
      plot(charts, history);
      refill(places.groups, groups(history, state, pick));
    }, (error) => {
      // Where the server is away, a bar above the page says so, and the charts are those of before.
      if (!due() || error.status === 0 || error.status >= 500) return;
      clearTimeout(counting);
      known = { refused: true };
      top(known);
      cleared("No chart.");
      refill(places.groups, card("What ended in this time", empty(sentence(error.message))));
    });
    // Where this process lists no providers, it still uses some.
    const beside = shell.surface.pages.includes("providers") ? h("div", { class: "two" }, lanes(overview.lanes), carriers(providers.items)) : lanes(overview.lanes);
    refill(places.bottom, beside, receivers(targets.items, draw),
      card("Recent events", overview.recent.length ? lately(overview.recent, 8, shell.surface.pages) : empty("No failure, no open breaker and no error in this process.")));
  };
  const choose = (change, typed = false) => {
    Object.assign(state, change);
    // The figures of another time would stand there under the name of this one; where counting is fast, nothing flickers.
    known = null;
    clearTimeout(counting);
    counting = setTimeout(() => cleared("Counting…"), PATIENCE_MS);
    shell.keep(state.range === "1h" && state.by === "channel" && !state.name ? {} : state);
    // A date is typed in parts: the field must stay until the last of them.
    if (!typed) refill(places.when, times(state, choose));
    return draw().catch((error) => toast(error.message, "bad"));
  };
  const pick = (by, name) => choose({ by, name });
  fill(places.when, times(state, choose));
  await draw();
  fill(main, h("div", { class: "page" }, head("Overview", badge(shell.surface.blueprint)), places.verdict, places.figures,
    h("div", { class: "row" }, places.when), h("div", { class: "two" }, card("Throughput", charts.ended), card("Time of one call", charts.calls)),
    places.groups, places.bottom));
  // The charts know their width only now.
  if (!known?.refused) plot(charts, known);
  let waiting = null;
  // The verdict of an hour ago must not stand there in green.
  const sick = (error) => refill(places.verdict, unknown(error));
  const soon = () => { waiting ??= setTimeout(() => { waiting = null; draw().catch(sick); }, 1000); };
  shell.onTick(soon);
  shell.keys({ 1: ["the last hour", () => choose({ range: "1h" })], 2: ["the last day", () => choose({ range: "24h" })], 3: ["the last week", () => choose({ range: "7d" })] });
  const poll = setInterval(soon, 10_000);
  return () => { clearInterval(poll); clearTimeout(waiting); clearTimeout(counting); };
}

function chosen(query) {
  const { range = "1h", after = "", before = "" } = query;
  // A time of one's own has a beginning.
  return { range: range === "custom" && isNaN(new Date(after)) ? "1h" : range, after, before: isNaN(new Date(before)) ? "" : before, by: DIMENSIONS.includes(query.by) ? query.by : "channel", name: query.name ?? "" };
}

/** What the charts ask for. */
function asked(state) {
  const of = { by: state.by, name: state.name === "(none)" ? undefined : state.name };
  if (state.range !== "custom") return { ...of, after: new Date(Date.now() - (RANGES[state.range] ?? RANGES["1h"])[1]).toISOString() };
  return { ...of, after: inUtc(state.after), before: state.before ? inUtc(state.before) : undefined };
}

/** The time and what to show of it. */
function times(state, choose) {
  const one = (range, text) => h("button", { type: "button", id: `range-${range}`, text, "aria-pressed": String(state.range === range), onclick: () => choose({ range }) });
  // Nothing is asked while there is no beginning.
  const typed = (name) => (event) => { if (event.target.value || name === "before") choose({ [name]: inUtc(event.target.value) }, true); };
  const custom = state.range === "custom" ? [
    h("input", { type: "datetime-local", id: "range-after", "aria-label": "From", value: local(state.after), onchange: typed("after") }), "to",
    h("input", { type: "datetime-local", id: "range-before", "aria-label": "Until", value: local(state.before), onchange: typed("before") })] : null;
  return [h("div", { class: "segments", role: "group", "aria-label": "Time" }, Object.entries(RANGES).map(([range, [text]]) => one(range, text)),
    h("button", { type: "button", id: "range-custom", text: "Custom", "aria-pressed": String(state.range === "custom"),
      onclick: () => choose({ range: "custom", after: state.after || inUtc(Date.now() - HOUR), before: state.before || inUtc(Date.now()) }) })), custom,
  state.name ? h("button", { type: "button", class: "chip", "aria-pressed": "true", id: "no-name", "aria-label": `Only ${state.by} ${state.name}: show all`, onclick: () => choose({ name: "" }) }, `${state.by} ${state.name}`, " ✕") : null];
}

function plot(charts, history) {
  if (!history) return;
  const marks = history.marks.map((mark) => ({ at: mark.at, text: mark.text, mood: MOODS[mark.kind] }));
  const shared = { times: history.times, step: history.stepSeconds, marks };
  charts.ended.update({ ...shared, sum: true, series: [
    { name: "delivered", mood: "good", kind: "bar", values: history.delivered }, { name: "failed", mood: "bad", kind: "bar", values: history.failed },
    { name: "skipped", mood: "dull", kind: "bar", values: history.skipped }, { name: "accepted", mood: "plain", values: history.accepted }] });
  charts.calls.update({ ...shared, say: millis, series: [
    { name: "average", mood: "plain", values: history.averageMs, whole: average(history.averageMs, history.delivered) },
    { name: "slowest", mood: "wait", values: history.slowestMs, whole: slowest(history.slowestMs) }] });
}

/** Of the whole time: a part of it counts by what it delivered. */
function average(values, weights) {
  const known = values.map((value, at) => [value, weights[at] || 1]).filter(([value]) => value !== null);
  const weight = known.reduce((sum, [, each]) => sum + each, 0);
  return weight ? known.reduce((sum, [value, each]) => sum + value * each, 0) / weight : null;
}

function slowest(values) {
  const known = values.filter((value) => value !== null);
  return known.length ? Math.max(...known) : null;
}

/** Tiles: the whole ledger, and how the time compares with as long a time before. */
function figures(overview, history, state, pages) {
  const routes = overview.routes;
  const queued = "#/notifications?status=queued";
  const within = RANGES[state.range]?.[0] ?? "this time";
  const delta = (name) => {
    if (!history) return "…";
    if (history.refused) return "";
    const now = history.totals[name];
    const before = history.before[name];
    if (!now && !before) return `none in ${within}`;
    if (before && now > 10 * before) return `${number(now)} in ${within}, ${number(Math.round(now / before))} times as many`;
    const change = before ? `${now >= before ? "+" : "−"}${percent(Math.abs(now - before) / before).replace(" ", "\u00a0")}` : "none before";
    return `${number(now)} in ${within}, ${change}`;
  };
  const shown = [
    ["Delivered", routes.published, "good", "#/notifications?status=delivered", delta("delivered")],
    ["Due now", overview.due, "wait", queued, "not yet called"],
    ["Under way", overview.leased, "", queued, "in a provider's call"],
    ["Scheduled", overview.scheduled, "", queued, "for later, or held"],
    ["Retrying", routes.failed, "wait", queued, "after a failure"],
    ["Dead letters", routes.dead_letter, "bad", "#/dead-letters", delta("failed")],
    ["Skipped", routes.skipped, "", "#/notifications?status=skipped", delta("skipped")],
  ];
  return h("dl", { class: "figures" }, shown.map(([name, value, mood, href, said]) =>
    h("div", {}, h("dt", { text: name }), h("dd", { class: value ? mood : "" }, leads(pages, href) ? h("a", { href, id: `figure-${name}`, text: number(value) }) : number(value)), h("dd", { class: "delta", text: said }))));
}

/** Whether this process has the page of an address. */
function leads(pages, href) {
  return pages.includes(href.slice(2).split("?")[0]);
}

/** By channel, provider, template or tenant; a click shows the charts of one. */
function groups(history, state, pick) {
  const switcher = h("div", { class: "segments", role: "group", "aria-label": "Group by" }, DIMENSIONS.map((by) =>
    h("button", { type: "button", id: `by-${by}`, text: by, "aria-pressed": String(state.by === by), onclick: () => pick(by, "") })));
  const rows = history.groups.map((one) => {
    const ended = one.delivered + one.failed;
    return [h("button", { type: "button", class: "chip", id: `group-${one.name}`, "aria-pressed": String(state.name !== "" && state.name === one.name), disabled: !one.name,
      onclick: () => pick(state.by, state.name === one.name ? "" : one.name), text: one.name || "none" }),
    number(one.delivered), h("span", { class: one.failed ? "bad" : "", text: number(one.failed) }), number(one.skipped),
    h("span", { class: "shared" }, bar(ended ? one.failed / ended : 0, "bad"), ended ? percent(one.failed / ended) : "–"), millis(one.averageMs)];
  });
  return titled("What ended in this time", switcher, rows.length
    ? h("div", { class: "slim" }, table("What ended", [state.by, num("delivered"), num("failed"), num("skipped"), "failure rate", num("average call")], rows))
    : empty("Nothing ended in this time."));
}

function lanes(found) {
  if (!found.length) return card("Lanes", empty("Nothing has been accepted yet."));
  return card("Lanes", h("div", { class: "slim" }, table("Lanes", ["lane", num("due"), num("under way"), num("oldest")], found.map((lane) =>
    [lane.name, number(lane.due), number(lane.leased), span(lane.oldestDueSeconds)]))));
}

function carriers(found) {
  if (!found.length) return card("Providers", empty("This process uses no provider."));
  return card("Providers", h("div", { class: "slim" }, table("Providers", ["channel", "provider", "breaker", num("failed"), "share of the channel"], found.map((one) => [
    one.channel, one.provider, badge(one.state), failed(one), h("span", { class: "shared" }, bar(one.share), percent(one.share))]))));
}

function failed(one) {
  const share = one.attempts ? (one.failures + one.refusals) / one.attempts : null;
  return h("span", { class: share > FAILING ? "bad whole" : "whole", text: percent(share) });
}

/** Endpoints that calls are kept from, and every rate that calls keep; nothing where there is none. */
function receivers(all, draw) {
  const found = all.filter((one) => one.state !== "closed" || one.perSecond !== null || one.pausedUntil);
  if (!found.length) return null;
  return card("Endpoints and rates", table("Endpoints and rates", ["provider", "endpoint", "breaker", "failing since", "next probe", "rate", ""],
    found.map((one) => [one.provider ?? `tenant ${one.tenantId}`, one.endpoint ?? "", badge(one.state),
      one.failingSince ? when(one.failingSince) : "", one.nextProbeAt ? when(one.nextProbeAt) : "", pace(one),
      one.state === "closed" || !one.endpoint ? "" : calling(one, draw)]), { cards: true }));
}

function pace(one) {
  const rate = one.perSecond === null ? "" : `${one.perSecond}/s`;
  return one.pausedUntil ? `${rate} paused until ${moment(one.pausedUntil)}`.trim() : rate;
}
