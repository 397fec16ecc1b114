-- Statements of delivery while the caller waits.

-- name: claim_enrolled
-- Race: our own repeat after a COMMIT whose answer was lost; `enrol` has leased the routes to us, and the tokens are lost.
--   lease_owner             only our own routes: another worker that has claimed one meanwhile keeps it.
--   attempt_count = 1       a repeat takes its own route again under a new token and has still spent one attempt.
--   status                  a route to a suppressed address was enrolled as skipped and is not claimed.
UPDATE routes r
SET claim_token = nextval('claim_tokens'), lease_owner = $2, attempt_count = 1, turn = NULL,
    next_attempt_at = clock_timestamp() + $3::float8 * interval '1 second', updated_at = clock_timestamp()
FROM records n
WHERE n.notification_id = r.notification_id AND r.notification_id = ANY ($1::text[]) AND r.status = 'pending'
  AND r.lease_owner = $2
RETURNING r.notification_id, r.route_id, r.claim_token AS token,
    (date_part('epoch', date_trunc('milliseconds', n.accepted_at)) * 1000)::bigint AS accepted_at_ms, r.ctid AS place;

-- name: queue_unclaimed
-- Race: a delivery that is under way.
--   claim_token             a claimed route stays; only a released one is queued.
UPDATE routes r SET lane = $2, updated_at = clock_timestamp()
WHERE r.lane = $1 AND r.next_attempt_at IS NOT NULL AND r.claim_token IS NULL;
