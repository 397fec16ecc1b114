// graphile-worker with the batching that its performance page describes; the caller brings the task.
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import { finish, main, stopwatch } from "./common.mjs";

const CHUNK = 10_000;
const REMAINING = "SELECT count(*) AS remaining FROM graphile_worker._private_jobs";
const quiet = new Logger(() => (level, message) => {
  if (level === "error") console.error(message);
});

async function fill({ dsn, jobs }) {
  const utils = await makeWorkerUtils({ connectionString: dsn, logger: quiet });
  await utils.migrate();
  for (let first = 0; first < jobs; first += CHUNK) {
    const count = Math.min(CHUNK, jobs - first);
    await utils.addJobs(
      Array.from({ length: count }, (_, offset) => ({ identifier: "job", payload: { number: first + offset } })),
    );
  }
  await utils.release();
}

export async function graphile(makeTask) {
  await main("graphile-worker", {
    fill,
    async work({ dsn, jobs, settings, url }) {
      const watch = stopwatch(jobs);
      await run({
        preset: { worker: { connectionString: dsn, logger: quiet, ...settings.worker } },
        taskList: { job: makeTask(watch, { url, settings }) },
        noHandleSignals: true,
      });
      return finish(watch, dsn, REMAINING);
    },
  });
}
