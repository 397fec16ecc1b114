/** The verdict: what needs attention, the worst first, each in a sentence that leads to its cause. */

import { h } from "./dom.js";
import { many, moment, number, percent, span } from "./format.js";

const LATE_SECONDS = 60;

/**
 * @param {{overview: object, providers: object[], targets: object[], pauses: object[], health: object|null}} seen
 * @returns {{mood: "bad"|"wait", node: Node}[]} the worst first
 */
export function notes({ overview, providers, targets, pauses, health }) {
  return [...engine(health), ...failing(overview, providers), ...breakers(providers, overview), ...late(overview), ...paused(pauses), ...disabled(targets), ...dead(overview)]
    .sort((one, other) => (one.mood === "bad" ? 0 : 1) - (other.mood === "bad" ? 0 : 1));
}

/** The card with the verdict as its heading and the rest below. */
export function verdict(seen) {
  const found = notes(seen);
  const [first, ...rest] = found;
  const state = found.length ? (first.mood === "bad" ? "needed" : "watch") : "calm";
  return h("section", { class: `card human ${state}`, "aria-label": "Verdict" },
    h("h2", {}, first ? first.node : "Nothing needs attention"),
    rest.length ? h("ul", {}, rest.map((note) => h("li", { class: note.mood }, h("span", {}, note.node)))) : null,
    found.length ? null : h("p", { text: calm(seen.overview) }));
}

/** The card where the ledger cannot be asked: nothing about the notifications is known. */
export function unknown(error, health) {
  const [first, ...rest] = engine(health);
  const said = error.status ? error.message : "Carillon does not answer.";
  return h("section", { class: "card human needed", "aria-label": "Verdict" }, h("h2", {}, first?.node ?? said.replace(/\.$/, "")),
    rest.length ? h("ul", {}, rest.map((note) => h("li", { class: note.mood }, note.node))) : null,
    h("p", { text: "How notifications fare is not known; the numbers below are old." }));
}

function calm(overview) {
  const waiting = overview.due + overview.scheduled + (overview.routes.failed ?? 0);
  if (!overview.routes.published && !waiting) return "Nothing has been sent yet. Every accepted notification will be delivered, skipped, or shown here.";
  return `Every accepted notification is delivered, skipped or on its way${waiting ? `; ${many(waiting, "route waits", "routes wait")} for ${waiting === 1 ? "its" : "their"} turn` : ""}.`;
}

function engine(health) {
  return Object.entries(health?.checks ?? {}).filter(([, check]) => check?.status && !["ok", "pass", "up", "healthy"].includes(check.status))
    // Open breakers are named one by one below.
    .filter(([name]) => name !== "breakers")
    .map(([name, check]) => ({ mood: "bad", node: h("span", {}, `${name} ${check.status === "degraded" && !check.error ? "is degraded" : "does not answer"}${check.error ? `: ${check.error}` : ""}`) }));
}

/** The link leads to those it has hit: they wait for another attempt, or they were given up. */
function failing(overview, providers) {
  const list = overview.routes.failed ? "notifications?status=queued&channel=" : "dead-letters?channel=";
  return overview.failing.map((one) => {
    const state = providers.find((each) => each.provider === one.provider && each.state !== "closed")?.state;
    return { mood: "bad", node: h("a", { id: `failing-${one.channel}-${one.provider}`, href: `#/${list}${encodeURIComponent(one.channel)}` },
      `${fails(one)}${one.error ? `, the newest with “${one.error}”` : ""}${state ? `; its breaker is ${state.replace("_", " ")}` : ""}`) };
  });
}

/** sms fails: 100 % of 20 calls to north in 5 min */
export function fails(one) {
  return `${one.channel} fails: ${percent(one.failed / one.calls)} of ${number(one.calls)} calls to ${one.provider} in ${span(one.seconds)}`;
}

/** A provider has one breaker, however many channels it serves. Where its calls fail just now, that sentence names it. */
function breakers(providers, overview) {
  const named = new Set(overview.failing.map((one) => one.provider));
  const open = Map.groupBy(providers.filter((one) => one.state !== "closed" && !named.has(one.provider)), (one) => one.provider);
  return [...open].map(([provider, rows]) => {
    const error = rows.find((one) => one.lastError)?.lastError;
    return { mood: rows[0].state === "open" ? "bad" : "wait", node: h("a", { id: `breaker-${provider}`, href: "#/providers" },
      `The breaker of ${provider} (${rows.map((one) => one.channel).join(", ")}) is ${rows[0].state.replace("_", " ")}${error ? `, after “${error}”` : ""}`) };
  });
}

/** A pause that somebody has forgotten looks like an outage. */
function paused(pauses) {
  return pauses.map((one) => ({ mood: "wait", node: h("a", { id: `paused-${one.what}`, href: one.scope === "endpoint" ? "#/endpoints" : "#/providers" },
    `${one.what} is paused by ${one.by} since ${moment(one.since)}: ${one.reason}`) }));
}

function late(overview) {
  return overview.lanes.filter((lane) => lane.oldestDueSeconds > LATE_SECONDS).map((lane) => ({ mood: lane.oldestDueSeconds > 10 * LATE_SECONDS ? "bad" : "wait",
    node: h("a", { id: `late-${lane.name}`, href: "#/notifications?status=queued" },
      `${many(lane.due, "route waits", "routes wait")} in ${lane.name}, the oldest for ${span(lane.oldestDueSeconds)}`) }));
}

function disabled(targets) {
  return targets.filter((one) => one.state === "disabled").map((one) => ({ mood: "wait",
    node: h("a", { id: `disabled-${one.provider}-${one.endpoint}`, href: "#/endpoints" }, `${one.endpoint} (${one.provider}) fails since ${moment(one.failingSince)} and is disabled`) }));
}

function dead(overview) {
  if (!overview.deadLetters) return [];
  return [{ mood: "wait", node: h("a", { id: "to-dead-letters", href: "#/dead-letters" }, `${many(overview.deadLetters, "dead letter waits", "dead letters wait")} for a decision`) }];
}
