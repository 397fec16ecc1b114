/** Lifting a suppression, after a question. */

import { ask } from "./api.js";
import { confirm } from "./dialog.js";
import { toast } from "./dom.js";

/**
 * @param {{id: string, address: string, tenantId: string|null, reason: string|null, kind: string}} one
 * @param {() => Promise<any>} again draws the page anew
 */
export async function lift(one, again) {
  const asked = await confirm({ title: "Send to this address again?", text: `${one.address} is suppressed: ${one.reason ?? one.kind}`, act: "Lift the suppression" });
  if (!asked) return;
  try {
    await ask(`/api/v1/suppressions/${one.id}`, { method: "DELETE" });
    toast(`Messages to ${one.address} are sent again.`, "good");
  } catch (error) {
    // What holds for everybody is the operators' to lift.
    toast(error.status === 404 && !one.tenantId ? "Only an operator may lift a suppression that holds for every tenant." : error.message, "bad");
  }
  await again();
}
