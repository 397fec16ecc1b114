/** Rehearsal: hours of load and outages in virtual time, with the settings of this process; nothing is sent. */

import { ask, play, Problem } from "../lib/api.js";
import { card, copies, empty, fill, h, head } from "../lib/dom.js";
import { sentence } from "../lib/format.js";
import { asked, command, complain, kept, questionForm } from "../lib/rehearsal-question.js";
import { result, spell } from "../lib/rehearsal-result.js";

const PATH = "/api/v1/rehearsals";

/**
 * @param {HTMLElement} main
 * @param {{surface: object, query: object, keep: (values: object) => void}} shell
 */
export async function render(main, shell) {
  const providers = (await ask("/api/v1/admin/providers")).items;
  const places = { error: h("div", {}), told: h("div", { class: "told", "aria-live": "polite" }), found: h("div", {}), command: h("code", {}), copy: h("span", {}) };
  const start = h("button", { class: "primary", text: "Rehearse" });
  const stop = h("button", { type: "button", text: "Stop", hidden: true });
  let running = null;
  const changed = () => {
    const question = form.question();
    const words = command(question, shell.surface.blueprint);
    shell.keep(kept(question));
    fill(places.command, words);
    fill(places.copy, copies(words, "Copy"), copies(location.href, "Copy the link"));
  };
  const form = questionForm(asked(shell.query), providers, () => changed());
  form.append(h("div", { class: "row" }, start, stop, h("span", { class: "grow" })), places.error);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!running) begin();
  });
  const begin = async () => {
    running = new AbortController();
    const question = form.question();
    working(true);
    try {
      await played(question, places, running.signal);
    } catch (error) {
      fill(places.told);
      if (error.name === "AbortError") fill(places.told, h("p", { class: "quiet", text: "Stopped." }));
      else complain(places.error, sentence(error.message ?? "Something went wrong."));
    }
    running = null;
    working(false);
  };
  const working = (yes) => {
    const focused = document.activeElement === start || document.activeElement === stop;
    start.hidden = yes;
    stop.hidden = !yes;
    if (yes) complain(places.error, "");
    if (focused) (yes ? stop : start).focus();
  };
  stop.onclick = () => running?.abort();
  fill(places.found, empty("Choose a load and what fails, then rehearse: hours of virtual time take some seconds."));
  fill(main, h("div", { class: "page" }, head("Rehearsal"),
    h("p", { class: "quiet lead", text: "The real policies, breakers, lanes and failover of this process's settings, with vendors that are played. Nothing is sent, and no real message is touched." }),
    card("Question", form, h("div", { class: "same" }, h("span", { class: "quiet", text: "The same in a terminal:" }), places.command, places.copy)),
    places.told, places.found));
  changed();
  return () => running?.abort();
}

/** Play the question: a bar while it runs, then the result. */
async function played(question, places, signal) {
  const bar = h("progress", { max: 1, "aria-label": "Progress of the rehearsal" });
  const words = h("span", { "aria-live": "off", text: "Starting…" });
  fill(places.told, h("div", { class: "row" }, bar, words));
  // What invites to begin, or an earlier result, is not what is being played.
  fill(places.found);
  let found = null;
  let problem = null;
  await play(PATH, question, (event, data) => {
    if (event === "progress") {
      bar.value = data.seconds / data.of;
      words.textContent = data.seconds < data.of ? `${spell(data.seconds)} of ${spell(data.of)} played` : "Everything has arrived; waiting until every message has ended";
    } else if (event === "result") found = data;
    else problem = data;
  }, signal);
  if (!found) throw new Problem(0, "REHEARSAL", problem ?? "The connection ended before the result.", null);
  fill(places.told);
  const shown = result(found, question);
  fill(places.found, shown.element);
  shown.draw();
  shown.element.querySelector("h2").focus({ preventScroll: true });
  shown.element.scrollIntoView({ block: "nearest", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
}
