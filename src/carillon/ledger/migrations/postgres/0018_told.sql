-- A plain success is told by its route, without a row in `attempts`. Runs as 0012 does: every statement may run again.
-- online

SET lock_timeout = '200ms';

-- The claim whose success the route tells, and how long the call took; empty for every other route, and for those of today.
ALTER TABLE routes
    ADD COLUMN IF NOT EXISTS finished_by bigint,
    ADD COLUMN IF NOT EXISTS took_ms double precision;

RESET lock_timeout;

-- A receipt names a vendor's message. No hash index: a vendor that gives many messages one id would make it slower with each.
DROP INDEX CONCURRENTLY IF EXISTS routes_message_idx;

CREATE INDEX CONCURRENTLY routes_message_idx ON routes (provider_message_id)
    WHERE finished_by IS NOT NULL AND provider_message_id IS NOT NULL;

-- Every attempt: the rows of `attempts`, and the successes that routes tell.
CREATE OR REPLACE VIEW attempts_told AS
SELECT attempt_id, notification_id, route_id, attempt, provider, outcome, classification, error, provider_message_id,
       started_at, duration_ms, verdict, delay_ms, settled
FROM attempts
UNION ALL
SELECT finished_by, notification_id, route_id, attempt_count, provider COLLATE "default", 'sent', NULL, NULL,
       provider_message_id, published_at - took_ms * interval '1 millisecond', took_ms, 'finish', NULL, settled_by
FROM routes
WHERE finished_by IS NOT NULL;
