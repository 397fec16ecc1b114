-- Statements of redrives of what a gate skipped.

-- name: skipped
-- One page of what was skipped, the oldest first; `after` is where the page before ended. Filters left out are NULL.
--   IN (...)                the gates that may think better of it; what was replaced, cancelled, expired, told in a digest or
--                           reached on another channel stays as it is.
--   suppression_id          without one the address was erased while it was suppressed: that is never lifted.
--   stopped                 a notification that was cancelled or replaced since stays so.
--   SKIP LOCKED             of two operators, the second redrives others, and none twice; retention keeps what is locked.
SELECT r.notification_id, r.route_id, r.channel, r.recipient_ref, r.last_error_classification AS gate,
       round(date_part('epoch', r.skipped_at) * 1000000)::bigint AS skipped_us,
       n.tenant_id, n.category, date_part('epoch', n.scheduled_for) * 1000 AS scheduled_ms,
       date_part('epoch', n.expires_at) * 1000 AS expires_ms, r.goal, date_part('epoch', r.budget_since) * 1000 AS planned_ms,
       CASE WHEN r.goal IS NOT NULL THEN (
           SELECT max(o.step) FROM routes o WHERE o.notification_id = r.notification_id AND o.recipient_ref = r.recipient_ref
       ) END AS last_step,
       EXISTS (
           SELECT FROM suppressions s
           WHERE s.channel = r.channel AND s.address = r.address AND s.tenant_id IN ('', n.tenant_id)
             AND (s.expires_at IS NULL OR s.expires_at > greatest(clock_timestamp(), n.scheduled_for))) AS suppressed,
       -- if api
       (SELECT json_build_object('channels', p.channels_json::json, 'categories', p.categories_json::json)::text
        FROM preferences p
        WHERE n.category IS NOT NULL AND p.tenant_id = coalesce(n.tenant_id, '')
          AND p.user_id = CASE WHEN r.recipient_ref LIKE 'user:%' THEN substr(r.recipient_ref, 6)
                               ELSE split_part(r.recipient_ref, ':', 1) || ':' || r.address END) AS wishes_json
       -- else
       NULL::text AS wishes_json
       -- end
FROM routes r JOIN records n ON n.notification_id = r.notification_id
WHERE r.status = 'skipped' AND r.last_error_classification IN ('suppressed', 'category', 'throttle')
  AND (r.last_error_classification <> 'suppressed' OR r.suppression_id IS NOT NULL) AND n.stopped IS NULL
  AND (:gate::text IS NULL OR r.last_error_classification = :gate)
  AND (:channel::text IS NULL OR r.channel = :channel)
  AND (:tenant_id::text IS NULL OR coalesce(n.tenant_id, '') = :tenant_id)
  AND (:user_id::text IS NULL OR r.recipient_ref = 'user:' || :user_id)
  AND (:notification_type::text IS NULL OR n.notification_type = :notification_type)
  AND (:notification_ids::text[] IS NULL OR r.notification_id = ANY (:notification_ids))
  AND (:skipped_after_ms::float8 IS NULL OR r.skipped_at >= to_timestamp(:skipped_after_ms / 1000.0))
  AND (:skipped_before_ms::float8 IS NULL OR r.skipped_at < to_timestamp(:skipped_before_ms / 1000.0))
  AND (:after_us::float8 IS NULL OR (r.skipped_at, r.notification_id, r.route_id)
       > (to_timestamp(:after_us / 1000000.0), :after_id::text, :after_route::text))
ORDER BY r.skipped_at, r.notification_id, r.route_id
LIMIT :limit
FOR UPDATE OF r SKIP LOCKED
FOR KEY SHARE OF n SKIP LOCKED;

-- name: redrive_skipped
-- Runs under the locks that `skipped` took.
--   attempt_count           a fresh budget, as of a dead letter.
--   last_error_...          stay: a redrive that is stopped leaves the route skipped by the gate that skipped it.
--   planned_ms              a route whose own time is still to come waits for it; what expires before is due when it expires.
--   step                    the place in the chain of its person, where several of its channels go again.
UPDATE routes r
SET status = 'pending', attempt_count = 0, provider_since = 0, skipped_at = NULL,
    lane = CASE WHEN r.lane = ANY (:unqueued::smallint[]) THEN :instead::smallint ELSE r.lane END,
    next_attempt_at = to_timestamp(given.due_ms / 1000.0), budget_since = to_timestamp(given.planned_ms / 1000.0), turn = NULL,
    step = coalesce(given.step, r.step), updated_at = clock_timestamp()
FROM unnest(:notification_id::text[], :route_id::text[], :due_ms::float8[], :planned_ms::float8[], :step::smallint[])
    AS given (notification_id, route_id, due_ms, planned_ms, step)
WHERE r.notification_id = given.notification_id AND r.route_id = given.route_id AND r.status = 'skipped'
RETURNING r.notification_id, r.route_id;

-- name: ledger_now
SELECT (date_part('epoch', clock_timestamp()) * 1000)::float8 AS now_ms;

-- name: unskip_stop
-- Runs in the transaction of `stop_redrive`.
-- Race: a worker claims a route at this moment. The second one waits, looks again and finds it taken.
--   taken                   the row of `due` stands for the route: what a worker holds stays.
--   count(*) FROM taken     as in `stop_routes`.
WITH taken AS (
    DELETE FROM due d USING redriven_routes m, routes r
    WHERE m.action_id = :action_id AND r.notification_id = m.notification_id AND r.route_id = m.route_id
      AND r.status = 'pending' AND r.attempt_count = 0
      AND r.last_error_classification IN ('suppressed', 'category', 'throttle')
      AND d.lane = r.lane AND d.provider = r.provider AND d.grp = r.grp AND d.due_at = r.next_attempt_at AND d.ticket = r.ticket
    RETURNING d.ticket
)
UPDATE routes r
SET status = 'skipped', skipped_at = clock_timestamp(), next_attempt_at = NULL, turn = NULL, ticket = NULL, updated_at = clock_timestamp()
FROM redriven_routes m
WHERE m.action_id = :action_id AND r.notification_id = m.notification_id AND r.route_id = m.route_id
  AND r.status = 'pending' AND r.attempt_count = 0 AND r.claim_token IS NULL
  AND (SELECT count(*) FROM taken) IS NOT NULL AND (r.ticket IS NULL OR r.ticket IN (SELECT ticket FROM taken))
  AND r.last_error_classification IN ('suppressed', 'category', 'throttle')
RETURNING r.notification_id, r.route_id;
