-- Statements of chains, in which a channel waits for those before it, and of delivery reports that do not come.

-- name: chain_open
-- Runs in the transaction of `enrol`: what it has not skipped.
SELECT r.notification_id, r.route_id FROM routes r
WHERE r.notification_id = ANY (:notification_ids::text[]) AND r.status = 'pending';

-- name: chain_lay
-- Runs in the transaction of `enrol`, for routes that it has written.
--   moved                   a route before it is skipped: it takes that one's time.
--   budget_since            when its time comes, also where it is due before, at its expiry: a later expiry gives that time back.
UPDATE routes r
SET goal = given.goal, step = given.step, not_before = to_timestamp(given.not_before_ms / 1000.0),
    next_attempt_at = CASE WHEN given.moved THEN coalesce(to_timestamp(given.due_ms / 1000.0), clock_timestamp())
                           ELSE r.next_attempt_at END,
    budget_since = CASE WHEN given.step IS NULL THEN r.budget_since
                        ELSE coalesce(to_timestamp(given.planned_ms / 1000.0),
                                      CASE WHEN given.moved THEN clock_timestamp() ELSE r.budget_since END) END
FROM unnest(:notification_id::text[], :route_id::text[], :goal::text[], :step::smallint[], :due_ms::float8[],
            :planned_ms::float8[], :not_before_ms::float8[], :moved::boolean[])
    AS given (notification_id, route_id, goal, step, due_ms, planned_ms, not_before_ms, moved)
WHERE r.notification_id = given.notification_id AND r.route_id = given.route_id;

-- name: chain_reached
-- Skips what waits in chains whose goal another route has reached. It reads the goal from the rows: to run it again, or to
-- run it after a crash, changes nothing more, and every claim asks the same.
-- Races: a worker claims the route at this moment, another receipt locks it.
--   claim_token             a claimed route may be on its way and stays: when that call fails, its next claim finds the goal reached.
--   taken                   the row of `due` stands for the route, as in `stop_routes`; both are locked, or neither is touched.
--   SKIP LOCKED             two receipts about two routes of one chain never wait for each other in a circle.
--   count(*) FROM taken     as in `stop_routes`.
WITH taken AS (
    DELETE FROM due d WHERE d.ctid = ANY (ARRAY(
        SELECT q.ctid FROM routes w JOIN due q ON q.lane = w.lane AND q.provider = w.provider AND q.grp = w.grp
            AND q.due_at = w.next_attempt_at AND q.ticket = w.ticket
        WHERE w.notification_id = ANY (:notification_ids::text[]) AND w.goal IS NOT NULL AND w.status IN ('pending', 'failed')
          AND EXISTS (
              SELECT FROM routes e
              WHERE e.notification_id = w.notification_id AND e.recipient_ref = w.recipient_ref AND e.route_id <> w.route_id
                AND CASE w.goal WHEN 'delivered' THEN e.delivered_at WHEN 'read' THEN e.opened_at ELSE e.clicked_at END IS NOT NULL)
        FOR UPDATE OF q, w SKIP LOCKED))
    RETURNING d.ticket
)
UPDATE routes r
SET status = 'skipped', skipped_at = clock_timestamp(), next_attempt_at = NULL, claim_token = NULL, lease_owner = NULL, turn = NULL,
    attempt_count = r.attempt_count + CASE WHEN r.ticket IS NULL OR r.ticket IN (SELECT ticket FROM taken) THEN 0 ELSE 1 END,
    ticket = NULL,
    last_error_classification = 'reached',
    last_error_message = 'another channel reached its goal: ' || due.goal || ' on ' || due.channel,
    last_error_at = clock_timestamp(), updated_at = clock_timestamp()
FROM (
    SELECT w.ctid AS place, w.goal, done.channel
    FROM routes w
    CROSS JOIN LATERAL (
        SELECT e.channel FROM routes e
        WHERE e.notification_id = w.notification_id AND e.recipient_ref = w.recipient_ref AND e.route_id <> w.route_id
          AND CASE w.goal WHEN 'delivered' THEN e.delivered_at WHEN 'read' THEN e.opened_at ELSE e.clicked_at END IS NOT NULL
        ORDER BY e.step LIMIT 1) AS done
    WHERE w.notification_id = ANY (:notification_ids::text[]) AND w.goal IS NOT NULL AND w.status IN ('pending', 'failed')
      AND (w.claim_token IS NULL OR w.next_attempt_at <= clock_timestamp())
      AND (SELECT count(*) FROM taken) IS NOT NULL
      AND (w.ticket IS NULL OR w.ticket IN (SELECT ticket FROM taken)
           OR EXISTS (SELECT FROM leases l WHERE l.expires_at <= clock_timestamp() AND w.ticket = ANY (l.tickets)))
    FOR UPDATE OF w SKIP LOCKED
) AS due
WHERE r.ctid = due.place
RETURNING r.notification_id, r.route_id, r.channel, r.last_error_message AS because;

-- name: chain_release
-- A route ended without having been sent: the next one of its person goes at once, and those behind it move up by as much.
-- It reads from the rows which route is next: to run it again changes nothing more.
-- Races: a worker claims the next one at this moment, or its time has just come: then there is nothing to move.
--   ended                   the one just before it was neither sent nor waits: those it waited for have nothing left to try.
--   claimed_at              a route that a worker has had waits for its retry or for a breaker, not for the one before it.
--   not_before              what quiet hours hold stays held.
--   budget_since            distances are those of the plan, also where expiry has cut them.
--   turn                    it stands among what is scheduled, and the next claim puts it into the turns.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), following AS MATERIALIZED (
    SELECT DISTINCT ON (r.notification_id, r.recipient_ref)
        r.notification_id, r.recipient_ref, r.step, r.claimed_at, r.next_attempt_at > clock.now AS waits,
        greatest(r.next_attempt_at, r.budget_since) - clock.now AS ahead
    FROM clock CROSS JOIN routes r
    WHERE r.notification_id = ANY (:notification_ids::text[]) AND r.step IS NOT NULL AND r.status IN ('pending', 'failed')
    ORDER BY r.notification_id, r.recipient_ref, r.step
), ended AS (
    SELECT f.* FROM following f
    WHERE f.waits AND f.claimed_at IS NULL
      AND (SELECT e.status IN ('dead_letter', 'skipped') FROM routes e
           WHERE e.notification_id = f.notification_id AND e.recipient_ref = f.recipient_ref AND e.step < f.step
           ORDER BY e.step DESC LIMIT 1)
)
UPDATE routes r
SET next_attempt_at = least(greatest(greatest(r.next_attempt_at, r.budget_since) - ended.ahead, r.not_before), n.expires_at),
    budget_since = greatest(greatest(r.next_attempt_at, r.budget_since) - ended.ahead, r.not_before), turn = NULL, updated_at = clock.now
FROM clock CROSS JOIN ended JOIN records n ON n.notification_id = ended.notification_id
WHERE r.notification_id = ended.notification_id AND r.recipient_ref = ended.recipient_ref AND r.step >= ended.step
  AND r.status = 'pending' AND r.claimed_at IS NULL
RETURNING r.notification_id, r.route_id;

-- name: await_receipt
-- Runs in the transaction of the settlement: from now on the vendor has so long to report the delivery.
--   delivered_at            a report that came first is the end of it.
UPDATE routes r SET receipt_due = clock_timestamp() + given.seconds * interval '1 second'
FROM unnest(:notification_id::text[], :route_id::text[], :provider::text[], :seconds::float8[])
    AS given (notification_id, route_id, provider, seconds)
WHERE r.notification_id = given.notification_id AND r.route_id = given.route_id
  AND r.status = 'published' AND r.provider = given.provider AND r.delivered_at IS NULL;

-- name: receipts_overdue
-- `sent` is false where the delivery was reported, or the route went on, meanwhile.
SELECT r.notification_id, r.route_id, r.channel, r.provider, r.provider_message_id,
       r.status = 'published' AND r.delivered_at IS NULL AS sent
FROM routes r
WHERE r.receipt_due IS NOT NULL AND r.receipt_due <= clock_timestamp()
ORDER BY r.receipt_due LIMIT :limit;

-- name: receipts_given_up
-- Race: the route was sent once more meanwhile, and waits for another report: that one is not over yet.
UPDATE routes r SET receipt_due = NULL
FROM unnest(:notification_id::text[], :route_id::text[]) AS given (notification_id, route_id)
WHERE r.notification_id = given.notification_id AND r.route_id = given.route_id AND r.receipt_due <= clock_timestamp();

-- name: hasten_receipts
-- Runs in the transaction of `hasten`.
UPDATE routes SET receipt_due = receipt_due - make_interval(secs => :seconds) WHERE receipt_due IS NOT NULL;
