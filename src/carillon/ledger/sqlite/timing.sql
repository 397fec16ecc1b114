-- Statements of what stops a notification that waits: a newer one in its place, or its producer.

-- name: collapse
-- Runs in the transaction of `enrol`, for notifications that it has written: one writer at a time.
INSERT INTO collapses (tenant_id, audience, collapse_key, notification_id, updated_at)
VALUES (:tenant_id, :audience, :collapse_key, :notification_id, :now)
ON CONFLICT (tenant_id, audience, collapse_key) DO UPDATE
SET before = collapses.notification_id, notification_id = excluded.notification_id, updated_at = excluded.updated_at
RETURNING notification_id, before;

-- name: stop
-- Race: a worker holds a route of it. The mark stays on the record: when that call fails, the next claim finds it and
-- skips the route.
--   stopped IS NULL         what stopped it first stays.
UPDATE records SET stopped = :stopped, updated_at = :now WHERE notification_id = :notification_id AND stopped IS NULL;

-- name: stop_routes
--   claim_token             a claimed route may be on its way and stays; a lease that ran out does not protect it.
UPDATE routes
SET status = 'skipped', skipped_at = :now, next_attempt_at = NULL, claim_token = NULL, lease_owner = NULL,
    last_error_classification = :gate, last_error_message = :reason, last_error_at = :now, updated_at = :now
WHERE notification_id = :notification_id AND status IN ('pending', 'failed')
  AND (claim_token IS NULL OR next_attempt_at <= :now)
RETURNING notification_id, route_id;

-- name: prune_collapses
-- A key that nobody used for so long has nothing that waits.
DELETE FROM collapses WHERE rowid IN (
    SELECT c.rowid FROM collapses c
    WHERE c.updated_at < :now - CAST(:older_than_seconds * 1000 AS INTEGER)
      AND NOT EXISTS (SELECT 1 FROM records n WHERE n.notification_id = c.notification_id)
    ORDER BY c.updated_at LIMIT :limit);
