/** The shell: navigation, sign-in, theme and live updates. */

import { ask, follow, Problem, remember, token } from "./lib/api.js";
import { age, card, empty, fill, h, head, loading, toast } from "./lib/dom.js";
import * as keys from "./lib/keys.js";
import { icon, links, PAGES, titleOf } from "./lib/pages.js";

const main = document.getElementById("main");
const listeners = new Set();
const WHOLE = ["overview", "queues"];
const POLL_MS = 5000;
const ICONS = {
  theme: "M8 2a6 6 0 1 0 0 12zM8 2a6 6 0 0 1 0 12", density: "M2 3.5h12M2 6.5h12M2 9.5h12M2 12.5h12", keys: "M2 4h12v8H2zM4.5 6.5h.01M7 6.5h.01M9.5 6.5h.01M11.5 6.5h.01M5 9.5h6",
  menu: "M2 4h12M2 8h12M2 12h12",
};
let alive = false;
let surface = null;
let leave = null;
let turns = 0;

/** What every page gets: the caller's surface, and live ticks while the page is shown. */
const shellOf = (turn) => ({
  get surface() { return surface; },
  /** Call on every tick until the page is left. */
  onTick(call) { if (turn === turns) listeners.add(call); },
  go(hash) { location.hash = hash; },
  /** Keys of this page, each with what it does in words; leaving the page forgets them. */
  keys(given) { if (turn === turns) keys.give(given); },
  /** The filters that the address names; the back button and a shared link bring them back. */
  get query() { return Object.fromEntries(new URLSearchParams(address().query)); },
  /** Write filters into the address, without a new entry in the history. */
  keep(values) {
    const named = new URLSearchParams(Object.entries(values).filter(([, value]) => value));
    if (turn === turns) history.replaceState(null, "", `#/${address().path}${named.size ? `?${named}` : ""}`);
  },
});

/** What stands behind the # of the address: the page with its parts, and its filters. */
function address() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { path, query };
}

async function start() {
  switches();
  // The page comes while the server says which pages there are.
  const first = address().path.split("/")[0] || "overview";
  if (PAGES.some((one) => one.page === first)) import(`./pages/${first}.js`).catch(() => {});
  try {
    surface = await ask("/api/v1/console/surface");
  } catch (error) {
    return error instanceof Problem && error.status === 401 ? login() : broken(error, start);
  }
  fill(document.getElementById("nav"), links(surface.pages));
  if (!surface.pages.length) return fill(main, head("Console"), empty(nothing(surface.absent)));
  // Live ticks show all tenants at once: callers who act for one tenant poll.
  if (WHOLE.some((page) => surface.pages.includes(page))) follow("/api/v1/console/live", tick, lively, new AbortController().signal);
  else lively("polling");
  setInterval(() => { if (!alive) tick("poll", {}); age(); }, POLL_MS);
  addEventListener("hashchange", show);
  keys.listen(() => surface.pages, { "/": ["search", search], t: ["light or dark", () => document.getElementById("theme").click()], c: ["dense or comfortable rows", () => document.getElementById("density").click()] });
  await show();
}

function tick(_event, data) {
  for (const call of listeners) call(data);
}

function lively(word) {
  const live = document.getElementById("live");
  alive = word === "live";
  // No tick reports events from before the connection: load the page once.
  if (alive) tick("live", {});
  live.textContent = { live: "live", polling: "every few seconds" }[word] ?? "not live";
  live.className = `live ${word}`;
}

async function show() {
  const [page, ...rest] = address().path.split("/").map(decodeURIComponent);
  const absent = surface.absent[page];
  const name = surface.pages.includes(page) || absent ? page : surface.pages[0];
  // If the user has left a page before it is loaded, it draws into an element that is no longer shown.
  const turn = ++turns;
  const place = h("div", {});
  listeners.clear();
  keys.forget();
  menu(false);
  if (leave) leave();
  leave = null;
  for (const link of document.querySelectorAll("#nav a")) {
    link.removeAttribute("aria-current");
    if (link.dataset.page !== name) continue;
    link.setAttribute("aria-current", "page");
    link.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  document.title = `${titleOf(name)} · Carillon`;
  if (absent) return fill(main, empty(sentence(absent)));
  fill(main, fill(place, loading()));
  try {
    const { render } = await import(`./pages/${name}.js`);
    const left = (await render(place, shellOf(turn), rest)) ?? null;
    if (turn !== turns) return left?.();
    leave = left;
    // The user may have the focus in a field before the whole page is loaded.
    if (!main.contains(document.activeElement)) main.focus({ preventScroll: true });
  } catch (error) {
    if (turn !== turns) return;
    if (error instanceof Problem && error.status === 401) login();
    else broken(error, show);
  }
}

/** Why there is no page at all: the settings leave them out, or the caller may not see them. */
function nothing(absent) {
  const { rehearsal, ...others } = absent;
  const [why] = Object.values(others);
  return why ? sentence(why.replace("this page needs", "the pages need")) : "This token may not see any page: use an administrator's token.";
}

/** A reason as a sentence of its own. */
function sentence(words) {
  return `${words[0].toUpperCase()}${words.slice(1)}.`;
}

function broken(error, again) {
  const said = error instanceof Problem && error.status ? error.message : "This page could not be loaded. Is Carillon running?";
  if (!(error instanceof Problem)) console.warn(error);
  fill(main, head("Not loaded"), empty(said, h("button", { type: "button", text: "Try again", onclick: again })));
}

function login() {
  const field = h("input", { id: "token", type: "password", autocomplete: "off", required: true, spellcheck: "false" });
  const form = h("form", { class: "login", onsubmit: (event) => {
    event.preventDefault();
    remember(field.value.trim());
    start();
  } }, h("label", { for: "token", text: "Token or API key" }), field, h("button", { class: "primary", text: "Open the console" }),
  h("p", { class: "quiet", text: "The token stays in this tab. The console sends it as a header, never in a URL." }));
  fill(main, head("Sign in"), card(null, token() ? h("p", { class: "bad", text: "This token is not accepted." }) : null, form));
  field.focus();
}

/** Put the focus into the search of the page. */
function search() {
  const field = main.querySelector('[type="search"]') ?? main.querySelector('[role="search"] input');
  field?.focus();
  field?.select?.();
}

/** Light or dark, dense or comfortable, and the menu of a phone; the first two are remembered. */
function switches() {
  const root = document.documentElement.dataset;
  for (const [name, path] of Object.entries(ICONS)) fill(document.getElementById(name), icon(path));
  root.theme = localStorage.getItem("carillon.theme") ?? "";
  if (!root.theme) delete root.theme;
  document.getElementById("theme").onclick = () => {
    const dark = root.theme ? root.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.theme = dark ? "light" : "dark";
    localStorage.setItem("carillon.theme", root.theme);
  };
  const density = document.getElementById("density");
  const dense = (yes) => {
    root.density = yes ? "dense" : "comfortable";
    density.setAttribute("aria-pressed", String(yes));
    localStorage.setItem("carillon.density", root.density);
  };
  dense(localStorage.getItem("carillon.density") === "dense");
  density.onclick = () => dense(root.density !== "dense");
  document.getElementById("menu").onclick = () => menu(!document.getElementById("side").classList.contains("open"));
}

/** On a phone the pages are behind a button. */
function menu(open) {
  document.getElementById("side").classList.toggle("open", open);
  document.getElementById("menu").setAttribute("aria-expanded", String(open));
}

addEventListener("keydown", (event) => {
  const side = document.getElementById("side");
  if (event.key !== "Escape" || !side.classList.contains("open")) return;
  menu(false);
  // The link that had the focus is hidden now.
  if (side.contains(document.activeElement)) document.getElementById("menu").focus();
});
document.querySelector(".skip").onclick = (event) => {
  // The address after # says which page is shown; skipping must not change it.
  event.preventDefault();
  main.focus();
};
addEventListener("unhandledrejection", (event) => {
  event.preventDefault();
  toast(event.reason?.message ?? "Something went wrong.", "bad");
});
start();
