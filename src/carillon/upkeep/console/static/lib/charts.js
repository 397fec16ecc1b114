/** Small charts of numbers over time, each with a table for screen readers. */

import { h } from "./dom.js";
import { moment, number } from "./format.js";

const WIDTH = 600;
const HEIGHT = 140;
const LEFT = 40;
const BOTTOM = 18;

/**
 * Lines over the last hour.
 * @param {string} label what a screen reader says
 * @param {{name: string, mood: string, values: (number|null)[]}[]} lines
 * @param {number[]} times Unix seconds, one for each value
 * @param {(value: number) => string} [say]
 */
export function lines(label, lines, times, say = number) {
  const top = nice(Math.max(1, ...lines.flatMap((line) => line.values.filter((value) => value !== null))));
  const x = (at) => LEFT + ((WIDTH - LEFT - 4) * at) / Math.max(1, times.length - 1);
  const y = (value) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - 8) * value) / top;
  const drawing = h("svg:svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "img", "aria-label": label, preserveAspectRatio: "none" },
    [0, 0.5, 1].map((share) => h("svg:line", { x1: LEFT, x2: WIDTH, y1: y(top * share), y2: y(top * share), class: "grid" })),
    lines.map((line) => h("svg:path", { d: path(line.values, x, y), class: `line ${line.mood}` })));
  const marks = h("div", { class: "marks", "aria-hidden": "true" },
    h("span", { class: "top", text: say(top) }), h("span", { class: "zero", text: "0" }),
    h("span", { class: "from", text: times.length ? moment(times[0]) : "" }),
    h("span", { class: "to", text: times.length ? moment(times[times.length - 1]) : "" }));
  return h("figure", { class: "figure" }, drawing, marks,
    h("figcaption", {}, lines.map((line) => h("span", { class: `key ${line.mood}` }, `${line.name} `, h("b", { text: say(last(line.values)) })))));
}

function last(values) {
  return values.length ? values[values.length - 1] : null;
}

function path(values, x, y) {
  let text = "";
  let down = false;
  values.forEach((value, at) => {
    if (value === null) { down = false; return; }
    text += `${down ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    down = true;
  });
  // A single point is no line; a short one shows it.
  return values.filter((value) => value !== null).length === 1 ? `${text}h4` : text;
}

/** The next round number. */
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
}

/** A share as a bar. */
export function bar(share, mood = "") {
  const full = Math.max(0, Math.min(1, share ?? 0)) * 100;
  return h("svg:svg", { viewBox: "0 0 100 8", class: "share", preserveAspectRatio: "none", "aria-hidden": "true" },
    h("svg:rect", { x: 0, y: 0, width: 100, height: 8, rx: 4, class: "back" }),
    h("svg:rect", { x: 0, y: 0, width: full, height: 8, rx: 4, class: `front ${mood}` }));
}
