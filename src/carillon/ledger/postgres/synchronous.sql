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

-- name: claim_within_caps
-- only: SQLite counts and claims each route in the transaction of `enrol`
-- Runs in the transaction of `enrol`, so nobody else sees these routes free.
-- Races: another process that takes places of the same group at this moment; our own repeat after a lost answer.
--   (SELECT $1), (SELECT $5)  hide from the planner how many there are, as in `enrol`.
--   free, fenced            as in `claim`: the second of two processes finds another fence than it saw, and takes nothing of the group.
--   nth                     a batch may have more routes of a group than the group has places: the rest waits for its turn.
--   claim_token             a repeat finds its routes claimed already; `claim_enrolled` takes them again.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), places AS MATERIALIZED (
    SELECT cap.grp, cap.calls - taken.calls AS free, s.fence
    FROM unnest($4::bigint[], (SELECT $5::int[])) AS cap (grp, calls)
    CROSS JOIN LATERAL (
        SELECT count(*)::int AS calls FROM (
            SELECT FROM routes r
            WHERE r.grp = cap.grp AND r.grp < 0 AND r.claim_token IS NOT NULL AND r.turn IS NULL
            LIMIT cap.calls) AS held
    ) AS taken
    LEFT JOIN slots s ON s.grp = cap.grp
), picked AS MATERIALIZED (
    SELECT r.ctid AS place, r.notification_id, r.grp, places.free, places.fence, nextval('claim_tokens') AS token,
           row_number() OVER (PARTITION BY r.grp ORDER BY r.next_attempt_at, r.notification_id, r.route_id) AS nth
    FROM clock CROSS JOIN routes r
    LEFT JOIN places ON places.grp = r.grp
    WHERE r.notification_id = ANY ((SELECT $1::text[])::text[]) AND r.status = 'pending' AND r.claim_token IS NULL
      AND r.next_attempt_at <= clock.now
), fenced AS (
    INSERT INTO slots AS s (grp, fence, before, taken_at)
    SELECT grp, max(token), max(picked.fence), clock.now
    FROM picked CROSS JOIN clock WHERE nth <= free GROUP BY grp, clock.now ORDER BY grp
    ON CONFLICT (grp) DO UPDATE
    SET fence = excluded.fence, before = excluded.before, taken_at = excluded.taken_at
    WHERE s.fence = excluded.before
    RETURNING s.grp
)
UPDATE routes r
SET claim_token = picked.token, lease_owner = $2, attempt_count = 1, turn = NULL,
    next_attempt_at = clock.now + $3::float8 * interval '1 second', updated_at = clock.now
FROM clock CROSS JOIN picked
JOIN records n ON n.notification_id = picked.notification_id
WHERE r.ctid = picked.place
  AND (picked.free IS NULL OR (picked.nth <= picked.free AND (picked.grp IN (SELECT grp FROM fenced)) IS TRUE))
RETURNING r.notification_id, r.route_id, r.claim_token AS token,
    (date_part('epoch', date_trunc('milliseconds', n.accepted_at)) * 1000)::bigint AS accepted_at_ms, r.ctid AS place;

-- name: queue_unclaimed
-- Race: a delivery that is under way.
--   claim_token             a claimed route stays; only a released one is queued.
UPDATE routes r SET lane = $2, updated_at = clock_timestamp()
WHERE r.lane = $1 AND r.next_attempt_at IS NOT NULL AND r.claim_token IS NULL;
