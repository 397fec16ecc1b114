/** The shell: navigation, sign-in, theme and live updates. */

import { ask, follow, forgetTroubles, onTrouble, Problem, remember, token } from "./lib/api.js";
import { age, card, empty, fill, h, head, loading, toast } from "./lib/dom.js";
import { moment, sentence } from "./lib/format.js";
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
let begun = false;
let retrying = null;

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
  /** Write filters into the address, without a new entry in the history; `beside` comes back with the back button, too. */
  keep(values, beside = null) {
    const named = new URLSearchParams(Object.entries(values).filter(([, value]) => value));
    if (turn === turns) history.replaceState(beside, "", `#/${address().path}${named.size ? `?${named}` : ""}`);
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
  const wanted = address().path.split("/")[0] || "overview";
  if (PAGES.some((one) => one.page === wanted)) import(`./pages/${wanted}.js`).catch(() => {});
  try {
    surface = await ask("/api/v1/console/surface");
  } catch (error) {
    return error instanceof Problem && error.status === 401 ? login() : broken(error, start);
  }
  fill(document.getElementById("nav"), links(surface.pages));
  if (!surface.pages.length) return instead(head("Console"), empty(nothing(surface.absent), token() ? h("button", { type: "button", text: "Use another token", onclick: () => login(false) }) : null));
  // Who signs in again finds the listeners and the stream of the first time.
  const first = !begun;
  begun = true;
  if (!first) return show();
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
  // A question about what is not shown any more is answered with no.
  for (const box of document.querySelectorAll("dialog[open]")) box.close();
  clearTimeout(retrying);
  forgetTroubles();
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
  if (absent) return instead(empty(sentence(absent)));
  instead(fill(place, loading()));
  try {
    const { render } = await import(`./pages/${name}.js`);
    const left = (await render(place, shellOf(turn), rest)) ?? null;
    if (turn !== turns) return left?.();
    leave = left;
    main.dataset.state = "shown";
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

/** A page that redraws itself would go on showing what was true an hour ago. */
function old(trouble) {
  const place = document.getElementById("old");
  // What could not be shown at all says so itself.
  place.hidden = trouble === null || main.dataset.state !== "shown";
  if (place.hidden) return;
  const { problem, since } = trouble;
  const why = { 0: "Carillon does not answer", 401: "Your token is no longer accepted" }[problem.status] ?? problem.message;
  const said = `${sentence(why)} What you see is from ${moment(since)} or before.`;
  if (place.firstChild?.textContent === said) return;
  fill(place, h("span", { text: said }), problem.status === 401 ? h("button", { type: "button", text: "Sign in again", onclick: () => login() }) : null);
}

function broken(error, again) {
  const said = error instanceof Problem && error.status ? sentence(error.message) : "This page could not be loaded. Is Carillon running?";
  if (!(error instanceof Problem)) console.warn(error);
  const [page] = address().path.split("/");
  const missing = error.status === 404;
  const list = missing && surface?.pages.includes(page) ? h("a", { class: "button", href: `#/${page}`, text: `All ${titleOf(page).toLowerCase()}` }) : null;
  instead(head(missing ? "Not found" : "Not loaded"), empty(said, h("div", { class: "row" }, list, h("button", { type: "button", text: "Try again", onclick: again }))));
  // Nobody needs to press a key until the server is back.
  clearTimeout(retrying);
  if (error instanceof Problem && (error.status === 0 || error.status >= 500)) retrying = setTimeout(again, POLL_MS);
}

/** Something else than a page: why there is none. */
function instead(...shown) {
  main.dataset.state = "";
  old(null);
  fill(main, ...shown);
}

/** Ask for a token; `refused` says that the one of this tab is none. */
function login(refused = token() !== null) {
  const field = h("input", { id: "token", type: "password", autocomplete: "off", required: true, spellcheck: "false" });
  const form = h("form", { class: "login", onsubmit: (event) => {
    event.preventDefault();
    remember(field.value.trim());
    start();
  } }, h("label", { for: "token", text: "Token or API key" }), field, h("button", { class: "primary", text: "Open the console" }),
  h("p", { class: "quiet", text: "The token stays in this tab. The console sends it as a header, never in a URL." }));
  instead(head("Sign in"), card(null, refused ? h("p", { class: "bad", text: "This token is not accepted." }) : null, form));
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
onTrouble(old);
addEventListener("unhandledrejection", (event) => {
  event.preventDefault();
  toast(event.reason?.message ?? "Something went wrong.", "bad");
});
start();
