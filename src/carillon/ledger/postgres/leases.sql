-- Statements of places that are taken, of leases that ran out, and of tickets that are lost.

-- name: group_calls
-- How many claims hold a place of a group, as in `routes`.
SELECT (SELECT coalesce(sum(cardinality(l.tickets)), 0) FROM leases l WHERE l.grp = :grp::bigint)
       + (SELECT count(*) FROM routes g WHERE g.grp = :grp::bigint AND g.grp < 0 AND g.claim_token IS NOT NULL AND g.turn IS NULL) AS calls;

-- name: lost_tickets
-- Open routes whose ticket stands neither in `due` nor in a lease: no claim would ever find them. A ticket and its place change in one
-- commit, so that a snapshot shows none unless something is wrong. Answers with the lost ones, and with the last that was looked at.
--   :after, :limit          a slice in the order of tickets: a pass over millions is many short statements.
--   OFFSET 0                one look into the index of `due` for each route; a plan made for a small table would read all of it.
--   IS NOT TRUE             keeps the look-up a hash table: the leases are read once.
WITH looked AS MATERIALIZED (
    SELECT r.ticket, r.lane, r.provider, r.grp, r.next_attempt_at FROM routes r
    WHERE r.ticket > :after::bigint AND r.next_attempt_at IS NOT NULL
    ORDER BY r.ticket LIMIT :limit
), judged AS (
    SELECT looked.ticket, looked.ticket = max(looked.ticket) OVER () AS last,
           (looked.ticket IN (SELECT unnest(l.tickets) FROM leases l)) IS NOT TRUE AND NOT EXISTS (
               SELECT FROM due d
               WHERE d.lane = looked.lane AND d.provider = looked.provider AND d.grp = looked.grp
                 AND d.due_at = looked.next_attempt_at AND d.ticket = looked.ticket
               OFFSET 0) AS lost
    FROM looked
)
SELECT ticket, lost FROM judged WHERE lost OR last ORDER BY ticket;

-- name: put_back
-- Routes whose ticket is lost wait for their time without one: the next claim gives them another.
-- Races: a late success, a cancellation or a hand ends or moves the route; another process puts it back.
--   ticket                  the first one has taken the ticket: nothing is left to do. No number is given twice.
--   NOT EXISTS              asked again: what the caller has seen may be old.
--   attempt_count           stays: nobody knows of a call.
UPDATE routes r SET ticket = NULL, turn = NULL, updated_at = clock_timestamp()
WHERE r.ticket = ANY (:tickets::bigint[]) AND r.next_attempt_at IS NOT NULL AND r.status IN ('pending', 'failed')
  AND (r.ticket IN (SELECT unnest(l.tickets) FROM leases l)) IS NOT TRUE
  AND NOT EXISTS (
      SELECT FROM due d
      WHERE d.lane = r.lane AND d.provider = r.provider AND d.grp = r.grp AND d.due_at = r.next_attempt_at AND d.ticket = r.ticket)
RETURNING r.notification_id, r.route_id;

-- name: reset_expired
-- Races: a worker claims the same route, its late worker settles or renews, another process resets.
--   SKIP LOCKED             the holder of the row's lock decides; the next run looks again.
--   claim_token IS NOT NULL a route is reset once for each lease, so several resetters count nothing twice.
--   attempt_count           stays: the claim has counted the attempt, so a reset costs none.
--   budget_since            when it was due first: it is claimed again before later routes. One that its expiry had made due before
--                           stays due.
--   alerted                 the alert is written with the dead letter, as `settle` does.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), expired AS MATERIALIZED (
    SELECT r.ctid AS place FROM routes r
    WHERE r.channel = 'sse' AND r.claim_token IS NOT NULL AND r.next_attempt_at <= (SELECT now FROM clock)
    ORDER BY r.next_attempt_at
    LIMIT $1
    FOR NO KEY UPDATE SKIP LOCKED
), changed AS (
    UPDATE routes r
    SET status = CASE WHEN r.attempt_count >= r.max_attempts THEN 'dead_letter' ELSE 'failed' END,
        next_attempt_at = CASE WHEN r.attempt_count >= r.max_attempts THEN NULL ELSE least(r.budget_since, r.next_attempt_at) END,
        dead_lettered_at = CASE WHEN r.attempt_count >= r.max_attempts THEN clock.now END,
        last_error_classification = 'lease_expired',
        last_error_message = 'Lease expired',
        last_error_at = clock.now,
        claim_token = NULL,
        lease_owner = NULL,
        updated_at = clock.now
    FROM expired CROSS JOIN clock
    WHERE r.ctid = expired.place
    RETURNING r.*
), buried AS (
    INSERT INTO dead_letters (
        notification_id, route_id, channel, recipient_ref, final_attempt_count, max_attempts, failure_classification,
        failure_message, recovery_hint, created_at)
    SELECT notification_id, route_id, channel, recipient_ref, attempt_count, max_attempts, last_error_classification,
           last_error_message, $2, updated_at
    FROM changed
    WHERE status = 'dead_letter'
    ON CONFLICT (notification_id, route_id) DO NOTHING
), alerted AS (
    INSERT INTO outbox (
        topic, notification_id, route_id, created_at, next_attempt_at, final_attempt_count, failure_message)
    SELECT 'NotificationFailed', notification_id, route_id, updated_at, updated_at, attempt_count, last_error_message
    FROM changed
    WHERE status = 'dead_letter' AND lane >= $3::smallint
)
SELECT count(*) AS count, count(*) FILTER (WHERE status = 'dead_letter') AS failed FROM changed;
