/** Calls the API: one function for JSON, one for server-sent events. The token stays in this tab. */

const TOKEN = "carillon.token";
/** The server writes at least every five seconds: after so long without a word it is gone, or stands still. */
const SILENCE_MS = 15_000;

/** The answer was a problem document. */
export class Problem extends Error {
  constructor(status, code, message, body) {
    super(message);
    this.status = status;
    this.code = code;
    this.body = body;
  }
}

export function token() {
  return sessionStorage.getItem(TOKEN);
}

export function remember(value) {
  if (value) sessionStorage.setItem(TOKEN, value);
  else sessionStorage.removeItem(TOKEN);
}

/** What the page asks for again and again and does not get, by path: the problem, and since when. */
const missing = new Map();
let noticed = () => {};

/**
 * Be told when what is shown gets old, because the server is away, fails or refuses the token, and when it is fresh again.
 * @param {(trouble: {problem: Problem, since: Date}|null) => void} call
 */
export function onTrouble(call) {
  noticed = call;
}

/** Another page asks for other things. */
export function forgetTroubles() {
  missing.clear();
  noticed(null);
}

/** One rule for every question of every page: a page that redraws itself says nothing of its own when that fails. */
function heard(path, problem) {
  const worse = problem !== null && ([0, 401, 429].includes(problem.status) || problem.status >= 500);
  if (!worse && !missing.delete(path)) return;
  if (worse) missing.set(path, { problem, since: missing.get(path)?.since ?? new Date() });
  const [first] = [...missing.values()].toSorted((one, other) => one.since - other.since);
  noticed(first ?? null);
}

function headers(more = {}) {
  return token() ? { ...more, Authorization: `Bearer ${token()}` } : more;
}

/** A path as the server reads it: a slash inside an id is encoded twice. */
export function spelled(path) {
  return path.replaceAll("%2F", "%252F");
}

/**
 * Ask for JSON; throws Problem.
 * @param {string} path
 * @param {{method?: string, body?: any, query?: object, headers?: object, signal?: AbortSignal}} [given]
 */
export async function ask(path, given = {}) {
  // What somebody does by hand says itself that it failed.
  const watched = (given.method ?? "GET") === "GET";
  try {
    const value = await send(path, given);
    if (watched) heard(path, null);
    return value;
  } catch (error) {
    if (watched && error instanceof Problem) heard(path, error);
    throw error;
  }
}

async function send(path, given) {
  const query = Object.entries(given.query ?? {}).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const url = query.length ? `${spelled(path)}?${new URLSearchParams(query)}` : spelled(path);
  const body = given.body === undefined ? undefined : JSON.stringify(given.body);
  const own = body === undefined ? {} : { "Content-Type": "application/json" };
  let answer;
  try {
    answer = await fetch(url, { method: given.method ?? "GET", headers: headers({ ...own, ...given.headers }), body, signal: given.signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw unreachable();
  }
  const text = await answer.text();
  let value = null;
  try { value = text ? JSON.parse(text) : null; } catch { value = text; }
  if (answer.ok) return value;
  throw refused(answer.status, value);
}

/**
 * Read server-sent events by fetch, so that a token can be shown; goes on until `signal` is aborted.
 * @param {(event: string, data: any) => void} tell
 * @param {(word: "live"|"lost") => void} state
 * @param {AbortSignal} signal
 * @param {number} [silence] after how many milliseconds without a word the connection counts as lost
 */
export async function follow(path, tell, state, signal, silence = SILENCE_MS) {
  let wait = 500;
  while (!signal.aborted) {
    const silent = new AbortController();
    let patience = setTimeout(() => silent.abort(), silence);
    const lively = () => {
      clearTimeout(patience);
      patience = setTimeout(() => silent.abort(), silence);
    };
    try {
      const answer = await fetch(path, { headers: headers(), signal: AbortSignal.any([signal, silent.signal]) });
      if (!answer.ok || !answer.body) throw refused(answer.status, await answer.json().catch(() => null));
      state("live");
      heard(path, null);
      wait = 500;
      await frames(answer.body.getReader(), tell, lively);
    } catch (error) {
      if (signal.aborted) return;
      heard(path, error instanceof Problem ? error : unreachable());
    } finally {
      clearTimeout(patience);
    }
    state("lost");
    await new Promise((done) => setTimeout(done, wait));
    wait = Math.min(wait * 2, 5000);
  }
}

/**
 * Send a question whose answer lasts, and tell each of its events; returns when the answer ends, throws Problem.
 * @param {string} path
 * @param {any} body
 * @param {(event: string, data: any) => void} tell
 * @param {AbortSignal} signal aborting it ends the work on the other side too
 */
export async function play(path, body, tell, signal) {
  let answer;
  try {
    answer = await fetch(path, { method: "POST", headers: headers({ "Content-Type": "application/json" }), body: JSON.stringify(body), signal });
    if (answer.ok) return await frames(answer.body.getReader(), tell, () => {});
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "UNREACHABLE", answer ? "The connection ended before the answer." : "Carillon does not answer.", null);
  }
  throw refused(answer.status, await answer.json().catch(() => null));
}

function unreachable() {
  return new Problem(0, "UNREACHABLE", "Carillon does not answer.", null);
}

function refused(status, value) {
  const said = value?.error ?? {};
  return new Problem(status, said.code ?? "UNEXPECTED", said.message ?? value?.title ?? `HTTP ${status}`, value);
}

async function frames(reader, tell, heard) {
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    heard();
    text += decoder.decode(value, { stream: true });
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      const lines = text.slice(0, end).split("\n");
      text = text.slice(end + 2);
      const data = lines.filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      const event = lines.find((line) => line.startsWith("event: "))?.slice(7) ?? "message";
      if (data) tell(event, JSON.parse(data));
    }
  }
}
