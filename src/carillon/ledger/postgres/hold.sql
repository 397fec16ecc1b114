-- Statements of delivery while the caller waits.

-- name: hold
-- Race: our own repeat after a COMMIT whose answer was lost; `enrol` has leased the routes to us, and the tokens are lost.
--   lease_owner             only what is ours: whoever else has claimed it meanwhile keeps it.
--   attempt_count = 1       a repeat takes its own route again under a new token and has still spent one attempt.
--   status                  an address that turned out dead was skipped at its birth and is not held.
UPDATE routes r
SET claim_token = nextval('claim_tokens'), lease_owner = $2, attempt_count = 1,
    next_attempt_at = clock_timestamp() + $3::float8 * interval '1 second', updated_at = clock_timestamp()
FROM records n
WHERE n.notification_id = r.notification_id AND r.notification_id = ANY ($1::text[]) AND r.status = 'pending'
  AND r.lease_owner = $2
RETURNING r.notification_id, r.route_id, r.claim_token AS token,
    (date_part('epoch', date_trunc('milliseconds', n.accepted_at)) * 1000)::bigint AS accepted_at_ms, r.ctid AS place;

-- name: queue_unheld
-- Race: a delivery that is under way.
--   claim_token             what somebody holds stays; only what was given back to be sent again is queued.
UPDATE routes r SET lane = $2, updated_at = clock_timestamp()
WHERE r.lane = $1 AND r.next_attempt_at IS NOT NULL AND r.claim_token IS NULL;
