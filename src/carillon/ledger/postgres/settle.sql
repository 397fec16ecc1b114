-- The fast way of settling, for claims that ended in success.

-- name: settle_finished
-- The usual end, for routes that nobody changed since the claim; a claim that is not in the answer needs `settle`.
--   ctid                    the very version that the claim wrote, without a look into an index; it is only a hint, for
--                           a place may be given to another row.
--   claim_token             proves that it is this claim's: no two claims of a ledger share one.
--   status                  a terminal route stays as it is.
--   finished_by, took_ms    tell the attempt; `attempts` gets no row. A repeat after a lost answer finds its token here.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), changed AS (
    UPDATE routes r
    SET status = 'published',
        next_attempt_at = NULL,
        provider = given.provider,
        provider_message_id = coalesce(given.provider_message_id, r.provider_message_id),
        published_at = clock.now,
        dead_lettered_at = NULL,
        settled_by = 'applied',
        finished_by = CASE WHEN $6::boolean THEN given.token END,
        took_ms = given.duration_ms,
        claim_token = NULL,
        lease_owner = NULL,
        updated_at = clock.now
    FROM clock CROSS JOIN unnest($1::tid[], $2::bigint[], $3::text[], $4::text[], $5::float8[]) AS given (
        place, token, provider, provider_message_id, duration_ms)
    WHERE r.ctid = given.place AND r.claim_token = given.token AND r.status IN ('pending', 'failed')
    RETURNING given.token
)
SELECT array_agg(token) FROM changed;
