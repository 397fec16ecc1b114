-- Turns over groups. Runs outside a transaction, one statement after another, while older processes accept and send: every statement
-- may run again, so that a migration that was interrupted begins anew. Statements end with the line.
-- online

-- The ALTER needs a lock that everybody waits behind. It gives up soon, and the migration tries it again.
SET lock_timeout = '200ms';

-- `grp` is the number of the route's group; rows of today share one. `turn` is the same number while the route stands in the turns,
-- and empty while it is claimed, waits for its time, or has ended.
ALTER TABLE routes
    ADD COLUMN IF NOT EXISTS grp bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS turn bigint;

RESET lock_timeout;

-- One row for each group with a cap that was claimed from: whoever takes places writes a new fence over the one it has seen.
CREATE TABLE IF NOT EXISTS slots (
    grp      bigint PRIMARY KEY,
    fence    bigint NOT NULL,
    before   bigint,
    taken_at timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- The places that are taken in groups with a cap; other routes do not pay for it.
DROP INDEX CONCURRENTLY IF EXISTS routes_places_idx;

CREATE INDEX CONCURRENTLY routes_places_idx ON routes (grp) WHERE grp < 0 AND claim_token IS NOT NULL AND turn IS NULL;

-- What is open, in one of two orders: in turns what is due, where a claim skips from group to group, and by time what waits for it, that
-- is leases, retries and schedules. Ended routes are not in it. The index of today serves older processes until this one is whole.
DROP INDEX CONCURRENTLY IF EXISTS routes_turns_idx;

CREATE INDEX CONCURRENTLY routes_turns_idx ON routes (lane, provider, turn, next_attempt_at) WHERE next_attempt_at IS NOT NULL;

DROP INDEX CONCURRENTLY IF EXISTS routes_due_idx;

ALTER INDEX routes_turns_idx RENAME TO routes_due_idx;
