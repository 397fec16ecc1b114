-- Statements of delivery while the caller waits.

-- name: claim_enrolled
-- Race: our own repeat after a COMMIT whose answer was lost; `enrol` has leased the routes to us, and the tokens are lost.
--   owner                   only our own routes: another worker that has claimed one meanwhile keeps it.
--   $4                      leases whose answer has come: their messages are being sent, and a second claim would send them twice.
--   attempt_count           and not what our own worker has claimed since: such a claim leaves the row without an owner, or has
--                           counted the attempt of an earlier one.
--   ticket                  a new one and a lease of its own: what came of the first try changes nothing any more.
--   freed                   the first lease loses the route, so that the route has one place of its group.
--   attempt_count = 1       a live stream's route is taken again under a new token and has still spent one attempt.
--   status                  a route to a suppressed address was enrolled as skipped and is not claimed.
WITH held AS MATERIALIZED (
    SELECT l.lease_id, l.grp, l.tickets FROM leases l
    WHERE l.owner = $2 AND l.lease_id <> ALL ($4::bigint[]) AND l.tickets && ARRAY(SELECT r.ticket FROM routes r WHERE r.notification_id = ANY ($1::text[]))
    ORDER BY l.lease_id FOR UPDATE
), ticketed AS MATERIALIZED (
    SELECT r.notification_id, r.route_id, r.ticket, held.grp, nextval('claim_tokens') AS token
    FROM routes r JOIN held ON r.ticket = ANY (held.tickets)
    WHERE r.notification_id = ANY ($1::text[]) AND r.status = 'pending' AND r.lease_owner IS NOT NULL AND r.attempt_count = 0
), anew AS (
    UPDATE routes r SET ticket = ticketed.token, updated_at = clock_timestamp()
    FROM ticketed
    WHERE r.notification_id = ticketed.notification_id AND r.route_id = ticketed.route_id AND r.ticket = ticketed.ticket
    RETURNING r.notification_id, r.route_id, r.ticket, r.ctid AS place, ticketed.grp
), freed AS (
    UPDATE leases l
    SET tickets = ARRAY(SELECT t.ticket FROM unnest(l.tickets) AS t (ticket) WHERE t.ticket NOT IN (SELECT ticket FROM ticketed))
    FROM held WHERE l.lease_id = held.lease_id
), leased AS (
    INSERT INTO leases (lease_id, grp, owner, claimed_at, expires_at, tickets)
    SELECT ticket, grp, $2, clock_timestamp(), clock_timestamp() + $3::float8 * interval '1 second', ARRAY[ticket] FROM anew
), in_row AS (
    UPDATE routes r
    SET claim_token = nextval('claim_tokens'), lease_owner = $2, attempt_count = 1, turn = NULL,
        next_attempt_at = clock_timestamp() + $3::float8 * interval '1 second', updated_at = clock_timestamp()
    WHERE r.notification_id = ANY ($1::text[]) AND r.status = 'pending' AND r.lease_owner = $2 AND r.ticket IS NULL
    RETURNING r.notification_id, r.route_id, r.claim_token, r.ctid AS place
), ours AS (
    SELECT notification_id, route_id, claim_token AS token, place, 0::bigint AS lease FROM in_row
    UNION ALL
    SELECT notification_id, route_id, ticket, place, ticket FROM anew
)
SELECT ours.notification_id, ours.route_id, ours.token,
    (date_part('epoch', date_trunc('milliseconds', n.accepted_at)) * 1000)::bigint AS accepted_at_ms, ours.place, ours.lease
FROM ours JOIN records n ON n.notification_id = ours.notification_id;

-- name: queue_unclaimed
-- Races: a delivery that is under way; a worker claims the route at this moment.
--   taken                   the row of `due` stands for the route: a claimed route stays, only a released one is queued.
--   lease_owner             what a worker left behind is no released route: its sweep ends it.
--   claim_token, ticket     a route that waits for its time has neither.
WITH taken AS (
    DELETE FROM due d USING routes r
    WHERE d.lane = $1 AND r.ticket = d.ticket AND r.next_attempt_at IS NOT NULL AND r.lease_owner IS NULL
    RETURNING d.ticket
), waiting AS (
    SELECT r.notification_id, r.route_id, r.ticket FROM taken JOIN routes r ON r.ticket = taken.ticket AND r.next_attempt_at IS NOT NULL
    UNION ALL
    SELECT r.notification_id, r.route_id, NULL FROM routes r
    WHERE r.lane = $1 AND r.next_attempt_at IS NOT NULL AND r.ticket IS NULL AND r.claim_token IS NULL
)
UPDATE routes r SET lane = $2, ticket = NULL, updated_at = clock_timestamp()
FROM waiting
WHERE r.notification_id = waiting.notification_id AND r.route_id = waiting.route_id
  AND r.claim_token IS NULL AND r.ticket IS NOT DISTINCT FROM waiting.ticket;
