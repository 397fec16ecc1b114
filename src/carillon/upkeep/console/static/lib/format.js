/** Numbers and times as people read them. */

const NUMBER = new Intl.NumberFormat("en-GB");
const TIME = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });
const YEAR = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" });

export function number(value) {
  return value === null || value === undefined ? "–" : NUMBER.format(value);
}

/** 0.4 s, 12 s, 3 min, 2 h, 5 d. */
export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

export function millis(value) {
  if (value === null || value === undefined) return "–";
  return value < 1000 ? `${value < 10 ? value.toFixed(1) : Math.round(value)} ms` : span(value / 1000);
}

/** Today's times are short; those of another year say the year. */
export function moment(value) {
  if (!value) return "–";
  const at = typeof value === "number" ? new Date(value * 1000) : new Date(value);
  const now = new Date();
  if (at.toDateString() === now.toDateString()) return TIME.format(at);
  return (at.getFullYear() === now.getFullYear() ? DAY : YEAR).format(at);
}

export function percent(share) {
  if (share === null || share === undefined) return "–";
  return `${(share * 100).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;
}

/** 12 s ago, in 3 min; beyond two days the date. */
export function ago(at, now = Date.now()) {
  const seconds = (now - at.getTime()) / 1000;
  const far = Math.abs(seconds);
  if (far >= 172_800) return moment(at);
  if (far < 2) return "now";
  const said = far < 120 ? `${Math.round(far)} s` : span(far);
  return seconds < 0 ? `in ${said}` : `${said} ago`;
}

/** 2026-11-17 13:45:02 UTC */
export function utc(value) {
  const at = value instanceof Date ? value : new Date(typeof value === "number" ? value * 1000 : value);
  return `${at.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

/** A moment as a field for dates holds it, by the clock of the person who reads; nothing for what is no moment. */
export function local(value, length = "YYYY-MM-DDThh:mm".length) {
  const at = new Date(value);
  return isNaN(at) ? "" : new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, length);
}

/** The same moment in UTC; a text that is no moment as it is, for the server to refuse: such as a year of six digits. */
export function inUtc(value) {
  const at = new Date(value);
  return isNaN(at) ? value : at.toISOString();
}

/** What a server said, as a sentence. */
export function sentence(words) {
  return `${words[0]?.toUpperCase() ?? ""}${words.slice(1)}${/[.!?…]$/.test(words) ? "" : "."}`;
}

/** 1 dead letter, 2 dead letters. */
export function many(count, one, more = `${one}s`) {
  return `${number(count)} ${count === 1 ? one : more}`;
}
