/** Queues: their depths, handlers and failed messages; requeueing, pausing and resuming. */

import { ask, Problem } from "../lib/api.js";
import { sampled } from "../lib/sampled.js";
import { badge, card, counted, empty, fill, h, head, num, say, table, toast } from "../lib/dom.js";
import { choice, field, given, live, newest, none, recall, refill, standing, turned } from "../lib/forms.js";
import { millis, moment, number, span } from "../lib/format.js";
import { auditOf } from "../lib/queue-audit.js";
import { brake, paused } from "../lib/queue-pause.js";

const FAILED = 50;
const LOGS = 25;
const LEVELS = [
  { name: "waiting", mood: "plain" },
  { name: "under way", mood: "good" },
  { name: "delayed", mood: "wait" },
  { name: "failed", mood: "bad" },
];
const STATUSES = ["received", "processing", "success", "retry", "failed", "dead"];

/**
 * @param {HTMLElement} main
 * @param {{surface: object, onTick: (call: () => void) => void, go: (hash: string) => void}} shell
 * @param {string[]} rest what follows the page in the address
 */
export async function render(main, shell, [name]) {
  return name ? one(main, shell, name) : list(main, shell);
}

async function list(main, shell) {
  const page = h("div", { class: "page" });
  const logs = logsOf(shell, null);
  const audit = auditOf(shell, null);
  const top = h("div", { class: "page" });
  const depths = sampled("Messages that wait, are delayed and failed, while this page is open", LEVELS);
  const asking = newest();
  const draw = async () => {
    const still = asking();
    const [{ queues }, held] = await Promise.all([ask("/ops/queues"), paused()]);
    if (!still()) return;
    refill(top, figures(queues), card("Queues", h("div", { class: "broad" }, overview(queues, held))));
    depths.add(levels(queues));
    await Promise.all([logs.draw(), audit.draw()]);
  };
  fill(page, head("Queues", badge(shell.surface.blueprint)), top, card("Depth while this page is open", depths.element), logs.element, audit.element);
  await draw();
  fill(main, page);
  return live(shell, draw);
}

/** The numbers of the chart, in the order of LEVELS. */
function levels(queues) {
  return ["main", "processing", "delayed", "failed"].map((name) => queues.reduce((total, queue) => total + queue[name], 0));
}

function figures(queues) {
  const sum = (name) => queues.reduce((total, queue) => total + queue[name], 0);
  const shown = [
    ["Waiting", sum("main"), ""],
    ["Under way", sum("processing"), ""],
    ["Delayed", sum("delayed"), "wait"],
    ["Failed", sum("failed"), "bad"],
    ["Done by this process", queues.reduce((total, queue) => total + queue.runs.success, 0), "good"],
  ];
  return h(
    "dl",
    { class: "figures" },
    shown.map(([name, value, mood]) =>
      h("div", { class: value ? mood : "" }, h("dt", { text: name }), h("dd", { text: number(value) })),
    ),
  );
}

function overview(queues, held) {
  if (!queues.length) return empty("No queue is named in the settings.");
  return table(
    "Queues",
    [
      "queue",
      num("waiting"),
      num("under way"),
      num("delayed"),
      num("failed"),
      num("oldest"),
      num("done"),
      num("retried"),
      num("average"),
      "handler",
    ],
    queues.map((queue) => leads(`#/queues/${encodeURIComponent(queue.queue)}`, (href) => [
      h("span", { class: "row" }, h("a", { href, text: queue.queue }), held.has(queue.queue) ? badge("paused") : null),
      number(queue.main),
      number(queue.processing),
      number(queue.delayed),
      h("span", { class: queue.failed ? "bad" : "", text: number(queue.failed) }),
      queue.oldest_seconds === null ? "–" : span(queue.oldest_seconds),
      number(queue.runs.success),
      number(queue.runs.retry),
      millis(queue.runs.average_ms),
      queue.handler ?? h("span", { class: "quiet", text: "another process" }),
    ])),
    { cards: true },
  );
}

/** A row that opens an address as a whole. */
function leads(href, cells) {
  return { href, cells: cells(href) };
}

async function one(main, shell, name) {
  const top = h("div", { class: "page" });
  const act = h("span", { class: "row" });
  const depths = sampled(`Messages of ${name} that wait, are delayed and failed, while this page is open`, LEVELS);
  const rules = h("div", {});
  const failed = failedOf(shell, name);
  const logs = logsOf(shell, name);
  const audit = auditOf(shell, name);
  const asking = newest();
  const draw = async () => {
    const still = asking();
    const [{ queues }, held] = await Promise.all([ask("/ops/queues"), paused()]);
    if (!still()) return;
    const queue = queues.find((each) => each.queue === name);
    if (!queue) throw new Problem(404, "NOT_FOUND", `There is no queue ${name}.`, null);
    refill(act, brake(name, held.get(name), draw));
    refill(top, held.has(name) ? card(null, h("p", {}, badge("paused"), ` by ${held.get(name).by}: ${held.get(name).reason}`)) : null, figures([queue]));
    depths.add(levels([queue]));
    fill(rules, policy(queue));
    await Promise.all([failed.draw(), logs.draw(), audit.draw()]);
  };
  await draw();
  fill(
    main,
    h(
      "div",
      { class: "page" },
      head(name, act, h("a", { class: "button", href: "#/queues", text: "All queues" })),
      top,
      card("Depth while this page is open", depths.element),
      failed.element,
      logs.element,
      audit.element,
      card("Policy", rules),
    ),
  );
  return live(shell, draw);
}

function policy(queue) {
  const shown = Object.entries(queue.policy).filter(([, value]) => value !== null);
  return h(
    "dl",
    { class: "facts" },
    [["handler", queue.handler ?? "another process"], ...shown].map(([name, value]) => [
      h("dt", { text: name.replaceAll("_", " ") }),
      h("dd", { text: String(value) }),
    ]),
  );
}

function failedOf(shell, name) {
  const chosen = new Set();
  const place = h("div", {});
  const seen = { text: "" };
  const state = standing(shell);
  const asking = newest();
  const act = h("button", { class: "primary" });
  const form = h(
    "form",
    {
      class: "filters",
      onsubmit: (event) => {
        event.preventDefault();
        return requeue(name, chosen, form.elements.reason.value.trim())
          .then(() => {
            chosen.clear();
            state.go();
            return draw();
          })
          .catch((error) => toast(error.message, "bad"));
      },
    },
    field("reason", "Reason, for the audit trail", { required: true, maxlength: 1000, size: 32 }),
    act,
  );
  const labelled = (total) => {
    act.textContent = chosen.size ? `Requeue ${number(chosen.size)} chosen` : `Requeue all ${number(total)}`;
    form.hidden = !total;
  };
  const draw = async () => {
    const still = asking();
    const [found, ends] = await Promise.all([
      ask(`/ops/queues/${encodeURIComponent(name)}/failed`, { query: { limit: FAILED, cursor: state.cursor } }),
      ended(name),
    ]);
    if (!still()) return;
    labelled(found.total);
    const text = JSON.stringify([found, state, ...ends.values()]);
    // Redraw only on a change: an operator may be selecting rows.
    if (text === seen.text) return;
    seen.text = text;
    refill(
      place,
      found.messages.length ? messages(found, ends, chosen, () => labelled(found.total)) : empty(found.total ? "There are no older ones." : "There are no failed messages."),
      turned(found.messages, found, state, draw, "failed messages"),
    );
  };
  return { element: card("Failed", place, form), draw };
}

/** How the newest failed messages ended, by message: the queue itself keeps a message as it was before its last run. */
async function ended(name) {
  const found = await ask("/ops/job-logs", { query: { queue: name, status: "failed", limit: FAILED } }).catch(() => ({ job_logs: [] }));
  return new Map(found.job_logs.map((one) => [one.message_id, one]));
}

function messages(found, ends, chosen, changed) {
  const box = (one) => {
    const made = h("input", { type: "checkbox", "aria-label": `Choose ${one.message_id}` });
    made.checked = chosen.has(one.message_id);
    made.onchange = () => {
      if (made.checked) chosen.add(one.message_id);
      else chosen.delete(one.message_id);
      changed();
    };
    return made;
  };
  return table(
    "Failed messages",
    ["", "message", "action", num("failed runs"), "error", "created", "content"],
    found.messages.map((one) => [
      box(one),
      h("code", { text: one.message_id }),
      one.action,
      runs(one, ends.get(one.message_id)),
      ends.get(one.message_id)?.last_error ?? "–",
      moment(one.created_at),
      h(
        "details",
        { id: `content-${one.message_id}` },
        h("summary", { text: one.text === null ? "payload" : "not a JSON object" }),
        h("pre", { text: one.text ?? JSON.stringify(one.payload, null, 2) }),
      ),
    ]),
    { cards: true },
  );
}

function runs(message, end) {
  const failed = end?.attempts ?? message.attempts;
  return failed === null ? "–" : `${number(failed)}${message.max_attempts === null ? "" : ` of ${number(message.max_attempts)}`}`;
}

async function requeue(name, chosen, reason) {
  const body = chosen.size ? { ids: [...chosen], reason } : { reason };
  const done = await ask(`/ops/queues/${encodeURIComponent(name)}/failed/requeue`, { method: "POST", body });
  toast(`${number(done.requeued)} requeued in ${name}, with a fresh budget.`);
}

function logsOf(shell, name) {
  const place = h("div", {});
  const asked = {};
  const state = standing(shell, "logs");
  const asking = newest();
  const draw = async () => {
    const still = asking();
    const found = await ask("/ops/job-logs", { query: { ...asked, queue: name, limit: LOGS, cursor: state.cursor } });
    if (!still()) return found.job_logs.length;
    refill(
      place,
      found.job_logs.length
        ? table(
            "Job logs",
            ["when", name ? "message" : "queue", "action", "status", "failed runs", "error", "next run"],
            found.job_logs.map((one) => [
              moment(one.updated_at),
              name
                ? one.message_id.slice(0, 12)
                : h("a", { href: `#/queues/${encodeURIComponent(one.queue)}`, text: one.queue }),
              one.action,
              badge(one.status),
              number(one.attempts),
              one.last_error ?? "",
              one.next_retry_at ? moment(one.next_retry_at) : "",
            ]),
            { cards: true },
          )
        : none(state, Object.keys(asked).length ? "Nothing matches." : "No message has run yet."),
      turned(found.job_logs, found, state, draw, "job log"),
    );
    return found.job_logs.length;
  };
  const form = h(
    "form",
    {
      class: "filters",
      role: "search",
      oninput: () => {
        for (const key of Object.keys(asked)) delete asked[key];
        Object.assign(asked, given(form));
        // The other lists of the page stay where they are.
        const others = Object.entries(shell.query).filter(([key]) => !(key in form.elements));
        shell.keep({ ...Object.fromEntries(others), ...asked }, history.state);
        state.go();
        return draw().then((rows) => say(counted(rows, rows === LOGS))).catch(() => {});
      },
      onsubmit: (event) => event.preventDefault(),
    },
    choice("status", "Status", [["", "any"], ...STATUSES]),
    field("correlation_id", "Correlation", { type: "search" }),
    field("idempotency_key", "Idempotency key", { type: "search" }),
  );
  Object.assign(asked, given(recall(form, shell.query)));
  return { element: card("Job log", form, place), draw };
}
