/** Endpoints of webhooks: which are in trouble, kept at a pace or disabled by hand; disabling and enabling. */

import { ask } from "../lib/api.js";
import { confirm } from "../lib/dialog.js";
import { badge, card, empty, fill, h, head, num, table, toast, when } from "../lib/dom.js";
import { area, choice, field, live, newest, refill } from "../lib/forms.js";
import { number } from "../lib/format.js";

const PAUSES = "/api/v1/admin/pauses";
const OVERRIDE = { "X-Admin-Override": "true" };
const ORDER = ["disabled by hand", "disabled", "open", "half_open", "closed"];

/**
 * @param {HTMLElement} main
 * @param {object} shell
 */
export async function render(main, shell) {
  const rows = h("div", {});
  const fresh = newest();
  const state = { providers: ["webhook"] };
  const draw = async () => {
    const still = fresh();
    const [targets, pauses] = await Promise.all([ask("/api/v1/admin/targets"), ask(PAUSES)]);
    if (!still()) return;
    state.items = joined(targets.items, pauses.items);
    state.providers = [...new Set(["webhook", ...state.items.map((one) => one.provider)])];
    refill(rows, shown(state.items, targets, draw));
  };
  await draw();
  fill(
    main,
    h(
      "div",
      { class: "page" },
      head("Endpoints", h("button", { type: "button", class: "primary", id: "disable-one", text: "Disable an endpoint", onclick: () => disable(state, null, draw) })),
      card(null, h("p", { class: "quiet", text: "Endpoints that are not listed work, and keep no pace that was learnt. A disabled endpoint is not called: what is for it is accepted and waits." }), rows),
    ),
  );
  return live(shell, draw);
}

/** What the fleet knows about each endpoint, and what operators did by hand. */
function joined(targets, pauses) {
  const found = new Map(targets.filter((one) => one.endpoint).map((one) => [`${one.provider} ${one.endpoint}`, { ...one, pause: null }]));
  for (const pause of pauses.filter((one) => one.scope === "endpoint")) {
    const key = `${pause.provider} ${pause.name}`;
    const known = found.get(key) ?? { provider: pause.provider, endpoint: pause.name, state: "closed", failures: 0, perSecond: null };
    found.set(key, { ...known, pause });
  }
  const rank = (one) => ORDER.indexOf(one.pause ? "disabled by hand" : one.state);
  return [...found.values()].toSorted((one, other) => rank(one) - rank(other) || one.endpoint.localeCompare(other.endpoint));
}

function shown(items, targets, draw) {
  if (!items.length) return empty("Every endpoint works.");
  return [
    table(
      "Endpoints",
      ["endpoint", "state", num("failures in a row"), "failing since", "next probe", "pace", ""],
      items.map((one) => [
        h("div", {}, h("b", { text: one.endpoint }), h("div", { class: "quiet", text: one.provider })),
        stateOf(one),
        number(one.failures),
        when(one.failingSince),
        when(one.nextProbeAt),
        one.perSecond === null ? "–" : `${number(one.perSecond)} a second`,
        h("span", { class: "row" }, actions(one, draw)),
      ]),
      { cards: true },
    ),
    items.some((one) => one.state === "disabled") ? h("p", {}, h("a", { href: "#/dead-letters", text: "Redrive what was given up" }), " after an endpoint is enabled.") : null,
    targets.totalCount > targets.items.length ? h("p", { class: "quiet", text: `The worst ${number(targets.items.length)} of ${number(targets.totalCount)} are shown.` }) : null,
  ];
}

function stateOf(one) {
  if (!one.pause) return badge(one.state);
  return h("div", {}, h("span", { class: "badge wait", text: "disabled by hand" }), h("div", { class: "quiet", text: `${one.pause.by}: ${one.pause.reason}` }));
}

function actions(one, draw) {
  const name = one.endpoint;
  return [
    one.pause
      ? h("button", { type: "button", id: `enable-${name}`, text: "Enable", "aria-label": `Enable ${name}`, onclick: () => enable(one, draw) })
      : h("button", { type: "button", id: `disable-${name}`, text: "Disable", "aria-label": `Disable ${name}`, onclick: () => disable(null, one, draw) }),
    !one.pause && one.state !== "closed"
      ? h("button", { type: "button", id: `call-${name}`, text: "Call again", "aria-label": `Call ${name} again at once`, onclick: () => close(one, draw) })
      : null,
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

async function close(one, draw) {
  const given = await confirm({ title: `Call ${one.endpoint} again?`, text: "Its breaker closes with nothing counted.", fields: [why()], act: "Call again" });
  if (given) await act("/api/v1/admin/targets/enable", { provider: one.provider, endpoint: one.endpoint, reason: given.reason }, `${one.endpoint} is called again.`, draw);
}
