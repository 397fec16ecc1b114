// Drains graphile-worker of jobs that do nothing.
import { graphile } from "./graphile_common.mjs";

await graphile((watch) => async () => watch.tick());
