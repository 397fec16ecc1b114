// Drains BullMQ of jobs that do nothing.
import { readFileSync } from "node:fs";
import { Queue, Worker } from "bullmq";
import { Redis } from "ioredis";

const POLL_MS = 20;
const CHUNK = 1_000;
const NAME = "jobs";

const [phase, url, count, given] = process.argv.slice(2);
const jobs = Number(count);
const settings = JSON.parse(given);
const connect = () => new Redis(url, { maxRetriesPerRequest: null });

async function fill() {
  const queue = new Queue(NAME, { connection: connect(), defaultJobOptions: settings.job });
  for (let first = 0; first < jobs; first += CHUNK) {
    const length = Math.min(CHUNK, jobs - first);
    await queue.addBulk(Array.from({ length }, (_, offset) => ({ name: "job", data: { number: first + offset } })));
  }
}

async function work() {
  let started;
  let ran = 0;
  const worker = new Worker(
    NAME,
    async () => {
      started ??= performance.now();
      ran += 1;
    },
    { connection: connect(), ...settings.worker },
  );
  worker.on("error", (error) => console.error(error));
  const queue = new Queue(NAME, { connection: connect() });
  while (ran < jobs || (await queue.getJobCountByTypes("wait", "active")) > 0) {
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
  const seconds = (performance.now() - started) / 1000;
  if (ran !== jobs) throw new Error("some job ran more than once");
  const manifest = new URL("./node_modules/bullmq/package.json", import.meta.url);
  const version = JSON.parse(readFileSync(manifest, "utf8")).version;
  console.log(JSON.stringify({ jobs, seconds, version }));
}

try {
  await (phase === "fill" ? fill() : work());
  process.exit(0);
} catch (error) {
  console.error(error);
  process.exit(1);
}
