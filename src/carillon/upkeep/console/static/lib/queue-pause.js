/** Pausing and resuming a queue by hand. */

import { ask } from "./api.js";
import { confirm } from "./dialog.js";
import { h, toast } from "./dom.js";
import { area } from "./forms.js";

const PAUSES = "/api/v1/admin/pauses";
const BY_HAND = { "X-Admin-Override": "true" };

/** The pauses of queues, by the name of the queue. */
export async function paused() {
  const { items } = await ask(PAUSES);
  return new Map(items.filter((one) => one.scope === "queue").map((one) => [one.name, one]));
}

/**
 * The button that pauses a queue, or resumes it.
 * @param {string} name
 * @param {object|undefined} pause what keeps its messages back now
 * @param {() => Promise<void>} draw
 */
export function brake(name, pause, draw) {
  const text = pause ? `Paused by ${pause.by}: ${pause.reason}` : "No process runs a message of this queue until somebody resumes it. Messages are taken and wait.";
  const word = pause ? "Resume" : "Pause";
  const act = async () => {
    const given = await confirm({ title: `${word} ${name}?`, text, fields: [area("pause-reason", "Reason, for the audit trail", { rows: 2, required: true, maxlength: 500 })], act: word });
    if (!given) return;
    try {
      await ask(pause ? `${PAUSES}/resume` : PAUSES, { method: "POST", headers: BY_HAND, body: { scope: "queue", name, reason: given["pause-reason"] } });
      toast(pause ? `${name} goes on.` : `${name} is paused.`);
    } catch (error) {
      toast(error.message, "bad");
    }
    await draw();
  };
  return h("button", { type: "button", id: "brake", text: word, onclick: act });
}
