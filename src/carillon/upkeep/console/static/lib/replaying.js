/** Replaying by hand what went to one endpoint since a time: choose, count, replay. */

import { ask } from "./api.js";
import { confirm } from "./dialog.js";
import { h, toast } from "./dom.js";
import { area, choice, field } from "./forms.js";
import { inUtc, local, many, moment, number } from "./format.js";

const BY_HAND = { "X-Admin-Override": "true" };
const HOUR_MS = 3_600_000;
const WHICH = [
  ["failed", "what ended in failure"],
  ["all", "everything, also what it took"],
];
const RATES = [
  ["", "all at once"],
  ["1", "1 a second"],
  ["5", "5 a second"],
  ["20", "20 a second"],
  ["100", "100 a second"],
];

/**
 * Ask for the time, count, and replay if the operator says so; the id of the redrive, or null.
 * @param {{provider: string, endpoint: string}|null} one the endpoint, or null to ask for it
 * @param {string[]} providers the providers that call endpoints
 */
export async function replay(one, providers) {
  const named = one
    ? []
    : [choice("provider", "Provider", providers), field("endpoint", "Host and port, or a registered URL", { required: true, maxlength: 2000, placeholder: "hooks.example.org:443" })];
  const given = await confirm({
    title: one ? `Replay to ${one.endpoint}` : "Replay to an endpoint",
    text: "Each notification is sent again under its old id, so that a receiver that remembers ids takes it once.",
    fields: [
      ...named,
      field("since", "Since", { type: "datetime-local", step: 1, required: true, value: local(Date.now() - HOUR_MS, "YYYY-MM-DDThh:mm:ss".length) }),
      choice("which", "What", WHICH),
      choice("rate", "How fast", RATES),
    ],
    act: "Count first",
  });
  if (!given) return null;
  const body = {
    provider: one?.provider ?? given.provider,
    endpoint: one?.endpoint ?? given.endpoint,
    since: inUtc(given.since),
    delivered: given.which === "all",
    ratePerSecond: Number(given.rate) || null,
  };
  const found = await send({ ...body, reason: "count", dryRun: true });
  const total = found.failed + found.delivered - found.suppressed;
  if (!total) {
    toast(found.suppressed ? `All ${number(found.suppressed)} stay: their address is suppressed.` : `Nothing for ${found.endpoint} since ${moment(body.since)}.`);
    return null;
  }
  const sure = await confirm({
    title: `Replay ${many(total, "notification")}?`,
    text: counted(found, body),
    fields: [area("reason", "Reason, for the audit trail", { rows: 2, required: true, maxlength: 1000 })],
    act: `Replay ${number(total)}`,
  });
  if (!sure) return null;
  const done = await send({ ...body, reason: sure.reason });
  toast(`${many(done.replayed, "notification")} to ${done.endpoint} ${done.replayed === 1 ? "has its" : "have their"} turn.`);
  return done.actionId;
}

function send(body) {
  return ask("/api/v1/admin/targets/replay", { method: "POST", headers: BY_HAND, body });
}

function counted(found, body) {
  const taken = body.delivered ? `, and it took ${number(found.delivered)}` : "";
  const held = found.suppressed ? ` ${number(found.suppressed)} stay, because their address is suppressed.` : "";
  const turn = body.ratePerSecond ? ` The last has its turn at ${moment(found.lastTurnAt)}.` : "";
  return h("p", { id: "counted", text: `${many(found.failed, "notification")} to ${found.endpoint} ended in failure since ${moment(body.since)}${taken}.${held}${turn}` });
}
