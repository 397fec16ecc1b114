/** Providers: how fast they answer and how they fail, their breakers and rates; pausing, resuming and forcing. */

import { ask } from "../lib/api.js";
import { confirm, show as dialog } from "../lib/dialog.js";
import { badge, card, empty, fill, h, head, num, table, titled, toast, when } from "../lib/dom.js";
import { area, choice, field, live, newest, refill } from "../lib/forms.js";
import { many, millis, number, percent, span } from "../lib/format.js";

const PATH = "/api/v1/admin/pauses";
const OVERRIDE = { "X-Admin-Override": "true" };
/** The first steps of the runbook's pages; the documentation has the whole pages. */
const RUNBOOK = {
  closed: ["provider-fails.md", "Read the newest error: a refused key or a wrong sender is ours, a 5xx is theirs.", "Look at the vendor's status page.", "If messages are lost or sent twice, pause the provider. If another one can take over, open its breaker.", "Afterwards, redrive the dead letters, slowly."],
  open: ["breaker-opens.md", "Calls go to the next provider of the chain; without one, notifications wait and nothing is lost.", "Read the newest error and the vendor's status page.", "When the vendor is back, the breaker closes by itself; “Probe now” does not wait for its time.", "Afterwards, redrive the dead letters, slowly."],
};
const SLOW_MS = 2000;
/** What this page is about. */
const ABOUT = ["failing", "breaker", "pause"];

/**
 * @param {HTMLElement} main
 * @param {object} shell
 */
export async function render(main, shell) {
  const parts = { human: h("div", {}), cards: h("div", { class: "providers" }), pauses: h("div", {}), lanes: h("div", {}), rates: h("div", {}), history: h("div", {}) };
  const fresh = newest();
  const draw = async () => {
    const still = fresh();
    const [providers, pauses, targets, overview, audit] = await Promise.all([
      ask("/api/v1/admin/providers"),
      ask(PATH),
      ask("/api/v1/admin/targets"),
      ask("/api/v1/console/overview"),
      ask("/api/v1/admin/audit", { query: { pageSize: 100 } }),
    ]);
    if (still()) show(parts, { providers: providers.items, pauses: pauses.items, targets: targets.items, overview, audit: audit.items }, draw);
  };
  await draw();
  fill(
    main,
    h(
      "div",
      { class: "page" },
      head("Providers", h("button", { type: "button", class: "primary", id: "pause-something", text: "Pause something", onclick: () => pauseSomething(parts, draw) })),
      parts.human,
      parts.cards,
      parts.pauses,
      h("div", { class: "two" }, parts.lanes, parts.rates),
      parts.history,
    ),
  );
  return live(shell, draw);
}

function show(parts, found, draw) {
  parts.names = [...new Set(found.providers.map((one) => one.provider))];
  parts.laneNames = found.overview.lanes.map((one) => one.name);
  refill(parts.human, verdict(found));
  refill(parts.cards, grouped(found.providers).map(([name, rows]) => providerCard(name, rows, found, draw)));
  refill(parts.pauses, paused(found.pauses, draw));
  refill(parts.lanes, lanes(found, draw));
  refill(parts.rates, rates(found.targets));
  refill(parts.history, history(found));
}

/** What needs attention, in one sentence each; nothing if all is well. */
function verdict({ overview }) {
  const troubles = overview.attention.notes.filter((one) => ABOUT.includes(one.about));
  if (!troubles.length) return h("section", { class: "card human calm" }, h("p", { text: "Every provider is called, and every breaker is closed." }));
  const worst = troubles.some((one) => one.mood === "bad") ? "needed" : "watch";
  return h("section", { class: `card human ${worst}` }, h("h2", { text: "Needs attention" }), h("ul", {}, troubles.map((one) => h("li", { class: one.mood }, h("span", { text: one.text })))));
}

/** One provider may serve several channels: its rows together. */
function grouped(items) {
  const found = new Map();
  for (const one of items) found.set(one.provider, [...(found.get(one.provider) ?? []), one]);
  return [...found];
}

function providerCard(name, rows, found, draw) {
  const pause = found.pauses.find((one) => one.scope === "provider" && one.name === name);
  const sum = (key) => rows.reduce((total, row) => total + row[key], 0);
  // A call of the sandbox may take no measurable time: nought is a time, too.
  const slowest = (key) => rows.map((row) => row[key] ?? null).reduce((most, one) => (one === null ? most : Math.max(most ?? 0, one)), null);
  const share = (key) => (sum("attempts") ? sum(key) / sum("attempts") : null);
  const figures = [
    ["calls", number(sum("attempts"))],
    ["failed", percent(share("failures")), share("failures") > 0.2 ? "bad" : ""],
    ["refused", percent(share("refusals")), share("refusals") > 0.2 ? "bad" : ""],
    ["p50", millis(slowest("p50Ms"))],
    ["p95", millis(slowest("p95Ms")), slowest("p95Ms") > SLOW_MS ? "wait" : ""],
  ];
  return h(
    "section",
    { class: "card provider", "aria-label": name },
    h("div", { class: "title" }, h("h2", { text: name }), h("span", { class: "grow" }), pause ? badge("paused") : null, badge(rows[0].state)),
    h("p", { class: "quiet", text: rows.map((row) => `${row.channel}${row.position ? `, ${ordinal(row.position)} choice` : ""}`).join(" · ") }),
    h("dl", { class: "numbers" }, figures.map(([label, value, mood]) => h("div", {}, h("dt", { text: label }), h("dd", { class: mood ?? "", text: value })))),
    sum("attempts") ? errors(rows) : h("p", { class: "quiet", text: "Not called yet." }),
    h("div", { class: "row acts" }, actions(name, rows[0].state, pause, draw)),
  );
}

function ordinal(position) {
  return ["first", "second", "third"][position] ?? `${position + 1}th`;
}

function errors(rows) {
  const all = new Map();
  for (const one of rows.flatMap((row) => row.errors)) {
    const held = all.get(one.classification) ?? { count: 0 };
    all.set(one.classification, { count: held.count + one.count, error: one.error });
  }
  if (!all.size) return h("p", { class: "quiet", text: "All of the newest calls went well." });
  const shown = [...all].toSorted(([, one], [, other]) => other.count - one.count).slice(0, 4);
  return h(
    "ul",
    { class: "errors" },
    shown.map(([word, { count, error }]) => h("li", {}, h("span", { class: "badge bad", text: `${word.replaceAll("_", " ")} × ${number(count)}` }), h("span", { class: "quiet", title: error ?? "", text: error ?? "" }))),
  );
}

function actions(name, state, pause, draw) {
  return [
    pause
      ? h("button", { type: "button", id: `resume-${name}`, text: "Resume", "aria-label": `Resume ${name}`, onclick: () => resume(pause, draw) })
      : h("button", { type: "button", id: `pause-${name}`, text: "Pause", "aria-label": `Pause ${name}`, onclick: () => pauseOne("provider", name, draw) }),
    state === "closed"
      ? h("button", { type: "button", id: `force-${name}`, text: "Open breaker", "aria-label": `Open the breaker of ${name}`, onclick: () => force(name, "open", draw) })
      : h("button", { type: "button", id: `force-${name}`, text: "Probe now", "aria-label": `Let a message probe ${name} now`, onclick: () => force(name, "half_open", draw) }),
    h("button", { type: "button", class: "ghost", text: "Runbook", "aria-label": `Runbook for ${name}`, onclick: () => runbook(name, state) }),
    h("a", { href: `#/dead-letters?provider=${encodeURIComponent(name)}`, text: "Dead letters", "aria-label": `Dead letters of ${name}` }),
  ];
}

function runbook(name, state) {
  const [page, ...steps] = RUNBOOK[state] ?? RUNBOOK.open;
  const more = h("p", { class: "quiet" }, "The whole page: ", h("code", { text: `docs/runbook/${page}` }));
  dialog(state === "closed" ? `${name} fails` : `The breaker of ${name} is open`, h("ol", {}, steps.map((text) => h("li", { text }))), more);
}

function paused(items, draw) {
  if (!items.length) return null;
  return titled(
    "Paused",
    null,
    table(
      "Paused",
      ["what", "since", "by", "reason", ""],
      items.map((one) => [
        h("b", { text: one.what }),
        when(one.since),
        one.by,
        one.reason,
        h("button", { type: "button", text: "Resume", "aria-label": `Resume ${one.what}`, onclick: () => resume(one, draw) }),
      ]),
      { cards: true },
    ),
  );
}

function lanes({ overview, pauses }, draw) {
  const held = (name) => pauses.find((one) => one.scope === "lane" && one.name === name);
  if (!overview.lanes.length) return card("Lanes", empty("Nothing has waited in a lane yet."));
  return card(
    "Lanes",
    table(
      "Lanes",
      ["lane", num("due"), num("under way"), num("oldest"), ""],
      overview.lanes.map((one) => [
        h("span", { class: "row" }, one.name, held(one.name) ? badge("paused") : null),
        number(one.due),
        number(one.leased),
        span(one.oldestDueSeconds),
        held(one.name)
          ? h("button", { type: "button", text: "Resume", "aria-label": `Resume lane ${one.name}`, onclick: () => resume(held(one.name), draw) })
          : h("button", { type: "button", text: "Pause", "aria-label": `Pause lane ${one.name}`, onclick: () => pauseOne("lane", one.name, draw) }),
      ]),
      { cards: true },
    ),
  );
}

function rates(targets) {
  const shown = targets.filter((one) => one.perSecond !== null || one.pausedUntil);
  if (!shown.length) return card("Rates", empty("No rate is configured, and no receiver has complained."));
  return card(
    "Rates",
    table(
      "Rates",
      ["who", num("a second"), "asked to wait until"],
      shown.map((one) => [one.tenantId ? `tenant ${one.tenantId}` : [one.provider, one.endpoint].filter(Boolean).join(" "), number(one.perSecond), when(one.pausedUntil)]),
      { cards: true },
    ),
  );
}

/** Breakers that changed, as this process saw them, and what operators did by hand. */
function history({ overview, audit }) {
  const byHand = new Set(["pause", "resume", "force_open", "force_half_open", "enable_endpoint"]);
  const seen = [
    ...overview.recent
      .filter((one) => one.type === "breaker_changed")
      .map((one) => ({ at: one.at * 1000, who: "breaker", what: `${[one.provider, one.endpoint].filter(Boolean).join(" ")}: ${one.before.replace("_", " ")} → ${one.after.replace("_", " ")}`, why: one.probes ? many(one.probes, "failed probe") : "" })),
    ...audit.filter((one) => byHand.has(one.action)).map((one) => ({ at: Date.parse(one.at), who: one.actor, what: `${one.action.replaceAll("_", " ")}: ${one.subject}`, why: one.reason ?? "" })),
  ].toSorted((one, other) => other.at - one.at);
  return titled(
    "What changed",
    h("a", { href: "#/audit", text: "Audit" }),
    seen.length
      ? table("What changed", ["when", "who", "what", "why"], seen.slice(0, 20).map((one) => [when(one.at / 1000), one.who, one.what, one.why || "–"]), { cards: true })
      : empty("No breaker has changed since this process began, and nobody has paused anything."),
  );
}

const why = () => area("reason", "Reason", { rows: 2, required: true, maxlength: 500, placeholder: "Shown to everybody who asks why something waits" });

async function act(path, body, done, draw) {
  try {
    const answer = await ask(path, { method: "POST", headers: OVERRIDE, body });
    toast(done(answer));
  } catch (error) {
    toast(error.message, "bad");
  }
  await draw();
}

async function pauseOne(scope, name, draw) {
  const text = `Notifications are accepted and wait, in every process, until somebody resumes ${scope} ${name}. No other provider is tried for them.`;
  const given = await confirm({ title: `Pause ${scope} ${name}?`, text, fields: [why()], act: "Pause" });
  if (given) await act(PATH, { scope, name, reason: given.reason }, (answer) => `${answer.what} is paused.`, draw);
}

async function pauseSomething(parts, draw) {
  const fields = [
    choice("scope", "What", ["provider", "lane", "template", "tenant", "endpoint"]),
    field("name", "Name", { required: true, maxlength: 400, list: "pause-names", placeholder: "its name, or host:port of an endpoint" }),
    h("datalist", { id: "pause-names" }, [...parts.names, ...parts.laneNames].map((value) => h("option", { value }))),
    why(),
  ];
  const text = "Notifications are accepted and wait, in every process, until somebody resumes them.";
  const given = await confirm({ title: "Pause something", text, fields, act: "Pause" });
  if (given) await act(PATH, { scope: given.scope, name: given.name, reason: given.reason }, (answer) => `${answer.what} is paused.`, draw);
}

async function resume(one, draw) {
  const given = await confirm({ title: `Resume ${one.what}?`, text: `Paused by ${one.by}: ${one.reason}`, fields: [why()], act: "Resume" });
  if (!given) return;
  const body = { scope: one.scope, name: one.name, reason: given.reason, ...(one.provider ? { provider: one.provider } : {}) };
  await act(`${PATH}/resume`, body, (answer) => `${answer.what} goes on.`, draw);
}

async function force(provider, to, draw) {
  const text =
    to === "open"
      ? "Calls go to the next provider of the chain. After its usual time the breaker lets a message probe this one."
      : "The next message goes to this provider; if it gets through, the breaker closes.";
  const title = to === "open" ? `Open the breaker of ${provider}?` : `Let a message probe ${provider} now?`;
  const given = await confirm({ title, text, fields: [why()], act: to === "open" ? "Open it" : "Probe it" });
  if (given) await act("/api/v1/admin/breakers", { provider, to, reason: given.reason }, (answer) => `The breaker of ${answer.provider} is ${answer.state.replace("_", " ")}.`, draw);
}
