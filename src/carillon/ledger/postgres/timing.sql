-- Statements of what stops a notification that waits: a newer one in its place, or its producer.

-- name: collapse
-- Runs in the transaction of `enrol`, for notifications that it has written. Keys arrive sorted.
-- Race: two acceptances under one key at once.
--   ON CONFLICT             the second waits for the first and finds it in `before`: of two, the one that commits later stays.
INSERT INTO collapses AS c (tenant_id, audience, collapse_key, notification_id, updated_at)
SELECT given.*, clock_timestamp()
FROM unnest(:tenant_id::text[], :audience::text[], :collapse_key::text[], :notification_id::text[])
    AS given (tenant_id, audience, collapse_key, notification_id)
ON CONFLICT (tenant_id, audience, collapse_key) DO UPDATE
SET before = c.notification_id, notification_id = excluded.notification_id, updated_at = excluded.updated_at
RETURNING notification_id, before;

-- name: stop
-- Race: a worker holds a route of it. The mark stays on the record: when that call fails, the next claim finds it and
-- skips the route.
--   stopped IS NULL         what stopped it first stays.
UPDATE records n SET stopped = given.stopped, updated_at = clock_timestamp()
FROM unnest(:notification_id::text[], :stopped::text[]) AS given (notification_id, stopped)
WHERE n.notification_id = given.notification_id AND n.stopped IS NULL;

-- name: stop_routes
-- Race: a worker claims the route at this moment. The second one waits, looks again and finds it taken.
--   claim_token             a claimed route may be on its way and stays; a lease that ran out does not protect it.
UPDATE routes r
SET status = 'skipped', skipped_at = clock_timestamp(), next_attempt_at = NULL, claim_token = NULL, lease_owner = NULL,
    last_error_classification = given.gate, last_error_message = given.reason,
    last_error_at = clock_timestamp(), updated_at = clock_timestamp()
FROM unnest(:notification_id::text[], :gate::text[], :reason::text[]) AS given (notification_id, gate, reason)
WHERE r.notification_id = given.notification_id AND r.status IN ('pending', 'failed')
  AND (r.claim_token IS NULL OR r.next_attempt_at <= clock_timestamp())
RETURNING r.notification_id, r.route_id;

-- name: prune_collapses
-- A key that nobody used for so long has nothing that waits.
DELETE FROM collapses WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM collapses
    WHERE updated_at < clock_timestamp() - :older_than_seconds::float8 * interval '1 second'
      AND NOT EXISTS (SELECT FROM records n WHERE n.notification_id = collapses.notification_id)
    ORDER BY updated_at LIMIT :limit));
