-- Statements of delivery while the caller waits.

-- name: hold
-- Races: none; it runs in the transaction of `enrol`, and nobody else ever sees these routes free.
--   status                  an address that turned out dead was skipped at its birth and is not held.
--   next_attempt_at         nor is what is to be sent later, but what an earlier try of ours has leased is.
UPDATE routes
SET claim_token = :token, lease_owner = :owner, attempt_count = 1, next_attempt_at = :lease_until, updated_at = :now
WHERE notification_id = :notification_id AND route_id = :route_id AND status = 'pending'
  AND (next_attempt_at <= :now OR lease_owner = :owner);

-- name: queue_unheld
-- Race: a delivery that is under way.
--   claim_token             what somebody holds stays; only what was given back to be sent again is queued.
UPDATE routes SET lane = ?2, updated_at = ?3
WHERE lane = ?1 AND next_attempt_at IS NOT NULL AND claim_token IS NULL;

-- name: waits_unheld
-- only: PostgreSQL looks and moves in one statement without a lock of everything
SELECT EXISTS (SELECT 1 FROM routes WHERE lane = ?1 AND next_attempt_at IS NOT NULL AND claim_token IS NULL);
