/** Endpoints of webhooks: how each does that was called lately, which are in trouble; disabling, enabling and replaying. */

import { ask } from "../lib/api.js";
import { calling } from "../lib/calling.js";
import { confirm } from "../lib/dialog.js";
import { badge, card, empty, fill, h, head, num, table, toast, when } from "../lib/dom.js";
import { area, choice, field, live, newest, refill } from "../lib/forms.js";
import { many, millis, number, percent } from "../lib/format.js";
import { redrives } from "../lib/redrives.js";
import { replay } from "../lib/replaying.js";

const PAUSES = "/api/v1/admin/pauses";
const OVERRIDE = { "X-Admin-Override": "true" };
const ORDER = ["disabled by hand", "disabled", "open", "half_open", "closed"];

/**
 * @param {HTMLElement} main
 * @param {object} shell
 */
export async function render(main, shell) {
  const rows = h("div", {});
  const progress = h("div", {});
  const watched = redrives(progress, (one) => one.endpoint !== null);
  const fresh = newest();
  const state = { providers: ["webhook"] };
  const draw = async () => {
    const still = fresh();
    const [targets, pauses, lately] = await Promise.all([ask("/api/v1/admin/targets"), ask(PAUSES), ask("/api/v1/admin/endpoints")]);
    if (!still()) return;
    state.items = joined(targets.items, pauses.items, lately.items);
    state.providers = [...new Set(["webhook", ...state.items.map((one) => one.provider)])];
    refill(rows, shown(state.items, targets, (one) => again(one), draw));
  };
  const again = async (one) => {
    try {
      const id = await replay(one, state.providers);
      if (id) await watched.follow(id);
    } catch (error) {
      toast(error.message, "bad");
    }
  };
  await Promise.all([draw(), watched.look()]);
  fill(
    main,
    h(
      "div",
      { class: "page" },
      head(
        "Endpoints",
        h("button", { type: "button", id: "replay-one", text: "Replay to an endpoint", onclick: () => again(null) }),
        h("button", { type: "button", class: "primary", id: "disable-one", text: "Disable an endpoint", onclick: () => disable(state, null, draw) }),
      ),
      progress,
      card(null, h("p", { class: "quiet", text: "Calls, failures and times are those of the last ten to twenty minutes, in every process. An endpoint that somebody has disabled is not called: what is for it is accepted and waits. One that failed for days is disabled too: what is for it becomes a dead letter, and one message now and then probes it." }), rows),
    ),
  );
  const stop = live(shell, draw);
  return () => {
    stop();
    watched.stop();
  };
}

/** How each endpoint did lately, what the fleet knows about those in trouble, and what operators did by hand. */
function joined(targets, pauses, lately) {
  const none = { state: "closed", failures: 0, perSecond: null, pause: null, health: null };
  const found = new Map(targets.filter((one) => one.endpoint).map((one) => [`${one.provider} ${one.endpoint}`, { ...none, ...one }]));
  const known = (provider, endpoint) => found.get(`${provider} ${endpoint}`) ?? { ...none, provider, endpoint };
  for (const pause of pauses.filter((one) => one.scope === "endpoint")) found.set(`${pause.provider} ${pause.name}`, { ...known(pause.provider, pause.name), pause });
  for (const health of lately) found.set(`${health.provider} ${health.endpoint}`, { ...known(health.provider, health.endpoint), health });
  const rank = (one) => ORDER.indexOf(one.pause ? "disabled by hand" : one.state);
  return [...found.values()].toSorted(
    (one, other) => rank(one) - rank(other) || (other.health?.errorRate ?? 0) - (one.health?.errorRate ?? 0) || one.endpoint.localeCompare(other.endpoint),
  );
}

function shown(items, targets, again, draw) {
  if (!items.length) return empty("No endpoint was called lately, and none is in trouble.");
  return [
    table(
      "Endpoints",
      ["endpoint", "state", num("calls"), num("failed"), "last success", num("time"), "pace", ""],
      items.map((one) => [
        h("div", {}, h("b", { text: one.endpoint }), h("div", { class: "quiet", text: one.provider })),
        stateOf(one),
        number(one.health?.calls),
        one.health ? h("span", { class: "whole", text: `${number(one.health.failures)} (${percent(one.health.errorRate)})` }) : "–",
        when(one.health?.lastSuccessAt),
        one.health ? h("div", {}, millis(one.health.averageMs), h("div", { class: "quiet whole", text: `slowest ${millis(one.health.slowestMs)}` })) : "–",
        one.perSecond === null ? "–" : `${number(one.perSecond)} a second`,
        h("span", { class: "row" }, actions(one, again, draw)),
      ]),
      { cards: true },
    ),
    targets.totalCount > targets.items.length ? h("p", { class: "quiet", text: `The worst ${number(targets.items.length)} of ${number(targets.totalCount)} are shown.` }) : null,
  ];
}

function stateOf(one) {
  if (!one.pause) return h("div", {}, badge(one.state, one.state === "closed" ? "works" : undefined), trouble(one));
  return h("div", {}, h("span", { class: "badge wait", text: "disabled by hand" }), h("div", { class: "quiet", text: `${one.pause.by}: ${one.pause.reason}` }));
}

/** Since when it fails, and when it is tried again. */
function trouble(one) {
  if (!one.failures && !one.nextProbeAt) return null;
  return h(
    "div",
    { class: "quiet" },
    one.failures ? `${many(one.failures, "failure")} in a row` : null,
    one.failingSince ? [", the first ", when(one.failingSince)] : null,
    one.nextProbeAt ? ["; next probe ", when(one.nextProbeAt)] : null,
  );
}

function actions(one, again, draw) {
  const name = one.endpoint;
  return [
    h("button", { type: "button", id: `replay-${name}`, text: "Replay", "aria-label": `Replay to ${name}`, onclick: () => again(one) }),
    one.pause
      ? h("button", { type: "button", id: `enable-${name}`, text: "Enable", "aria-label": `Enable ${name}`, onclick: () => enable(one, draw) })
      : h("button", { type: "button", id: `disable-${name}`, text: "Disable", "aria-label": `Disable ${name}`, onclick: () => disable(null, one, draw) }),
    !one.pause && one.state !== "closed" ? calling(one, draw) : null,
  ];
}

const why = () => area("reason", "Reason", { rows: 2, required: true, maxlength: 500 });

async function act(path, body, said, draw) {
  try {
    await ask(path, { method: "POST", headers: OVERRIDE, body });
    toast(said);
  } catch (error) {
    toast(error.message, "bad");
  }
  await draw();
}

async function disable(state, one, draw) {
  const named = one
    ? []
    : [choice("provider", "Provider", state.providers), field("endpoint", "Host and port", { required: true, maxlength: 400, placeholder: "hooks.example.org:443", pattern: "\\S+:\\d+" })];
  const text = "No process calls the endpoint until somebody enables it. Notifications for it are accepted and wait.";
  const given = await confirm({ title: one ? `Disable ${one.endpoint}?` : "Disable an endpoint", text, fields: [...named, why()], act: "Disable" });
  if (!given) return;
  const { provider, endpoint } = one ?? given;
  await act(PAUSES, { scope: "endpoint", name: endpoint, provider, reason: given.reason }, `${endpoint} is not called any more.`, draw);
}

async function enable(one, draw) {
  const given = await confirm({ title: `Enable ${one.endpoint}?`, text: `Disabled by ${one.pause.by}: ${one.pause.reason}`, fields: [why()], act: "Enable" });
  if (given) await act(`${PAUSES}/resume`, { scope: "endpoint", name: one.endpoint, provider: one.provider, reason: given.reason }, `${one.endpoint} is called again.`, draw);
}
