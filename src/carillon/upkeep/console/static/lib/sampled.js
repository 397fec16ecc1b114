/** A chart of numbers that the server tells only as they are now: it shows what was seen while the page is open. */

import { chart } from "./charts.js";
import { number } from "./format.js";

const MOST = 150;
const FEWEST = 60;
const STEP_MS = 2000;

/**
 * @param {string} label what a screen reader says
 * @param {{name: string, mood: string}[]} series
 * @returns {{element: HTMLElement, add: (values: number[]) => void}}
 */
export function sampled(label, series) {
  const element = chart(label);
  const seen = [];
  return {
    element,
    add(values) {
      const now = Date.now();
      const last = seen[seen.length - 1];
      // Ticks may come faster than a chart can show: the newest value of a step counts.
      if (last && now - last.at < STEP_MS / 2) last.values = values;
      else seen.push({ at: now, values });
      if (seen.length > MOST) seen.shift();
      // The line begins at the right and grows to the left.
      const empty = Math.max(0, FEWEST - seen.length);
      const before = Array.from({ length: empty }, (_, at) => (seen[0].at - (empty - at) * STEP_MS) / 1000);
      element.update({ times: [...before, ...seen.map((one) => one.at / 1000)], step: STEP_MS / 1000, say: number,
        series: series.map((one, at) => ({ ...one, values: [...before.map(() => null), ...seen.map((each) => each.values[at])] })) });
    },
  };
}
