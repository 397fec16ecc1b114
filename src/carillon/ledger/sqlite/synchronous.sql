-- Statements of delivery while the caller waits.

-- name: claim_enrolled
-- Races: none; it runs in the transaction of `enrol`, and nobody else ever sees these routes free.
--   status                  a route to a suppressed address was enrolled as skipped and is not claimed.
--   next_attempt_at         a scheduled route is not claimed; one that our own earlier try has leased is.
UPDATE routes
SET claim_token = :token, lease_owner = :owner, attempt_count = 1, next_attempt_at = :lease_until, turn = NULL,
    updated_at = :now
WHERE notification_id = :notification_id AND route_id = :route_id AND status = 'pending'
  AND (next_attempt_at <= :now OR lease_owner = :owner);

-- name: queue_unclaimed
-- Race: a delivery that is under way.
--   claim_token             a claimed route stays; only a released one is queued.
UPDATE routes SET lane = ?2, updated_at = ?3
WHERE lane = ?1 AND next_attempt_at IS NOT NULL AND claim_token IS NULL;

-- name: waits_unclaimed
-- only: PostgreSQL looks and moves in one statement without a lock of everything
SELECT EXISTS (SELECT 1 FROM routes WHERE lane = ?1 AND next_attempt_at IS NOT NULL AND claim_token IS NULL);
