// Drains pg-boss of jobs that do nothing.
import { PgBoss } from "pg-boss";
import { finish, main, stopwatch } from "./common.mjs";

const CHUNK = 5_000;
const QUEUE = "jobs";
const REMAINING = `SELECT count(*) AS remaining FROM pgboss.job WHERE name = '${QUEUE}' AND state < 'completed'`;

async function boss(dsn, settings) {
  const started = new PgBoss({ connectionString: dsn, schedule: false, supervise: false, ...settings.boss });
  started.on("error", (error) => console.error(error));
  await started.start();
  return started;
}

await main("pg-boss", {
  async fill({ dsn, jobs, settings }) {
    const filling = await boss(dsn, settings);
    await filling.createQueue(QUEUE);
    for (let first = 0; first < jobs; first += CHUNK) {
      const count = Math.min(CHUNK, jobs - first);
      await filling.insert(QUEUE, Array.from({ length: count }, (_, offset) => ({ data: { number: first + offset } })));
    }
    await filling.stop({ graceful: false });
  },
  async work({ dsn, jobs, settings }) {
    const watch = stopwatch(jobs);
    const working = await boss(dsn, settings);
    await working.work(QUEUE, settings.work, async (batch) => watch.tick(batch.length));
    return finish(watch, dsn, REMAINING);
  },
});
