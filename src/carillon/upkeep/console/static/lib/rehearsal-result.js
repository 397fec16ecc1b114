/** What a rehearsal showed: a verdict, figures, charts with tables behind them, breakers and costs. */

import { chart } from "./charts.js";
import { card, h, num, table } from "./dom.js";
import { many, number, percent } from "./format.js";

const MOST_COLUMNS = 180;
const PRICE = new Intl.NumberFormat("en-GB", { minimumFractionDigits: 2, maximumFractionDigits: 2 });

/**
 * @param {object} found the figures
 * @param {object} question what was asked, for the outages
 * @returns {{element: HTMLElement, draw: () => void}} call `draw` once the element is shown: charts know their width then
 */
export function result(found, question) {
  const shaded = question.outages.map(band).filter(Boolean);
  const ended = chart("Delivered in time, late and given up, over the time");
  const waiting = chart("Messages that wait, over the time");
  const element = h("div", { class: "page", "aria-label": "Result", role: "region" },
    h("section", { class: `card human ${mood(found)}` }, h("h2", { text: verdict(found), tabindex: "-1" }), h("p", { text: remarks(found, question) })),
    figures(found),
    h("div", { class: "two" }, card("What became of them", ended), card("What waited", waiting)),
    h("div", { class: "two" }, breakers(found), providers(found)),
    reasons(found));
  return { element, draw: () => plot(found, shaded, ended, waiting) };
}

/** The most important thing, in one sentence; the same as in the terminal. */
export function verdict(found) {
  if (found.waiting) return `${many(found.waiting, "notification")} still waited when the rehearsal ended.`;
  if (found.givenUp) return `${many(found.givenUp, "notification")} would have become dead letters.`;
  if (found.skipped) return `${many(found.skipped, "notification")} would have been skipped.`;
  if (!found.accepted) return "No notification arrived: the load is too low for this time.";
  if (found.late) return `Everybody would have been told, ${many(found.late, "notification")} late.`;
  return "Everybody would have been told in time.";
}

function mood(found) {
  if (found.waiting || found.givenUp) return "needed";
  return found.late ? "watch" : "";
}

function remarks(found, question) {
  const words = [];
  if (found.scale > 1) words.push(`Each notification that was played stands for ${number(found.scale)}.`);
  if (found.lateness) {
    const { p50, p90, p99, longest } = found.lateness;
    words.push(`Delivered after p50 ${spell(p50)}, p90 ${spell(p90)}, p99 ${spell(p99)}, at most ${spell(longest)}.`);
  }
  words.push(`At most ${many(found.peak, "notification")} waited at once.`);
  if (question.outages.length && found.caughtUp === 0) words.push("After the last outage nothing was late.");
  else if (question.outages.length && found.caughtUp) words.push(`The last late one was delivered ${spell(found.caughtUp)} after the last outage.`);
  return words.join(" ");
}

function figures(found) {
  const shown = [
    ["Accepted", found.accepted, "", `${number(found.calls)} calls`],
    ["Delivered", found.delivered, "good", found.accepted ? percent(found.delivered / found.accepted) : ""],
    ["Late", found.late, "wait", "later than the lane allows"],
    ["Failed over", found.failedOver, "", "by another provider"],
    ["Given up", found.givenUp, "bad", "dead letters"],
    ["Expired or skipped", found.skipped, "", "not sent"],
    ["Repeated", found.repeated, "wait", "people got them twice"],
    ["Still waiting", found.waiting, "bad", "at the end"],
  ];
  const cost = Object.keys(found.costs).length ? [["Cost", PRICE.format(found.cost), "", "of all accepted calls"]] : [];
  return h("dl", { class: "figures" }, [...shown, ...cost].map(([name, value, colour, said]) =>
    h("div", {}, h("dt", { text: name }), h("dd", { class: value ? colour : "", text: typeof value === "number" ? number(value) : value }), h("dd", { class: "delta", text: said }))));
}

function plot(found, bands, ended, waiting) {
  const { slices, step } = merged(found.slices);
  const shared = { times: slices.map((one) => one.begins), step, bands, when: spell,
    marks: found.breakers.map((one) => ({ at: one.begins, text: `the breaker of ${one.provider} opens`, mood: "bad" })) };
  ended.update({ ...shared, sum: true, series: [
    { name: "in time", mood: "good", kind: "bar", values: slices.map((one) => one.delivered - one.late) },
    { name: "late", mood: "wait", kind: "bar", values: slices.map((one) => one.late) },
    { name: "given up", mood: "bad", kind: "bar", values: slices.map((one) => one.givenUp) }] });
  waiting.update({ ...shared, series: [{ name: "waiting", mood: "plain", values: slices.map((one) => one.waiting) }] });
}

/** At most so many columns as a screen shows: several slices become one, with the most that waited in any. */
function merged(slices) {
  const each = Math.max(1, Math.ceil(slices.length / MOST_COLUMNS));
  const step = slices.length > 1 ? (slices[1].begins - slices[0].begins) * each : 1;
  const found = [];
  for (let at = 0; at < slices.length; at += each) {
    const part = slices.slice(at, at + each);
    const sum = (name) => part.reduce((total, one) => total + one[name], 0);
    found.push({ begins: part[0].begins, delivered: sum("delivered"), late: sum("late"), givenUp: sum("givenUp"), waiting: Math.max(...part.map((one) => one.waiting)) });
  }
  return { slices: found, step };
}

function breakers(found) {
  if (!found.breakers.length) return card("Breakers", h("p", { class: "quiet", text: "Every breaker stayed closed." }));
  return card("Breakers", h("div", { class: "slim" }, table("Breakers that were not closed", ["provider", num("from"), num("to")],
    found.breakers.map((one) => [one.provider, spell(one.begins), one.ends === null ? "the end" : spell(one.ends)]))));
}

function providers(found) {
  const priced = Object.keys(found.costs).length > 0;
  const rows = Object.entries(found.byProvider).map(([name, count]) => [name, number(count), ...(priced ? [found.costs[name] === undefined ? "–" : PRICE.format(found.costs[name])] : [])]);
  return card("Providers", h("div", { class: "slim" }, table("Messages that each provider accepted", ["provider", num("accepted"), ...(priced ? [num("cost")] : [])], rows)));
}

function reasons(found) {
  const rows = Object.entries(found.reasons).map(([why, count]) => [why.replaceAll("_", " "), number(count)]);
  return rows.length ? card("Why messages were given up", h("div", { class: "slim" }, table("Why messages were given up", ["reason", num("messages")], rows))) : null;
}

/** When an outage begins and ends, from its words; null if they are not understood. */
function band(text) {
  const words = text.split(/\s+/);
  const from = words[2] === "at" ? seconds(words[3]) : 0;
  const lasts = seconds(words[1]);
  return from === null || lasts === null ? null : { from, to: from + lasts, text };
}

const UNITS = { ms: 0.001, s: 1, m: 60, min: 60, h: 3600, d: 86_400, "": 1 };
function seconds(word = "") {
  const iso = /^P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?$/i.exec(word);
  if (iso) return [86_400, 3600, 60, 1].reduce((sum, unit, at) => sum + unit * Number(iso[at + 1] ?? 0), 0);
  const found = /^(\d+(?:\.\d+)?)(ms|s|min|m|h|d|)$/.exec(word);
  return found ? Number(found[1]) * UNITS[found[2]] : null;
}

/** 0.15 s, 6.1 s, 20 min, 2 h 5 min. */
export function spell(value) {
  if (value < 1) return value ? `${value.toFixed(2)} s` : "0 s";
  if (value < 60) return `${value.toFixed(1).replace(/\.0$/, "")} s`;
  const minutes = Math.round(value / 60);
  const [hours, rest] = [Math.floor(minutes / 60), minutes % 60];
  if (!hours) return `${rest} min`;
  return rest ? `${hours} h ${rest} min` : `${hours} h`;
}
