/** Drills: make a provider slow, fail or refuse, send a message, and watch the failover. */

import { ask } from "../lib/api.js";
import { bar } from "../lib/charts.js";
import { badge, card, empty, fill, h, head, table, toast } from "../lib/dom.js";
import { choice, field, given, newest, refill, soon } from "../lib/forms.js";
import { number, percent } from "../lib/format.js";
import { lately } from "../lib/recent.js";
import { trial } from "../lib/trial.js";

/** A provider that fails more often than this is shown in red. */
const FAILING = 0.2;
const KINDS = [
  ["slow", "is slow"],
  ["unavailable", "fails"],
  ["refused", "refuses"],
  ["throttled", "asks to wait"],
  ["unknown", "loses its answer"],
];
const SENTENCES = {
  sent: "answers late",
  unavailable: "fails",
  refused: "refuses",
  throttled: "asks to wait",
  unknown: "loses its answer",
};

/**
 * @param {HTMLElement} main
 * @param {{surface: object, onTick: (call: () => void) => void, go: (hash: string) => void}} shell
 */
export async function render(main, shell) {
  const places = { drills: h("div", {}), chains: h("div", {}), lately: h("div", {}) };
  const asking = newest();
  const draw = async () => {
    const still = asking();
    const [drills, providers, overview] = await Promise.all([
      ask("/api/v1/sandbox/drills"),
      ask("/api/v1/admin/providers"),
      ask("/api/v1/console/overview"),
    ]);
    if (!still()) return;
    refill(places.drills, underWay(drills, draw));
    fill(places.chains, chains(providers.items, drills, shell.surface.sandboxes));
    refill(places.lately, overview.recent.length ? lately(overview.recent, 10, shell.surface.pages) : empty("No failure and no open breaker in this process."));
  };
  const sent = trial(shell);
  fill(
    main,
    h(
      "div",
      { class: "page" },
      head("Drills"),
      h("div", { class: "two" }, card("Begin", begin(shell, draw)), card("Under way", places.drills)),
      card("Order of failover", places.chains),
      h("div", { class: "two" }, sent.element, card("Recent events", places.lately)),
    ),
  );
  await Promise.all([draw(), sent.start()]);
  const later = soon(() => draw().catch(() => {}), 500);
  shell.onTick(later);
  const poll = setInterval(later, 3000);
  return () => {
    clearInterval(poll);
    later.stop();
    sent.stop();
  };
}

function begin(shell, draw) {
  const providers = [["", "every sandbox"], ...shell.surface.sandboxes];
  const form = h(
    "form",
    {
      class: "filters",
      onsubmit: (event) => {
        event.preventDefault();
        return start(given(form))
          .then(draw)
          .catch((error) => toast(error.message, "bad"));
      },
    },
    choice("channel", "Channel", [["*", "every channel"], ...shell.surface.channels]),
    choice("provider", "Provider", providers),
    choice("kind", "Behaviour", KINDS, { onchange: () => fit(form) }),
    field("delay", "Delay of the answer, in seconds", { type: "number", min: 0, max: 600, step: "any" }),
    field("times", "Number of calls per message", {
      type: "number",
      min: 1,
      max: 1000,
      placeholder: "all",
    }),
    field("wait", "Retry-After, in seconds", { type: "number", min: 0, max: 86400, step: "any" }),
    h("button", { class: "primary", text: "Begin the drill" }),
  );
  fit(form);
  return [
    form,
    h("p", {
      class: "quiet",
      text: "Drills affect sandboxes only, never a real provider. They end with this process.",
    }),
    shell.surface.pages.includes("rehearsal")
      ? h("p", {}, h("a", { href: "#/rehearsal", text: "Rehearse a whole outage in virtual time" }))
      : null,
  ];
}

/** Show only the fields that the chosen answer needs. */
function fit(form) {
  const kind = form.elements.kind.value;
  form.elements.delay.value = kind === "slow" ? "5" : "";
  form.elements.delay.required = kind === "slow";
  form.elements.wait.closest("div").hidden = !["throttled", "unavailable"].includes(kind);
}

async function start(asked) {
  const drill = { outcome: asked.kind === "slow" ? "sent" : asked.kind };
  if (asked.delay) drill.delaySeconds = Number(asked.delay);
  if (asked.times) drill.times = Number(asked.times);
  if (asked.wait && ["throttled", "unavailable"].includes(asked.kind)) drill.retryAfter = Number(asked.wait);
  const name = asked.provider ? `${asked.channel}@${asked.provider}` : asked.channel;
  await ask(`/api/v1/sandbox/drills/${encodeURIComponent(name)}`, { method: "PUT", body: drill });
  toast(`${named(name)} ${said(drill)} from now on.`);
}

function named(name) {
  const [channel, provider] = name.split("@");
  return `${provider ?? "Every sandbox"}${channel === "*" ? "" : ` on ${channel}`}`;
}

function said(drill) {
  const more = [
    drill.delaySeconds ? `after ${drill.delaySeconds} s` : "",
    drill.times ? `the first ${drill.times} of each message` : "",
    drill.retryAfter ? `for ${drill.retryAfter} s` : "",
  ]
    .filter(Boolean)
    .join(", ");
  return `${SENTENCES[drill.outcome ?? "sent"]}${more ? ` (${more})` : ""}`;
}

function underWay(drills, draw) {
  const names = Object.keys(drills);
  if (!names.length) return empty("No drill is running: every sandbox accepts its messages.");
  const end = (name) =>
    h("button", {
      type: "button",
      text: "End",
      "aria-label": `End the drill of ${named(name)}`,
      onclick: async () => {
        await ask(`/api/v1/sandbox/drills/${encodeURIComponent(name)}`, { method: "DELETE" });
        await draw();
      },
    });
  return h(
    "div",
    { class: "slim" },
    table(
      "Running drills",
      ["provider", "behaviour", ""],
      names.map((name) => [named(name), said(drills[name]), end(name)]),
    ),
  );
}

/** Each channel with its providers in the order of failover. */
function chains(providers, drills, sandboxes) {
  const channels = Map.groupBy(providers, (one) => one.channel);
  return h(
    "ul",
    { class: "chains" },
    [...channels].map(([channel, row]) =>
      h(
        "li",
        {},
        h("b", { text: channel }),
        h(
          "ol",
          {},
          row.toSorted((one, other) => one.position - other.position).map((one) => link(one, drills, sandboxes)),
        ),
      ),
    ),
  );
}

function link(one, drills, sandboxes) {
  const drill = sandboxes.includes(one.provider)
    ? (drills[`${one.channel}@${one.provider}`] ?? drills[one.channel] ?? drills[`*@${one.provider}`] ?? drills["*"])
    : null;
  return h(
    "li",
    { class: `link ${drill ? "drilled" : ""}` },
    h("div", { class: "row" }, h("span", { text: one.provider }), badge(one.state)),
    h("div", { class: "shared" }, bar(one.share), percent(one.share)),
    h("div", {
      class: one.failures + one.refusals > FAILING * one.attempts ? "bad" : "quiet",
      text: one.attempts ? `${number(one.failures + one.refusals)} of ${number(one.attempts)} failed or refused` : "not called yet",
    }),
    drill ? h("div", { class: "wait", text: said(drill) }) : null,
  );
}
