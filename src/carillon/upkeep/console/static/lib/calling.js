/** Calling an endpoint again whose breaker is open, or that was disabled for its failures: after a question, with a reason. */

import { ask } from "./api.js";
import { confirm } from "./dialog.js";
import { h, toast } from "./dom.js";
import { area } from "./forms.js";

/**
 * The button of one endpoint.
 * @param {{provider: string, endpoint: string}} one
 * @param {() => Promise<any>} draw
 */
export function calling(one, draw) {
  return h("button", { type: "button", id: `call-${one.provider}-${one.endpoint}`, text: "Call again", "aria-label": `Call ${one.endpoint} again at once`, onclick: () => call(one, draw) });
}

async function call({ provider, endpoint }, draw) {
  const fields = [area("reason", "Reason", { rows: 2, required: true, maxlength: 500 })];
  const given = await confirm({ title: `Call ${endpoint} again?`, text: "Its breaker closes with nothing counted.", fields, act: "Call again" });
  if (!given) return;
  try {
    await ask("/api/v1/admin/targets/enable", { method: "POST", headers: { "X-Admin-Override": "true" }, body: { provider, endpoint, reason: given.reason } });
    toast(`${endpoint} is called again.`);
  } catch (error) {
    toast(error.message, "bad");
  }
  await draw();
}
