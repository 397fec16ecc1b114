/** The question of a rehearsal: the form, the address and the command line say the same. */

import { fill, h } from "./dom.js";
import { choice, field } from "./forms.js";

export const PERIODS = [
  ["s", "a second"],
  ["min", "a minute"],
  ["h", "an hour"],
  ["d", "a day"],
];
export const KINDS = [
  ["down", "refuses connections"],
  ["hanging", "does not answer"],
  ["silent", "accepts and does not answer"],
  ["slow", "is slow"],
  ["throttled", "asks to wait (429)"],
  ["failing", "fails a share of the calls"],
];
/** The form's fields that several values separated by commas fill, and their options on a command line. */
const LISTS = { mix: "--mix", prices: "--price", latencies: "--latency" };
const NUMBERS = { processes: "--processes", most: "--most", seed: "--seed" };
const USUAL = { processes: 1, most: 10_000, seed: 1 };

/** What the address asks for; an outage is written as on a command line, several are separated by semicolons. */
export function asked(query) {
  const split = (text, by) => (text ?? "").split(by).map((one) => one.trim()).filter(Boolean);
  const question = { load: query.load ?? "10/s", outages: split(query.outages, ";") };
  if (query.for) question.for = query.for;
  for (const name of Object.keys(LISTS)) if (query[name]) question[name] = split(query[name], ",");
  for (const name of Object.keys(NUMBERS)) if (query[name]) question[name] = Number(query[name]);
  return question;
}

/** The same question for the address. */
export function kept(question) {
  const lists = Object.keys(LISTS).map((name) => [name, (question[name] ?? []).join(", ")]);
  const numbers = Object.keys(NUMBERS).map((name) => [name, question[name] === USUAL[name] ? "" : question[name]]);
  return { load: question.load, for: question.for, outages: question.outages.join("; "), ...Object.fromEntries([...lists, ...numbers]) };
}

/** The same question for a terminal. */
export function command(question, blueprint) {
  const words = ["carillon rehearse", `--blueprint ${blueprint}`, `--load ${question.load}`];
  if (question.for) words.push(`--for ${quoted(question.for)}`);
  words.push(...question.outages.map((one) => `--outage ${quoted(one)}`));
  for (const [name, option] of Object.entries(LISTS)) words.push(...(question[name] ?? []).map((one) => `${option} ${quoted(one)}`));
  for (const [name, option] of Object.entries(NUMBERS)) if (question[name] && question[name] !== USUAL[name]) words.push(`${option} ${question[name]}`);
  return words.join(" ");
}

function quoted(text) {
  return /^[\w./=-]+$/.test(text) ? text : `"${text.replaceAll(/["\\$`]/g, "\\$&")}"`;
}

/**
 * The form.
 * @param {object} question what it shows first
 * @param {{channel: string, provider: string}[]} providers
 * @param {() => void} changed called whenever the question is another one
 */
export function questionForm(question, providers, changed) {
  const names = [...new Set(providers.map((one) => one.provider))];
  const channels = [...new Set(providers.map((one) => one.channel))];
  const rows = h("div", { class: "outages" });
  const [rate, per] = question.load.split("/");
  const mix = question.mix ?? [];
  const add = (text = `${names[0]} 20m at 10m`) => {
    rows.append(outage(text, names, changed));
    renumber(rows);
    changed();
  };
  const further = Object.keys({ ...LISTS, ...NUMBERS }).some((name) => question[name] !== undefined && !(name === "mix" && channels.includes(mix[0])));
  const one = mix.length === 1 && channels.includes(mix[0]) ? mix[0] : "";
  const form = h("form", { class: "rehearse", oninput: changed },
    h("div", { class: "fields" },
      field("rate", "How many arrive", { type: "number", min: 0.000001, max: 999999999, step: "any", required: true, value: rate }),
      choice("per", "In", PERIODS.map(([value, text]) => [value, text])),
      broad(choice("channel", "What", [["", "every channel alike"], ...channels])),
      broad(field("for", "For how long", { placeholder: "30 min past the last outage", value: question.for ?? "" }))),
    h("fieldset", {}, h("legend", { text: "What fails" }), rows,
      h("button", { type: "button", text: "Add an outage", onclick: () => { add(); rows.lastElementChild.querySelector("select").focus(); } })),
    h("details", { open: further }, h("summary", { text: "Mix, prices, latencies, sample" }), h("div", { class: "fields" },
      broad(field("mix", "Mix, instead of one channel", { placeholder: "sms/high=1, email/bulk=9", value: one ? "" : mix.join(", ") })),
      broad(field("prices", "Price of a message", { placeholder: `${names[0]}=0.0079`, value: (question.prices ?? []).join(", ") })),
      broad(field("latencies", "Time of a call", { placeholder: `${names[0]}=300ms, *=150ms`, value: (question.latencies ?? []).join(", ") })),
      field("processes", "Processes that send", { type: "number", min: 1, max: 1000, value: question.processes ?? USUAL.processes }),
      field("most", "Play at most", { type: "number", min: 100, max: 20_000, value: question.most ?? USUAL.most }),
      field("seed", "Seed of the dice", { type: "number", value: question.seed ?? USUAL.seed }))));
  form.elements.per.value = per ?? "s";
  form.elements.channel.value = one;
  for (const text of question.outages) rows.append(outage(text, names, changed));
  renumber(rows);
  form.question = () => read(form, rows);
  return form;
}

/** A field for longer texts. */
function broad(one) {
  one.classList.add("broad");
  return one;
}

function read(form, rows) {
  const { rate, per, channel } = form.elements;
  const values = { load: `${rate.value}/${per.value}`, outages: [...rows.children].map((row) => row.written()) };
  if (form.elements.for.value.trim()) values.for = form.elements.for.value.trim();
  for (const name of Object.keys(LISTS)) {
    const found = form.elements[name].value.split(",").map((one) => one.trim()).filter(Boolean);
    if (found.length) values[name] = found;
  }
  if (!values.mix && channel.value) values.mix = [channel.value];
  for (const name of Object.keys(NUMBERS)) {
    const value = Number(form.elements[name].value || USUAL[name]);
    if (value !== USUAL[name]) values[name] = value;
  }
  return values;
}

/** One outage: a row of the form that says what a command line would. */
function outage(text, names, changed) {
  const words = text.split(/\s+/);
  const [provider, lasts] = words;
  const at = words[2] === "at" ? words[3] : "";
  const [kind = "down", extra = ""] = words.slice(words[2] === "at" ? 4 : 2);
  const select = (label, options, value, more = {}) => labelled(label, h("select", more, options.map(([key, said]) => h("option", { value: key, text: said, selected: key === value }))));
  const text_ = (label, value, placeholder) => labelled(label, h("input", { value: value ?? "", placeholder, autocomplete: "off", spellcheck: "false" }));
  const parts = {
    provider: select("Provider", (names.includes(provider) ? names : [provider, ...names]).map((name) => [name, name]), provider),
    kind: broad(select("How", KINDS, kind, { onchange: () => fit() })),
    lasts: text_("For", lasts, "20m"),
    at: text_("After", at, "at once"),
    extra: text_("By", extra, "8s"),
  };
  const value = (name) => parts[name].lastElementChild.value.trim();
  const row = h("div", { class: "fields outage", role: "group" }, Object.values(parts),
    h("button", { type: "button", text: "Remove", onclick: () => { const all = row.parentElement; row.remove(); renumber(all); changed(); } }));
  const fit = () => {
    const wants = { slow: ["Slower by", "8s"], failing: ["Share", "30%"] }[value("kind")];
    parts.extra.hidden = !wants;
    if (!wants) return;
    const [label, usual] = wants;
    parts.extra.firstElementChild.textContent = label;
    const input = parts.extra.lastElementChild;
    input.placeholder = usual;
    if (!input.value || input.value.endsWith("%") !== usual.endsWith("%")) input.value = usual;
  };
  fit();
  row.written = () => [value("provider"), value("lasts"), ...(value("at") ? ["at", value("at")] : []),
    ...(value("kind") === "down" ? [] : [value("kind")]), ...(parts.extra.hidden ? [] : [value("extra")])].filter(Boolean).join(" ");
  return row;
}

let ids = 0;
function labelled(label, control) {
  control.id = `o-${++ids}`;
  return h("div", {}, h("label", { for: control.id, text: label }), control);
}

/** Each row says which outage it is; an empty list says so too. */
function renumber(rows) {
  [...rows.children].forEach((row, at) => {
    row.setAttribute("aria-label", `Outage ${at + 1}`);
    row.querySelector("button").setAttribute("aria-label", `Remove outage ${at + 1}`);
  });
  rows.parentElement?.classList.toggle("none", !rows.children.length);
}

/** Put an error beside the form. */
export function complain(place, words) {
  fill(place, words ? h("p", { class: "bad", role: "alert", text: words }) : null);
}
