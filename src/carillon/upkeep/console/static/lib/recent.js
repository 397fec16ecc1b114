/** What happened lately in this process: failures, breakers, pauses and troubles, in plain words. */

import { badge, h, table, when } from "./dom.js";
import { many, moment, number, span } from "./format.js";

const WORDS = { route_suppressed: "skipped", address_suppressed: "suppressed", calls_paused: "paused", calls_resumed: "resumed" };
const SAID = { bury: "given up", retry: "retried", fail_over: "failed over", defer: "put off", skip: "skipped" };

/**
 * @param {object[]} recent the newest first
 * @param {number} most how many are shown
 * @param {string[]} pages those of this process: only a page that is there is linked
 */
export function lately(recent, most, pages) {
  return table("Recent events", ["when", "what", "where", "why"], recent.slice(0, most).map((one) => [
    when(one.at), badge(one.verdict ?? one.after ?? WORDS[one.type] ?? one.type, SAID[one.verdict]), place(one, pages), again(one)]), { cards: true });
}

function place(one, pages) {
  const called = one.channel && one.provider ? `${one.channel} by ${one.provider}` : one.channel ?? one.provider;
  // The number of the first of the same events stays when more come: so does the focus.
  if (one.notification_id && pages.includes("notifications")) return h("a", { id: `lately-${one.began ?? one.number}`, href: `#/notifications/${one.notification_id}` }, called);
  return one.endpoint ?? one.what ?? called ?? one.where;
}

/** Why, and how often if it came more than once. */
function again(one) {
  // One element: on a phone each one of a cell has a column.
  return one.times > 1 ? h("span", {}, why(one), " ", h("span", { class: "quiet", text: `${number(one.times)} times` })) : why(one);
}

function why(one) {
  if (one.error) return one.error;
  if (one.type === "calls_paused") return `by ${one.by}: ${one.reason}`;
  if (one.probes) return many(one.probes, "failed probe");
  if (one.before) return `was ${one.before.replaceAll("_", " ")}`;
  return one.type === "route_suppressed" || one.type === "address_suppressed" ? held(one) : "";
}

/** Why an address gets nothing, and until when. */
function held(one) {
  const end = one.type === "route_suppressed" ? one.until_ms && moment(one.until_ms / 1000) : one.seconds && span(one.seconds);
  const until = one.type === "route_suppressed" ? "until" : "for";
  return `the address is suppressed, ${one.kind}, ${end ? `${until} ${end}` : "until it is lifted"}`;
}
