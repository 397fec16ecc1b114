/** Live streams: connected readers, waiting notifications, the inbox of one person, and sending to a person. */

import { ask, follow } from "../lib/api.js";
import { badge, card, empty, fill, h, head, num, table, toast } from "../lib/dom.js";
import { bar } from "../lib/charts.js";
import { sampled } from "../lib/sampled.js";
import { area, choice, field, given, live, newest, refill } from "../lib/forms.js";
import { moment, number, percent, span } from "../lib/format.js";

const KEPT = 50;
const MISSED_BEATS = 3;
const PRIORITIES = { priority: "HIGH", standard: "MEDIUM", bulk: "LOW" };

/**
 * @param {HTMLElement} main
 * @param {{surface: object, onTick: (call: () => void) => void, go: (hash: string) => void}} shell
 * @param {string[]} rest what follows the page in the address
 */
export async function render(main, shell, [user]) {
  return user ? person(main, shell, user) : everybody(main, shell);
}

async function everybody(main, shell) {
  const top = h("div", { class: "page" });
  const levels = sampled("Connections, and notifications that wait for their readers, while this page is open", [
    { name: "connections", mood: "good" },
    { name: "waiting", mood: "wait" },
  ]);
  const asking = newest();
  const draw = async () => {
    const still = asking();
    const [streams, overview] = await Promise.all([ask("/api/v1/console/streams"), ask("/api/v1/console/overview")]);
    if (!still()) return;
    refill(
      top,
      figures(streams, overview),
      h("div", { class: "two" }, card("Connected readers", readers(streams)), card("By priority", lanes(overview.lanes))),
    );
    levels.add([streams.connections, (overview.routes.pending ?? 0) + (overview.routes.failed ?? 0)]);
  };
  await draw();
  fill(
    main,
    h(
      "div",
      { class: "page" },
      head("Streams"),
      top,
      card("While this page is open", levels.element),
      card("Find a person", lookUp(shell)),
      card("Send to a person", tell(shell, "")),
    ),
  );
  return live(shell, draw);
}

function figures(streams, overview) {
  const shown = [
    ["Connections", number(streams.connections), ""],
    ["People", number(streams.people), ""],
    ["Waiting", number((overview.routes.pending ?? 0) + (overview.routes.failed ?? 0)), ""],
    ["Pushed", number(overview.routes.published), "good"],
    ["Dead letters", number(overview.routes.dead_letter), overview.routes.dead_letter ? "bad" : ""],
  ];
  return [
    h(
      "dl",
      { class: "figures" },
      shown.map(([name, value, mood]) => h("div", { class: mood }, h("dt", { text: name }), h("dd", { text: value }))),
    ),
    h(
      "div",
      { class: "row quiet" },
      bar(streams.connections / streams.most, streams.connections / streams.most > 0.9 ? "bad" : "good"),
      `${percent(streams.connections / streams.most)} of the ${number(streams.most)} connections that this process allows`,
    ),
  ];
}

function readers(streams) {
  if (!streams.readers.length) return empty("Nobody is connected to this process. Notifications wait for their readers.");
  const more = streams.people - streams.readers.length;
  return [
    h(
      "div",
      { class: "slim" },
      table(
        "Readers",
        ["person", num("connections")],
        streams.readers.map((one) => {
          if (one.tenantId) return [`${one.userId} of ${one.tenantId}`, number(one.connections)];
          const href = `#/streams/${encodeURIComponent(one.userId)}`;
          return { href, cells: [h("a", { href, text: one.userId }), number(one.connections)] };
        }),
      ),
    ),
    more > 0 ? h("p", { class: "quiet", text: `and ${number(more)} more` }) : null,
  ];
}

function lanes(found) {
  if (!found.length) return empty("Nothing has been accepted yet.");
  return h(
    "div",
    { class: "slim" },
    table(
      "Priorities",
      ["priority", num("due"), num("under way"), num("oldest")],
      found.map((lane) => [
        PRIORITIES[lane.name] ?? lane.name,
        number(lane.due),
        number(lane.leased),
        span(lane.oldestDueSeconds),
      ]),
    ),
  );
}

function lookUp(shell) {
  const form = h(
    "form",
    {
      class: "filters",
      role: "search",
      onsubmit: (event) => {
        event.preventDefault();
        shell.go(`#/streams/${encodeURIComponent(form.elements.who.value.trim())}`);
      },
    },
    field("who", "Person", { required: true, maxlength: 255 }),
    h("button", { class: "primary", text: "Show the inbox" }),
  );
  return form;
}

function tell(shell, user, then = () => {}) {
  const form = h(
    "form",
    {
      class: "filters",
      onsubmit: (event) => {
        event.preventDefault();
        return said(given(form), user)
          .then(then)
          .catch((error) => toast(error instanceof SyntaxError ? "The payload is not JSON." : error.message, "bad"));
      },
    },
    user ? null : field("user_id", "Recipient", { required: true, maxlength: 255 }),
    field("event_type", "Type", { required: true, value: "job.new" }),
    choice("priority", "Priority", [["", "by its type"], "HIGH", "MEDIUM", "LOW"]),
    area("payload", "Payload", { rows: 3, text: '{"title": "Bell founder wanted"}' }),
    h("button", { class: "primary", text: "Send" }),
  );
  return form;
}

async function said(asked, user) {
  const body = { ...asked, user_id: user || asked.user_id, payload: JSON.parse(asked.payload ?? "{}") };
  const answer = await ask("/notifications", { method: "POST", body });
  toast(`Accepted, ${answer.priority.toLowerCase()} priority.`);
}

async function person(main, shell, user) {
  const path = `/notifications/${encodeURIComponent(user)}`;
  const top = h("div", {});
  const inbox = h("div", {});
  const seen = { text: "", silence: 0 };
  const asking = newest();
  const draw = async () => {
    const still = asking();
    const [held, found, streams] = await Promise.all([
      ask(`${path}/unread`),
      ask(path, { query: { limit: KEPT } }),
      ask("/api/v1/console/streams"),
    ]);
    if (!still()) return;
    seen.silence = MISSED_BEATS * streams.heartbeatSeconds * 1000 + 1000;
    const here = streams.readers.find((one) => one.userId === user && !one.tenantId)?.connections ?? 0;
    fill(
      top,
      h(
        "dl",
        { class: "figures" },
        [
          ["Connected here", here ? number(here) : "no", here ? "good" : ""],
          ["Notifications", number(held.total), ""],
          ["Unread", number(held.unread), ""],
        ].map(([name, value, mood]) => h("div", { class: mood }, h("dt", { text: name }), h("dd", { text: value }))),
      ),
    );
    const text = JSON.stringify(found);
    if (text === seen.text) return;
    seen.text = text;
    refill(inbox, entries(found));
  };
  await draw();
  const along = readAlong(user, seen);
  fill(
    main,
    h(
      "div",
      { class: "page" },
      head(user, h("a", { class: "button", href: "#/streams", text: "All people" })),
      top,
      card("Inbox", inbox),
      h("div", { class: "two" }, card("Read the stream", along.element), card("Send a notification", tell(shell, user, draw))),
    ),
  );
  const stop = live(shell, draw);
  return () => {
    stop();
    along.stop();
  };
}

function entries(found) {
  if (!found.notifications.length) return empty("This person has no notifications, or retention has deleted them.");
  return table(
    "Inbox",
    [num("number"), "when", "type", "priority", "says", "state", "read"],
    found.notifications.map((one) => [
      number(one.seq),
      moment(one.event_timestamp),
      one.event_type,
      one.priority,
      h("code", { text: JSON.stringify(one.payload) }),
      badge(one.is_delivered ? "delivered" : one.seq === null ? "waits" : "pushed"),
      one.is_read ? "yes" : "no",
    ]),
    { cards: true },
  );
}

/** Opens this person's stream in this page, which then counts as a reader and gets waiting notifications. */
function readAlong(user, seen) {
  let reading = null;
  const list = h("ol", { class: "heard", "aria-live": "polite" });
  const state = h("span", { class: "quiet", role: "status", text: "not reading" });
  const act = h("button", {
    type: "button",
    text: "Read the stream",
    onclick: () => {
      if (reading) stop();
      else start();
    },
  });
  const stop = () => {
    reading?.abort();
    reading = null;
    act.textContent = "Read the stream";
    state.textContent = "not reading";
  };
  const start = () => {
    reading = new AbortController();
    act.textContent = "Stop reading";
    follow(
      `/notifications/stream?user_id=${encodeURIComponent(user)}`,
      (event, data) => {
        if (event === "heartbeat") return;
        list.prepend(
          h(
            "li",
            {},
            badge(event),
            " ",
            h("code", {
              text:
                event === "notification" ? `${data.event_type} ${JSON.stringify(data.payload)}` : JSON.stringify(data),
            }),
          ),
        );
        while (list.children.length > KEPT) list.lastChild.remove();
      },
      (word) => {
        if (reading) state.textContent = word === "live" ? "reading" : "reconnecting";
      },
      reading.signal,
      seen.silence,
    );
  };
  return {
    element: [
      h("p", { class: "quiet", text: "This opens the stream of this person: notifications that wait are then pushed." }),
      h("div", { class: "row" }, act, state),
      list,
    ],
    stop,
  };
}
