-- Statements of leases that ran out.

-- name: expired_leases
-- only: PostgreSQL looks and resets in one statement
SELECT rowid AS place, notification_id, route_id, attempt_count >= max_attempts AS spent FROM routes
WHERE channel = 'sse' AND claim_token IS NOT NULL AND next_attempt_at <= :now
ORDER BY next_attempt_at
LIMIT :most;

-- name: reset_expired
-- Races: a claim, a late settlement, another process; all of them wait for the end of this transaction.
--   attempt_count           stays: the claim has counted the attempt, so a reset costs none.
--   budget_since            when it was due first: it is claimed again before later routes.
UPDATE routes
SET status = CASE WHEN :spent THEN 'dead_letter' ELSE 'failed' END,
    next_attempt_at = CASE WHEN :spent THEN NULL ELSE budget_since END,
    dead_lettered_at = CASE WHEN :spent THEN :now END,
    last_error_classification = :error_classification, last_error_message = :error_message, last_error_at = :now,
    claim_token = NULL, lease_owner = NULL, updated_at = :now
WHERE rowid = :place;
