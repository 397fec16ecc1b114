-- The fast way of settling, for claims that ended in success.

-- name: settle_finished
-- The usual end, for routes that nobody changed since the claim; a claim that is not in the answer needs `settle`.
--   ctid                    the very version that the claim wrote, without a look into an index; it is only a hint, for
--                           a place may be given to another row.
--   claim_token             proves that it is this claim's: no two claims of a ledger share one.
--   status                  a terminal route stays as it is.
--   attempts                need no ON CONFLICT: a token that is still on its route has not been settled yet.
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
        claim_token = NULL,
        lease_owner = NULL,
        updated_at = clock.now
    FROM clock CROSS JOIN unnest($1::tid[], $2::bigint[], $3::text[], $4::text[], $5::float8[]) AS given (
        place, token, provider, provider_message_id, duration_ms)
    WHERE r.ctid = given.place AND r.claim_token = given.token AND r.status IN ('pending', 'failed')
    RETURNING given.token, r.notification_id, r.route_id, r.attempt_count, given.provider, given.provider_message_id,
        given.duration_ms
), noted AS (
    INSERT INTO attempts (
        attempt_id, notification_id, route_id, attempt, provider, outcome, provider_message_id, started_at, duration_ms,
        verdict, settled)
    SELECT token, notification_id, route_id, attempt_count, provider, 'sent', provider_message_id,
           clock.now - duration_ms * interval '1 millisecond', duration_ms, 'finish', 'applied'
    FROM clock CROSS JOIN changed
    WHERE $6::boolean
)
SELECT array_agg(token) FROM changed;
