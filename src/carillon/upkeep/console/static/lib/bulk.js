/** Actions on many notifications: each counts first, asks for a reason, and says what it did. */

import { ask } from "./api.js";
import { confirm } from "./dialog.js";
import { toast } from "./dom.js";
import { choice, field } from "./forms.js";
import { many } from "./format.js";

const BY_HAND = { "X-Admin-Override": "true" };
const RATES = [["", "all at once"], ["5", "5 a second"], ["20", "20 a second"], ["100", "100 a second"]];
/** Filters of the search that cancelling understands too. */
const CANCELLED_BY = ["userId", "templateKey", "channel", "acceptedAfter", "acceptedBefore"];
/** Filters of the search that redriving understands too. */
const REDRIVEN_BY = ["templateKey", "channel", "tenantId"];

/** Which actions fit the filters: those that would touch exactly what is shown. */
export function fitting(asked) {
  const given = Object.keys(asked).filter((name) => asked[name] && name !== "status");
  return {
    // The API cancels nothing without a filter.
    cancel: asked.status === "queued" && given.length > 0 && given.every((name) => CANCELLED_BY.includes(name)),
    redrive: asked.status === "failed" && given.every((name) => REDRIVEN_BY.includes(name)),
  };
}

/** Cancel those chosen, or all that the filters match. */
export async function cancel(chosen, asked, done) {
  const each = chosen.length ? chosen.map((one) => ({ notificationId: one.id })) : [pick(asked, CANCELLED_BY)];
  const counted = sum(await Promise.all(each.map((body) => post("/api/v1/notifications/cancel", { ...body, dryRun: true }))));
  if (!counted.waiting && !counted.tooLate) return toast("None of them waits any more.", "bad");
  const late = counted.tooLate ? ` ${many(counted.tooLate, "route is", "routes are")} in a provider's call and cannot be stopped.` : "";
  const given = await confirm({ title: `Cancel ${many(counted.notifications, "notification")}?`, danger: true, act: "Cancel them",
    text: `${many(counted.waiting, "route that waits is", "routes that wait are")} skipped for good.${late}` });
  if (!given) return null;
  const ended = sum(await Promise.all(each.map((body) => post("/api/v1/notifications/cancel", body))));
  toast(`${many(ended.done, "route is", "routes are")} cancelled.`);
  return done();
}

/** Give the dead letters of those chosen, or of all that match, a fresh budget. */
export async function redrive(chosen, asked, done) {
  const items = chosen.flatMap((one) => one.routes.filter((route) => route.status === "failed").map((route) => ({ notificationId: one.id, routeId: route.routeId })));
  if (chosen.length && !items.length) return toast("None of them was given up.", "bad");
  const body = items.length ? { items } : pick(asked, REDRIVEN_BY);
  const counted = await post("/api/v1/admin/redrive", { ...body, reason: "count", dryRun: true });
  if (!counted.matched) return toast("There is no dead letter among them.", "bad");
  const held = counted.suppressed ? ` ${many(counted.suppressed, "stays", "stay")}, because the address is suppressed.` : "";
  const given = await confirm({ title: `Try ${many(counted.matched, "dead letter")} again?`, act: "Try again",
    text: `Each keeps its id and gets a fresh budget.${held}`,
    fields: [field("reason", "Reason, for the audit trail", { required: true, maxlength: 1000 }), choice("rate", "How fast", RATES)] });
  if (!given) return null;
  const found = await post("/api/v1/admin/redrive", { ...body, reason: given.reason, ratePerSecond: Number(given.rate) || null });
  toast(`${many(found.redriven, "dead letter is", "dead letters are")} tried again.`);
  return done();
}

function post(path, body) {
  return ask(path, { method: "POST", headers: BY_HAND, body });
}

function pick(asked, names) {
  return Object.fromEntries(names.filter((name) => asked[name]).map((name) => [name, asked[name]]));
}

function sum(answers) {
  const total = { notifications: 0, waiting: 0, tooLate: 0, done: 0 };
  for (const one of answers) for (const name of Object.keys(total)) total[name] += one[name];
  return total;
}
