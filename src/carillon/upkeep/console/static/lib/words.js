/** What the ledger's words mean, in sentences. */

import { moment, number, span } from "./format.js";

const OUTCOMES = {
  sent: "The provider accepted it", unavailable: "The provider failed", refused: "The provider refused it", throttled: "The provider asked to wait",
  unknown: "No answer came: it may have arrived", rejected: "The provider refused it for good",
};
const VERDICTS = {
  finish: "done", retry: "tried again", fail_over: "the next provider takes over", bury: "given up, a dead letter", defer: "put off without counting", skip: "skipped",
};
const GATES = {
  expired: "It expired before it could be sent.", collapsed: "A newer notification took its place.", category: "The person does not want this category on this channel.",
  preferences: "The person has switched this channel off.", suppressed: "Nothing is sent to this address.", throttle: "The person has had as many of this category as may be sent.",
  digest: "It is told in a digest.", cancelled: "Somebody cancelled it.", quiet_hours: "It waits for the end of the person's quiet hours.", erased: "The person was erased.",
};
const STEPS = {
  mode: "How", channel: "Channel", preferences: "Preferences", category: "Category", recipient: "Recipient", suppression: "Suppressions", locale: "Language", template: "Template", render: "Message",
  idempotency: "Repeat", lane: "Lane", policy: "Attempts", timing: "Time", quiet_hours: "Quiet hours", throttle: "Throttle", digest: "Digest", expiry: "Expiry", tenant: "Tenant", attachments: "Attachments", providers: "Providers", breaker: "Breaker", reached: "Chain",
};

/** The outcome of an attempt and what followed. */
export function attempted(one) {
  const next = one.nextTryInMs === null ? "" : one.nextTryInMs < 1 ? ", at once" : `, after ${span(one.nextTryInMs / 1000)}`;
  return `${OUTCOMES[one.outcome] ?? one.outcome}; ${VERDICTS[one.verdict] ?? one.verdict.replaceAll("_", " ")}${next}`;
}

/** Why a route was skipped. */
export function gated(route) {
  return GATES[route.gate] ?? (route.lastError ? "" : "It was skipped.");
}

/** A gate of `explain`, and what it found, as sentences. */
export function explained(step) {
  return { name: STEPS[step.step] ?? step.step.replaceAll("_", " "), lines: lines(step) };
}

function lines(step) {
  const { detail } = step;
  switch (step.step) {
    case "policy": return [`at most ${number(detail.maxAttempts)} attempts, ${span(detail.timeoutSeconds)} each; if all fail:`, ...foreseen(detail.attempts ?? [])];
    case "providers": return detail.order ? detail.order.map(({ provider, breaker, ...rest }) => [`${provider}, its breaker is ${breaker.replace("_", " ")}`, ...pairs(rest)].join(", ")) : pairs(detail);
    case "breaker": return first(detail);
    case "render": return [detail.subject, detail.text].filter(Boolean);
    case "suppression": return [detail.suppressed ? `suppressed: ${detail.kind ?? detail.reason ?? "yes"}` : "the address is not suppressed"];
    case "lane": return [`${detail.lane}, within ${span(detail.maxLatencySeconds)}`];
    case "reached": return detail.chain ? [`${detail.chain.map((one) => one.channel).join(", then ")}, until it is ${detail.until}`] : pairs(detail);
    case "idempotency": return [detail.key ? `the key ${detail.key}` : "no key was given"];
    default: return pairs(detail);
  }
}

function first({ first: name, ...rest }) {
  return [...(name ? [`${name} is called first`] : []), ...pairs(rest)];
}

function pairs(detail) {
  return Object.entries(detail).filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => `${spaced(name)}: ${said(name, value)}`);
}

/** The attempts that would follow; one with the number of the one before it spends none, and the like go on. */
function foreseen(attempts) {
  const found = [];
  for (const [at, one] of attempts.entries()) {
    const after = one.afterSeconds ? `after ${span(one.afterSeconds)}` : "at once";
    if (one.attempt === attempts[at - 1]?.attempt) return [...found, `then ${one.provider} ${after}, and so on: while its breaker is open, a probe spends no attempt`];
    found.push(`${number(one.attempt)}. ${one.provider}, ${after}`);
  }
  return found;
}

/** preferredLocale becomes preferred locale. */
function spaced(name) {
  return name.replaceAll("_", " ").replace(/([a-z])([A-Z])/g, (_, one, other) => `${one} ${other.toLowerCase()}`);
}

function said(name, value) {
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value) && value.every((one) => typeof one !== "object")) return value.join(", ");
  if (typeof value === "number" && /(At|Before|After|Until)$/.test(name) && value > 1e12) return moment(value / 1000);
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
