/** Charts of numbers over time: lines or stacked bars, values on hover, marks for events, and the same as a table. */

import { fill, h, num, table } from "./dom.js";
import { refill } from "./forms.js";
import { moment, number, utc } from "./format.js";

const HEIGHT = 168;
const LEFT = 46;
const LETTER_PX = 7;
const RIGHT = 6;
const TOP = 10;
const BOTTOM = 20;
const LABEL_PX = 90;
/** Where the scale has its lines. */
const LEVELS = [0, 0.5, 1];

/**
 * @typedef {{name: string, mood: string, values: (number|null)[], whole?: number|null, kind?: "line"|"bar"}} Series bars are stacked
 * @typedef {{at: number, text: string, mood?: string}} Mark something that happened, in Unix seconds
 * @typedef {{series: Series[], times: number[], step?: number, marks?: Mark[], say?: (value: number|null) => string, sum?: boolean, when?: (time: number) => string, bands?: Band[]}} Drawn
 *   `times` are Unix seconds, one for each value, `step` seconds apart; with `sum` the legend says the sum and not the newest value, or what a series says of the `whole` time;
 *   with `when` they are what it says and not moments
 * @typedef {{from: number, to: number, text: string}} Band a time that is shaded
 */

/**
 * A chart that can be drawn again with `update`, and says with `clear` why there is none; what the pointer shows and the open table stay.
 * @param {string} label what a screen reader says
 * @param {Drawn} [first]
 */
export function chart(label, first = null) {
  const drawing = h("svg:svg", { class: "chart", role: "img", "aria-label": label });
  const tip = h("div", { class: "tip", "aria-hidden": "true", hidden: true });
  // A long time in a large ledger takes seconds to count: an empty frame would look like nothing.
  const legend = h("span", { class: "row" }, first ? null : h("span", { class: "quiet", text: "Counting…" }));
  const rows = h("div", {});
  const details = h("details", { ontoggle: () => tabled() }, h("summary", { text: "as a table" }), rows);
  const figure = h("figure", { class: "figure" }, drawing, tip, h("figcaption", {}, legend, details));
  let now = first;
  let at = null;
  const tabled = () => { if (now) refill(rows, details.open ? asTable(label, now) : null); };
  const draw = () => {
    const width = figure.clientWidth;
    if (!now || !width) return;
    const plan = planned(now, width);
    drawing.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    fill(drawing, shades(plan, now), grid(plan, now), bars(plan, now), lines_(plan, now), events(plan, now), cursor(plan, at));
    fill(legend, now.series.map((one) => h("span", { class: `key ${one.mood}` }, `${one.name} `, h("b", { text: said(now)(one.whole !== undefined ? one.whole : now.sum ? total(one.values) : last(one.values)) }))));
    hint(tip, plan, now, at, width);
  };
  const point = (event) => {
    const plan = planned(now, figure.clientWidth);
    const x = event.clientX - drawing.getBoundingClientRect().left;
    at = x < plan.left - 8 ? null : Math.max(0, Math.min(now.times.length - 1, Math.floor((x - plan.left) / plan.slot)));
    draw();
  };
  drawing.addEventListener("pointermove", (event) => { if (now?.times.length) point(event); });
  drawing.addEventListener("pointerleave", () => { at = null; draw(); });
  new ResizeObserver(draw).observe(figure);
  figure.update = (next) => {
    now = next;
    draw();
    tabled();
  };
  /** Nothing is drawn, and why. */
  figure.clear = (sentence) => {
    now = null;
    tip.hidden = true;
    fill(drawing);
    fill(legend, h("span", { class: "quiet", text: sentence }));
    refill(rows, null);
  };
  return figure;
}

/** Lines over time, drawn once. */
export function lines(label, series, times, say = number) {
  return chart(label, { series, times, say });
}

function said(now) {
  return now.say ?? number;
}

function last(values) {
  return values.length ? values[values.length - 1] : null;
}

function total(values) {
  return values.reduce((sum, value) => sum + (value ?? 0), 0);
}

function planned(now, width) {
  const stacked = now.series.filter((one) => one.kind === "bar");
  const sums = now.times.map((_, at) => stacked.reduce((sum, one) => sum + (one.values[at] ?? 0), 0));
  const alone = now.series.filter((one) => one.kind !== "bar").flatMap((one) => one.values.filter((value) => value !== null));
  // Whole numbers have a whole number in the middle.
  const top = nice(Math.max(now.say && now.say !== number ? 1 : 2, ...sums, ...alone));
  // The longest label of the scale stands beside it, whole.
  const left = Math.max(LEFT, 10 + LETTER_PX * Math.max(...LEVELS.map((share) => said(now)(top * share).length)));
  const slot = (width - left - RIGHT) / Math.max(1, now.times.length);
  return {
    width, top, slot, left,
    x: (at) => left + slot * (at + 0.5),
    y: (value) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - TOP) * value) / top,
  };
}

function grid(plan, now) {
  const say = said(now);
  const levels = LEVELS.map((share) => [
    h("svg:line", { x1: plan.left, x2: plan.width - RIGHT, y1: plan.y(plan.top * share), y2: plan.y(plan.top * share), class: "grid" }),
    h("svg:text", { x: plan.left - 8, y: plan.y(plan.top * share) + 4, "text-anchor": "end", text: say(plan.top * share) }),
  ]);
  const each = Math.max(1, Math.ceil(LABEL_PX / plan.slot));
  const whole = now.times.length > 1 ? now.times[now.times.length - 1] - now.times[0] : 0;
  const labels = now.times.map((time, at) => (at % each === Math.floor(each / 2) && plan.x(at) < plan.width - 24
    ? h("svg:text", { x: plan.x(at), y: HEIGHT - 5, "text-anchor": "middle", text: now.when ? now.when(time) : tick(time, whole) }) : null));
  return [levels, labels];
}

/** As exact as the whole time needs, so that no two labels are the same. */
function tick(time, whole) {
  const at = new Date(time * 1000);
  if (whole > 86_400) return at.toLocaleDateString("en-GB", { weekday: "short", day: "numeric" });
  return at.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", ...(whole < 900 ? { second: "2-digit" } : {}) });
}

function bars(plan, now) {
  const stacked = now.series.filter((one) => one.kind === "bar");
  const wide = Math.max(1, plan.slot - (plan.slot > 4 ? 1.5 : 0));
  return now.times.map((_, at) => {
    let below = 0;
    return stacked.map((one) => {
      const value = one.values[at] ?? 0;
      if (!value) return null;
      const y = plan.y(below + value);
      const height = Math.max(1, plan.y(below) - y);
      below += value;
      return h("svg:rect", { x: plan.x(at) - wide / 2, y, width: wide, height, class: `area ${one.mood}` });
    });
  });
}

function lines_(plan, now) {
  return now.series.filter((one) => one.kind !== "bar").map((one) => h("svg:path", { d: path(one.values, plan), class: `line ${one.mood}` }));
}

function path(values, plan) {
  let text = "";
  let down = false;
  values.forEach((value, at) => {
    if (value === null || value === undefined) { down = false; return; }
    text += `${down ? "L" : "M"}${plan.x(at).toFixed(1)} ${plan.y(value).toFixed(1)}`;
    // A single point is no line; a short one around it shows it.
    if (!down && (values[at + 1] ?? null) === null) text += "m-3 0h6";
    down = true;
  });
  return text;
}

function events(plan, now) {
  return placed(now).map(([mark, at]) => [
    h("svg:line", { x1: plan.x(at), x2: plan.x(at), y1: TOP, y2: HEIGHT - BOTTOM, class: `event ${mark.mood ?? ""}` }),
    h("svg:path", { d: `M${plan.x(at)} ${TOP + 5}l-4 -6h8z`, class: `flag ${mark.mood ?? ""}` }, h("svg:title", { text: mark.text }))]);
}

/** Each mark with the slot in which it happened. */
function placed(now) {
  if (!now.times.length) return [];
  const step = now.step ?? (now.times.length > 1 ? now.times[1] - now.times[0] : 1);
  return (now.marks ?? []).map((mark) => [mark, Math.floor((mark.at - now.times[0]) / step)]).filter(([, at]) => at >= 0 && at < now.times.length);
}

function shades(plan, now) {
  if (!now.times.length) return [];
  const step = now.step ?? 1;
  const x = (at) => plan.left + plan.slot * Math.max(0, Math.min(now.times.length, (at - now.times[0]) / step));
  return (now.bands ?? []).map((band) => h("svg:rect", { x: x(band.from), y: TOP, width: Math.max(1, x(band.to) - x(band.from)), height: HEIGHT - BOTTOM - TOP, class: "band" },
    h("svg:title", { text: band.text })));
}

function cursor(plan, at) {
  return at === null ? null : h("svg:line", { x1: plan.x(at), x2: plan.x(at), y1: TOP, y2: HEIGHT - BOTTOM, class: "cursor" });
}

function hint(tip, plan, now, at, width) {
  tip.hidden = at === null || at >= now.times.length;
  if (tip.hidden) return;
  fill(tip, h("div", { class: "quiet", title: now.when ? null : utc(now.times[at]), text: (now.when ?? moment)(now.times[at]) }),
    now.series.map((one) => h("div", {}, h("span", { class: `key ${one.mood}`, text: one.name }), h("b", { text: said(now)(one.values[at] ?? null) }))),
    placed(now).filter(([, slot]) => slot === at).map(([mark]) => h("div", { class: mark.mood ?? "", text: mark.text })));
  const x = plan.x(at);
  if (x > width / 2) Object.assign(tip.style, { left: "auto", right: `${width - x + 10}px` });
  else Object.assign(tip.style, { right: "auto", left: `${x + 10}px` });
}

function asTable(label, now) {
  const marks = placed(now);
  const said_ = said(now);
  const columns = ["when", ...now.series.map((one) => num(one.name)), ...(marks.length ? ["event"] : [])];
  const rows = now.times.map((time, at) => [(now.when ?? moment)(time), ...now.series.map((one) => said_(one.values[at] ?? null)),
    ...(marks.length ? [marks.filter(([, slot]) => slot === at).map(([mark]) => mark.text).join(", ")] : [])]);
  return h("div", { class: "slim" }, table(`${label}, as a table`, columns, now.when ? rows : rows.toReversed()));
}

/** The next round number. */
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 8, 10].map((step) => step * power).find((step) => step >= value * 0.9999);
}

/** A share as a bar. */
export function bar(share, mood = "") {
  const full = Math.max(0, Math.min(1, share ?? 0)) * 100;
  return h("svg:svg", { viewBox: "0 0 100 8", class: "share", preserveAspectRatio: "none", "aria-hidden": "true" },
    h("svg:rect", { x: 0, y: 0, width: 100, height: 8, rx: 4, class: "back" }),
    h("svg:rect", { x: 0, y: 0, width: full, height: 8, rx: 4, class: `front ${mood}` }));
}
