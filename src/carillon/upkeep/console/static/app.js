/** The shell: navigation, sign-in, theme and live updates. */

import { ask, follow, Problem, remember, token } from "./lib/api.js";
import { card, empty, fill, h, toast } from "./lib/dom.js";

const TITLES = {
  overview: "Overview", notifications: "Notifications", "dead-letters": "Dead letters",
  suppressions: "Suppressions", templates: "Templates", outbox: "Outbox", drills: "Drills", queues: "Queues", streams: "Streams",
};
const main = document.getElementById("main");
const listeners = new Set();
const WHOLE = ["overview", "queues"];
const POLL_MS = 5000;
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
  theme();
  try {
    surface = await ask("/api/v1/console/surface");
  } catch (error) {
    return error instanceof Problem && error.status === 401 ? login() : broken(error, start);
  }
  fill(document.getElementById("nav"), surface.pages.map((page) =>
    h("a", { href: `#/${page}`, data: { page }, text: TITLES[page] ?? page })));
  if (!surface.pages.length) return fill(main, empty("This token may not see any page: use an administrator's token."));
  // Live ticks show all tenants at once: callers who act for one tenant poll.
  if (WHOLE.some((page) => surface.pages.includes(page))) follow("/api/v1/console/live", tick, lively, new AbortController().signal);
  else lively("polling");
  setInterval(() => { if (!alive) tick("poll", {}); }, POLL_MS);
  addEventListener("hashchange", show);
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
  const name = surface.pages.includes(page) ? page : surface.pages[0];
  // If the user has left a page before it is loaded, it draws into an element that is no longer shown.
  const turn = ++turns;
  const place = h("div", {});
  listeners.clear();
  if (leave) leave();
  leave = null;
  for (const link of document.querySelectorAll("#nav a")) {
    link.removeAttribute("aria-current");
    if (link.dataset.page !== name) continue;
    link.setAttribute("aria-current", "page");
    link.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  document.title = `${TITLES[name] ?? name} · Carillon`;
  fill(main, fill(place, h("p", { class: "quiet", role: "status", text: "Loading…" })));
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

function broken(error, again) {
  const said = error instanceof Problem ? error.message : "This page could not be loaded. Is Carillon running?";
  if (!(error instanceof Problem)) console.warn(error);
  fill(main, empty(said, h("button", { type: "button", text: "Try again", onclick: again })));
}

function login() {
  const field = h("input", { id: "token", type: "password", autocomplete: "off", required: true, spellcheck: "false" });
  const form = h("form", { class: "login", onsubmit: (event) => {
    event.preventDefault();
    remember(field.value.trim());
    start();
  } }, h("label", { for: "token", text: "Token or API key" }), field, h("button", { class: "primary", text: "Open the console" }),
  h("p", { class: "quiet", text: "The token stays in this tab. The console sends it as a header, never in a URL." }));
  fill(main, card("Sign in", token() ? h("p", { class: "bad", text: "This token is not accepted." }) : null, form));
  field.focus();
}

function theme() {
  const kept = localStorage.getItem("carillon.theme");
  if (kept) document.documentElement.dataset.theme = kept;
  document.getElementById("theme").onclick = () => {
    const dark = document.documentElement.dataset.theme
      ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    const next = dark ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    localStorage.setItem("carillon.theme", next);
  };
}

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
