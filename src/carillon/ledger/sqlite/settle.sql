-- The fast way of settling, for claims that ended in success.

-- name: settle_finished
-- The usual end, for routes that nobody changed since the claim; one that changes no row needs `settle`.
--   ticket, claim_token     proves that it is this claim's: no two claims of a ledger share one.
--   status                  a terminal route stays as it is.
--   finished_by, took_ms    tell the attempt; `attempts` gets no row. A repeat after a lost answer finds its token here.
UPDATE routes
SET status = 'published', next_attempt_at = NULL, provider = :next_provider,
    provider_message_id = coalesce(:provider_message_id, provider_message_id), published_at = :now,
    dead_lettered_at = NULL, settled_by = 'applied',
    finished_by = CASE WHEN :outcome IS NOT NULL THEN :token END, took_ms = :duration_ms,
    attempt_count = attempt_count + (ticket IS NOT NULL), ticket = NULL, claim_token = NULL, lease_owner = NULL, updated_at = :now
WHERE notification_id = :notification_id AND route_id = :route_id AND (ticket = :token OR claim_token = :token)
  AND status IN ('pending', 'failed');
