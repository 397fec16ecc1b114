/** The first page: what needs attention, then throughput, then providers. */

import { ask } from "../lib/api.js";
import { bar, lines } from "../lib/charts.js";
import { badge, card, empty, fill, h, head, table, toast } from "../lib/dom.js";
import { newest, refill } from "../lib/forms.js";
import { millis, moment, number, percent, span } from "../lib/format.js";

const STEPS = 60;
const LATE_SECONDS = 60;
const WORDS = { route_suppressed: "skipped", address_suppressed: "suppressed" };

export async function render(main, shell) {
  const page = h("div", { class: "page" });
  const asking = newest();
  const draw = async () => {
    const still = asking();
    const [overview, providers, targets] = await Promise.all([
      ask("/api/v1/console/overview"), ask("/api/v1/admin/providers").catch(() => ({ items: [] })),
      // Only operators may see them: an endpoint may belong to any tenant.
      ask("/api/v1/admin/targets").catch(() => ({ items: [] }))]);
    if (!still()) return;
    refill(page, head("Overview", badge(shell.surface.blueprint)), human(overview, providers.items, targets.items), figures(overview),
      h("div", { class: "two" }, throughput(overview.steps), latency(overview.steps)),
      h("div", { class: "two" }, lanes(overview.lanes), carriers(providers.items)), receivers(targets.items, draw), lately(overview.recent));
  };
  await draw();
  fill(main, page);
  let waiting = null;
  const soon = () => { waiting ??= setTimeout(() => { waiting = null; draw().catch(() => {}); }, 1000); };
  shell.onTick(soon);
  const poll = setInterval(soon, 10_000);
  return () => { clearInterval(poll); clearTimeout(waiting); };
}

function human(overview, providers, targets) {
  const notes = overview.failing.map((one) => h("a", { id: `failing-${one.channel}-${one.provider}`, href: `#/dead-letters?channel=${encodeURIComponent(one.channel)}` },
    `${one.channel} fails: ${percent(one.failed / one.calls)} of ${number(one.calls)} calls to ${one.provider} in ${span(one.seconds)}${one.error ? `, the newest with “${one.error}”` : ""}`));
  if (overview.deadLetters) {
    notes.push(h("a", { id: "to-dead-letters", href: "#/dead-letters" },
      overview.deadLetters === 1 ? "1 dead letter waits for a decision" : `${number(overview.deadLetters)} dead letters wait for a decision`));
  }
  for (const one of providers.filter((each) => each.state !== "closed")) {
    notes.push(h("span", {}, `The breaker of ${one.provider} (${one.channel}) is ${one.state.replace("_", " ")}`));
  }
  for (const one of targets.filter((each) => each.state === "disabled")) {
    notes.push(h("span", {}, `${one.endpoint} (${one.provider}) fails since ${moment(one.failingSince)} and is disabled`));
  }
  for (const lane of overview.lanes.filter((each) => each.oldestDueSeconds > LATE_SECONDS)) {
    notes.push(h("span", {}, `${number(lane.due)} ${lane.due === 1 ? "route waits" : "routes wait"} in ${lane.name}, the oldest for ${span(lane.oldestDueSeconds)}`));
  }
  return h("section", { class: `card human ${notes.length ? "needed" : "calm"}` },
    h("h2", { text: "Needs attention" }),
    notes.length ? h("ul", {}, notes.map((note) => h("li", {}, note))) : h("p", { text: "Nothing. Every accepted notification is delivered, skipped or on its way." }));
}

function figures(overview) {
  const routes = overview.routes;
  const queued = "#/notifications?status=queued";
  const shown = [
    ["Delivered", routes.published, "good", "#/notifications?status=delivered"], ["Due now", overview.due, "wait", queued],
    ["Under way", overview.leased, "", queued], ["Scheduled", overview.scheduled, "", queued], ["Retrying", routes.failed, "wait", queued],
    ["Dead letters", routes.dead_letter, "bad", "#/dead-letters"], ["Skipped", routes.skipped, "", "#/notifications?status=skipped"],
  ];
  return h("dl", { class: "figures" }, shown.map(([name, value, mood, href]) =>
    h("div", { class: value ? mood : "" }, h("dt", { text: name }), h("dd", {}, h("a", { href, id: `figure-${name}`, text: number(value) })))));
}

/** The last ten minutes, quiet steps included. */
function filled(steps) {
  const now = Math.floor(Date.now() / 10_000) * 10;
  const known = new Map(steps.map((step) => [step.at, step]));
  return Array.from({ length: STEPS }, (_, at) => {
    const time = now - (STEPS - 1 - at) * 10;
    return known.get(time) ?? { at: time, accepted: 0, delivered: 0, retried: 0, failed: 0, p50Ms: null, p99Ms: null };
  });
}

function throughput(steps) {
  const shown = filled(steps);
  const rate = (name) => shown.map((step) => step[name] / 10);
  const say = (value) => `${value === null ? "–" : value < 10 ? value.toFixed(1) : Math.round(value)}/s`;
  return card("Throughput", lines("Accepted, delivered and failed a second over ten minutes", [
    { name: "accepted", mood: "plain", values: rate("accepted") }, { name: "delivered", mood: "good", values: rate("delivered") },
    { name: "retried", mood: "wait", values: rate("retried") }, { name: "failed", mood: "bad", values: rate("failed") },
  ], shown.map((step) => step.at), say));
}

function latency(steps) {
  const shown = filled(steps);
  return card("Time of one call", lines("Median and 99th percentile of calls over ten minutes", [
    { name: "p50", mood: "plain", values: shown.map((step) => step.p50Ms) },
    { name: "p99", mood: "wait", values: shown.map((step) => step.p99Ms) },
  ], shown.map((step) => step.at), millis));
}

function lanes(found) {
  if (!found.length) return card("Lanes", empty("Nothing has been accepted yet."));
  return card("Lanes", table("Lanes", ["lane", "due", "under way", "oldest"], found.map((lane) =>
    [lane.name, number(lane.due), number(lane.leased), span(lane.oldestDueSeconds)])));
}

function carriers(found) {
  if (!found.length) return card("Providers", empty("This process uses no provider."));
  return card("Providers", table("Providers", ["channel", "provider", "breaker", "errors", "share"], found.map((one) => [
    one.channel, one.provider, badge(one.state), one.attempts ? percent(one.failures / one.attempts) : "–",
    h("span", { class: "shared" }, bar(one.share, one.state === "closed" ? "good" : "bad"), percent(one.share))])));
}

/** Endpoints that calls are kept from, and every rate that calls keep; nothing where there is none. */
function receivers(found, draw) {
  if (!found.length) return null;
  return card("Endpoints and rates", table("Endpoints and rates", ["provider", "endpoint", "breaker", "failing since", "next probe", "rate", ""],
    found.map((one) => [one.provider ?? `tenant ${one.tenantId}`, one.endpoint ?? "", badge(one.state),
      one.failingSince ? moment(one.failingSince) : "", one.nextProbeAt ? moment(one.nextProbeAt) : "", pace(one),
      one.state === "closed" ? "" : h("button", { id: `enable-${one.provider}-${one.endpoint}`, type: "button", onclick: () => enable(one, draw) }, "Enable")])));
}

function pace(one) {
  const rate = one.perSecond === null ? "" : `${one.perSecond}/s`;
  return one.pausedUntil ? `${rate} paused until ${moment(one.pausedUntil)}`.trim() : rate;
}

async function enable(one, draw) {
  try {
    await ask("/api/v1/admin/targets/enable", {
      method: "POST", headers: { "X-Admin-Override": "true" },
      body: { provider: one.provider, endpoint: one.endpoint, reason: "enabled in the console" } });
    toast(`${one.endpoint} is called again`);
    await draw();
  } catch (error) {
    toast(error.message, "bad");
  }
}

function lately(recent) {
  if (!recent.length) return card("Recent events", empty("No failure, no open breaker and no error in this process."));
  return card("Recent events", table("Recent events", ["when", "what", "where", "why"], recent.slice(0, 12).map((one) => [
    moment(one.at), badge(one.verdict ?? one.after ?? WORDS[one.type] ?? one.type), one.notification_id
      // Several attempts of one notification have the same link: their times make them distinct.
      ? h("a", { id: `lately-${one.at}-${one.notification_id}`, href: `#/notifications/${one.notification_id}` }, one.provider ? `${one.channel} by ${one.provider}` : one.channel)
      : one.endpoint ?? one.provider ?? one.where,
    one.error ?? (one.before ? `was ${one.before}` : one.type in WORDS ? held(one) : "")])));
}

/** Why an address gets nothing, and until when. */
function held(one) {
  const end = one.type === "route_suppressed" ? one.until_ms && moment(one.until_ms / 1000) : one.seconds && span(one.seconds);
  const until = one.type === "route_suppressed" ? "until" : "for";
  return `the address is suppressed, ${one.kind}, ${end ? `${until} ${end}` : "until it is lifted"}`;
}
