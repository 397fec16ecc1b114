// Drains graphile-worker of jobs that each post a small JSON document over a kept-alive connection.
import http from "node:http";
import { Pool } from "undici";
import { graphile } from "./graphile_common.mjs";

const HEADERS = { "content-type": "application/json" };

// About 150 bytes, the size of a small webhook.
function body(number) {
  const id = `job-${String(number).padStart(8, "0")}`;
  const text = "Your order has left the warehouse and arrives tomorrow.";
  return JSON.stringify({ id, kind: "notification", to: "customer@example.com", subject: "Order sent", text });
}

function viaUndici(url, { connections, pipelining }) {
  const { origin, pathname, search } = new URL(url);
  const pool = new Pool(origin, { connections, pipelining });
  const path = pathname + search;
  return async (text) => {
    const answer = await pool.request({ path, method: "POST", headers: HEADERS, body: text });
    await answer.body.dump();
    return answer.statusCode;
  };
}

function viaAgent(url, { connections }) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: connections, scheduling: "lifo" });
  return (text) =>
    new Promise((resolve, reject) => {
      const headers = { ...HEADERS, "content-length": Buffer.byteLength(text) };
      const request = http.request(url, { agent, method: "POST", headers }, (answer) => {
        answer.resume();
        answer.on("end", () => resolve(answer.statusCode));
        answer.on("error", reject);
      });
      request.on("error", reject);
      request.end(text);
    });
}

function viaFetch(url) {
  return async (text) => {
    const answer = await fetch(url, { method: "POST", headers: HEADERS, body: text });
    await answer.arrayBuffer();
    return answer.status;
  };
}

const CLIENTS = { undici: viaUndici, agent: viaAgent, fetch: viaFetch };

await graphile((watch, { url, settings }) => {
  const post = CLIENTS[settings.http.client](url, settings.http);
  return async ({ number }) => {
    watch.start();
    const status = await post(body(number));
    if (status >= 300) throw new Error(`the receiver answered ${status}`);
    watch.tick();
  };
});
