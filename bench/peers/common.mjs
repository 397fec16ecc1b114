// What the Node.js runners share: their arguments, the stopwatch and the wait for an empty queue.
import { readFileSync } from "node:fs";
import pg from "pg";

const POLL_MS = 20;

// Runs the phase named on the command line: <runner> fill|work <dsn> <jobs> <settings as JSON> [url].
export async function main(packageName, { fill, work }) {
  const [phase, dsn, jobs, settings, url] = process.argv.slice(2);
  const order = { dsn, jobs: Number(jobs), settings: JSON.parse(settings), url };
  try {
    if (phase === "fill") {
      await fill(order);
      await query(dsn, "VACUUM ANALYZE");
    } else {
      const seconds = await work(order);
      console.log(JSON.stringify({ jobs: order.jobs, seconds, version: versionOf(packageName) }));
    }
    process.exit(0);
  } catch (error) {
    console.error(error);
    process.exit(1);
  }
}

// The clock starts with the first job's execution; `all` resolves with the last one's.
export function stopwatch(jobs) {
  let started;
  let count = 0;
  let resolve;
  const all = new Promise((settled) => (resolve = settled));
  return {
    all,
    start() {
      started ??= performance.now();
    },
    tick(times = 1) {
      this.start();
      count += times;
      if (count >= jobs) resolve();
    },
    seconds: () => (performance.now() - started) / 1000,
    overshot: () => count !== jobs,
  };
}

// Stops the clock once `remaining`, a query that counts unfinished jobs, says zero.
export async function finish(watch, dsn, remaining) {
  await watch.all;
  const client = new pg.Client({ connectionString: dsn });
  await client.connect();
  for (;;) {
    const { rows } = await client.query(remaining);
    if (Number(rows[0].remaining) === 0) break;
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
  const seconds = watch.seconds();
  if (watch.overshot()) throw new Error("some job ran more than once");
  return seconds;
}

export async function query(dsn, statement) {
  const client = new pg.Client({ connectionString: dsn });
  await client.connect();
  await client.query(statement);
  await client.end();
}

function versionOf(packageName) {
  const manifest = new URL(`./node_modules/${packageName}/package.json`, import.meta.url);
  return JSON.parse(readFileSync(manifest, "utf8")).version;
}
