-- Statements of what stops a notification that waits: a newer one in its place, or its producer.

-- name: collapse
-- Runs in the transaction of `enrol`, for notifications that it has written. Keys arrive sorted.
-- Race: two acceptances under one key at once.
--   ON CONFLICT             the second waits for the first and finds it in `before`: of two, the one that commits later stays.
INSERT INTO collapses AS c (tenant_id, audience, collapse_key, notification_id, updated_at)
SELECT given.*, clock_timestamp()
FROM unnest(:tenant_id::text[], :audience::text[], :collapse_key::text[], :notification_id::text[])
    AS given (tenant_id, audience, collapse_key, notification_id)
ON CONFLICT (tenant_id, audience, collapse_key) DO UPDATE
SET before = c.notification_id, notification_id = excluded.notification_id, updated_at = excluded.updated_at
RETURNING notification_id, before;

-- name: stop
-- Race: a worker holds a route of it. The mark stays on the record: when that call fails, the next claim finds it and
-- skips the route.
--   stopped IS NULL         what stopped it first stays.
UPDATE records n SET stopped = given.stopped, updated_at = clock_timestamp()
FROM unnest(:notification_id::text[], :stopped::text[]) AS given (notification_id, stopped)
WHERE n.notification_id = given.notification_id AND n.stopped IS NULL;

-- name: stop_routes
-- Race: a worker claims the route at this moment. The second one waits, looks again and finds it taken.
--   taken                   the row of `due` stands for the route: this waits for a claim that is under way, and a claim passes over
--                           a row that is locked here.
--   claim_token, leases     a claimed route may be on its way and stays; a lease that ran out does not protect it,
--                           and its attempt counts.
--   count(*) FROM taken     reads `taken` before a row is locked: for its second look at a row, PostgreSQL runs no deletion but raises an error.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(:notification_id::text[], :gate::text[], :reason::text[]) AS given (notification_id, gate, reason)
), taken AS (
    DELETE FROM due d
    USING given JOIN routes r ON r.notification_id = given.notification_id AND r.ticket IS NOT NULL
    WHERE d.lane = r.lane AND d.provider = r.provider AND d.grp = r.grp AND d.due_at = r.next_attempt_at AND d.ticket = r.ticket
    RETURNING d.ticket
)
UPDATE routes r
SET status = 'skipped', skipped_at = clock_timestamp(), next_attempt_at = NULL, claim_token = NULL, lease_owner = NULL,
    attempt_count = r.attempt_count + CASE WHEN r.ticket IS NULL OR r.ticket IN (SELECT ticket FROM taken) THEN 0 ELSE 1 END,
    ticket = NULL, last_error_classification = given.gate, last_error_message = given.reason,
    last_error_at = clock_timestamp(), updated_at = clock_timestamp()
FROM given
WHERE r.notification_id = given.notification_id AND r.status IN ('pending', 'failed')
  AND (r.claim_token IS NULL OR r.next_attempt_at <= clock_timestamp())
  AND (SELECT count(*) FROM taken) IS NOT NULL
  AND (r.ticket IS NULL OR r.ticket IN (SELECT ticket FROM taken)
       OR EXISTS (SELECT FROM leases l WHERE l.expires_at <= clock_timestamp() AND r.ticket = ANY (l.tickets)))
RETURNING r.notification_id, r.route_id;

-- name: prune_collapses
-- A key that nobody used for so long has nothing that waits.
DELETE FROM collapses WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM collapses
    WHERE updated_at < clock_timestamp() - :older_than_seconds::float8 * interval '1 second'
      AND NOT EXISTS (SELECT FROM records n WHERE n.notification_id = collapses.notification_id)
    ORDER BY updated_at LIMIT :limit))
RETURNING 1 AS pruned;

-- name: still_waiting
-- Notifications with something that waits or that a worker holds, in the order of their ids; filters left out are NULL.
--   closed_at               an event of a digest waits until the digest closes.
--   stopped IS NULL         an event that was left out before is not counted again.
--   routed                  a throttle gathers what is too much for one person, while others of the same notification wait.
SELECT n.notification_id, count(*) FILTER (WHERE still.waits) AS waiting, count(*) FILTER (WHERE NOT still.waits) AS held,
       count(*) FILTER (WHERE still.gathered) AS gathered,
       EXISTS (SELECT FROM routes o WHERE o.notification_id = n.notification_id AND o.next_attempt_at IS NOT NULL) AS routed
FROM (
    SELECT r.notification_id, (r.claim_token IS NULL OR r.next_attempt_at <= clock_timestamp())
               AND ((r.ticket IN (SELECT unnest(l.tickets) FROM leases l WHERE l.expires_at > clock_timestamp())) IS NOT TRUE) AS waits,
           FALSE AS gathered, r.channel
    FROM routes r WHERE r.next_attempt_at IS NOT NULL
    UNION ALL
    SELECT m.notification_id, TRUE, TRUE, d.channels
    FROM digest_members m JOIN digests d ON d.digest_id = m.digest_id WHERE d.closed_at IS NULL
) AS still
JOIN records n ON n.notification_id = still.notification_id
WHERE (NOT still.gathered OR n.stopped IS NULL) AND n.notification_id > :after
  AND (:notification_id::text IS NULL OR n.notification_id = :notification_id)
  AND (:idempotency_key::text IS NULL OR n.idempotency_key = :idempotency_key)
  AND (:collapse_key::text IS NULL OR EXISTS (
          SELECT FROM collapses c
          WHERE c.notification_id = n.notification_id AND c.collapse_key = :collapse_key
            AND c.tenant_id = coalesce(n.tenant_id, '')))
  AND (:tenant_id::text IS NULL OR coalesce(n.tenant_id, '') = :tenant_id)
  AND (:user_id::text IS NULL OR n.user_id = :user_id)
  AND (:notification_type::text IS NULL OR n.notification_type = :notification_type)
  AND (:origin::text IS NULL OR n.origin = :origin)
  AND (:channel::text IS NULL OR still.channel = :channel
       OR (still.gathered AND :channel = ANY (string_to_array(still.channel, ','))))
  AND (:accepted_after_ms::float8 IS NULL OR n.accepted_at >= to_timestamp(:accepted_after_ms / 1000.0))
  AND (:accepted_before_ms::float8 IS NULL OR n.accepted_at < to_timestamp(:accepted_before_ms / 1000.0))
GROUP BY n.notification_id
ORDER BY n.notification_id
LIMIT :limit;

-- name: change_time
-- Race: a worker claims a route at this moment. `change_due` leaves a claimed route alone.
UPDATE records n
SET scheduled_for = coalesce(to_timestamp(:scheduled_for_ms::float8 / 1000.0), n.scheduled_for),
    expires_at = coalesce(to_timestamp(:expires_at_ms::float8 / 1000.0), n.expires_at), updated_at = clock_timestamp()
WHERE n.notification_id = ANY (:notification_ids::text[]) AND n.stopped IS NULL;

-- name: change_due
-- Race: a worker claims the route at this moment. The second one waits, looks again and finds it taken.
--   taken                   the row of `due` stands for the route, as in `stop_routes`.
--   claim_token, ticket     a claimed route may be on its way and stays.
--   attempt_count           a route that was tried waits for its retry, not for its schedule.
--   turn                    a route that stood in the turns waits for its new time.
--   behind                  the later channels of a chain keep their distance from the first, as `budget_since` has it: expiry cuts the other.
--   greatest                what was due at its old expiry, to be skipped, is due at its own time again.
--   latest_ms               no time is after the last year, which nobody could show: the whole chain goes so much earlier.
--   count(*) FROM taken     as in `stop_routes`.
WITH taken AS (
    DELETE FROM due d USING routes r
    WHERE r.notification_id = ANY (:notification_ids::text[]) AND r.status = 'pending' AND r.attempt_count = 0
      AND d.lane = r.lane AND d.provider = r.provider AND d.grp = r.grp AND d.due_at = r.next_attempt_at AND d.ticket = r.ticket
    RETURNING d.ticket
)
UPDATE routes r
SET next_attempt_at = least(
        coalesce(first.moved_to,
                 greatest(r.next_attempt_at, r.budget_since, r.not_before, CASE WHEN coalesce(r.step, 0) = 0 THEN n.scheduled_for END)), n.expires_at),
    budget_since = coalesce(first.moved_to, r.budget_since), turn = NULL, ticket = NULL,
    not_before = CASE WHEN :scheduled_for_ms::float8 IS NULL THEN r.not_before END, updated_at = clock_timestamp()
FROM records n
JOIN (
    SELECT w.notification_id, w.route_id, CASE WHEN :scheduled_for_ms::float8 IS NOT NULL THEN
               least(to_timestamp(:scheduled_for_ms::float8 / 1000.0),
                     to_timestamp(:latest_ms::float8 / 1000.0) - max(w.behind) OVER (PARTITION BY w.notification_id)) + w.behind
           END AS moved_to
    FROM (
        SELECT w.notification_id, w.route_id,
               CASE WHEN w.step IS NULL THEN interval '0' ELSE w.budget_since
                   - min(w.budget_since) OVER (PARTITION BY w.notification_id, w.recipient_ref) END AS behind
        FROM routes w
        WHERE w.notification_id = ANY (:notification_ids::text[]) AND w.next_attempt_at IS NOT NULL
    ) AS w
) AS first ON first.notification_id = n.notification_id
WHERE n.notification_id = r.notification_id AND first.route_id = r.route_id
  AND r.notification_id = ANY (:notification_ids::text[]) AND r.status = 'pending' AND r.attempt_count = 0 AND r.claim_token IS NULL
  AND (SELECT count(*) FROM taken) IS NOT NULL AND (r.ticket IS NULL OR r.ticket IN (SELECT ticket FROM taken))
RETURNING r.notification_id, r.route_id;
