-- The fast way of settling, for claims that ended in success.

-- name: settle_finished
-- The usual end, for routes that nobody changed since the claim; a claim that is not in the answer needs `settle`.
--   ctid                    the very version that the claim wrote, without a look into an index; it is only a hint, for
--                           a place may be given to another row.
--   ticket, claim_token     proves that it is this claim's: no two claims of a ledger share one.
--   attempt_count           a claim under a ticket did not count its attempt.
--   locked, ended, freed    leases of which nothing is left, and places of groups with a cap, as in `settle`.
--   IS TRUE, IS NOT TRUE    stay hash tables: joins would compare every lease with every other.
--   status                  a terminal route stays as it is.
--   finished_by, took_ms    tell the attempt; `attempts` gets no row. A repeat after a lost answer finds its token here.
WITH locked AS MATERIALIZED (
    SELECT l.lease_id FROM leases l WHERE l.lease_id = ANY ($7::bigint[] || $8::bigint[]) ORDER BY l.lease_id FOR UPDATE
), ended AS (
    DELETE FROM leases l
    WHERE l.lease_id = ANY (ARRAY(SELECT lease_id FROM locked WHERE (lease_id IN (SELECT unnest($7::bigint[]))) IS TRUE))
), freed AS (
    UPDATE leases l
    SET tickets = ARRAY(SELECT t.ticket FROM unnest(l.tickets) AS t (ticket) WHERE (t.ticket IN (SELECT unnest($9::bigint[]))) IS NOT TRUE)
    WHERE l.lease_id = ANY (ARRAY(SELECT lease_id FROM locked WHERE (lease_id IN (SELECT unnest($8::bigint[]))) IS TRUE))
), clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now, count(*) AS leases FROM locked
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
        attempt_count = r.attempt_count + CASE WHEN r.ticket IS NULL THEN 0 ELSE 1 END,
        ticket = NULL,
        claim_token = NULL,
        lease_owner = NULL,
        updated_at = clock.now
    FROM clock CROSS JOIN unnest($1::tid[], $2::bigint[], $3::text[], $4::text[], $5::float8[]) AS given (
        place, token, provider, provider_message_id, duration_ms)
    WHERE r.ctid = given.place AND (r.ticket = given.token OR r.claim_token = given.token)
      AND r.status IN ('pending', 'failed')
    RETURNING given.token
)
SELECT array_agg(token) FROM changed;
