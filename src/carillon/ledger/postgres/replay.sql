-- Statements of replays: what went to one endpoint since a time. An address may be sealed, so the process opens it and compares.

-- name: replay_failed
-- One page of dead letters of a provider, the oldest first; `after` is where the page before ended. Nothing is locked:
-- `redrive` looks again at those that the process names.
SELECT d.notification_id, d.route_id, r.address, (extract(epoch FROM d.created_at) * 1000000)::bigint AS place_us,
       EXISTS (
           SELECT FROM suppressions s
           WHERE s.channel = r.channel AND s.address = r.address AND s.tenant_id IN ('', n.tenant_id)
             AND (s.expires_at IS NULL OR s.expires_at > clock_timestamp())) AS suppressed
FROM dead_letters d
JOIN routes r ON r.notification_id = d.notification_id AND r.route_id = d.route_id
JOIN records n ON n.notification_id = d.notification_id
WHERE d.created_at >= to_timestamp(:since_ms::float8 / 1000.0) AND d.created_at < to_timestamp(:until_ms::float8 / 1000.0)
  AND r.provider = :provider AND (:tenant_id::text IS NULL OR n.tenant_id = :tenant_id)
  AND (:after_us::float8 IS NULL OR (d.created_at, d.notification_id, d.route_id)
       > (to_timestamp(:after_us / 1000000.0), :after_id::text, :after_route::text))
ORDER BY d.created_at, d.notification_id, d.route_id
LIMIT :limit;

-- name: replay_taken
-- One page of what a provider's endpoints took since a time, the oldest first.
--   updated_at              finds them through the index of ended routes: a route is changed last when it is delivered, or later.
--   receipt_due             a step of a chain whose report is awaited stays: its chain goes on by itself.
--   stopped, expires_at     what was cancelled or replaced since, or has expired, is sent no more.
SELECT r.notification_id, r.route_id, r.address, (extract(epoch FROM r.updated_at) * 1000000)::bigint AS place_us,
       EXISTS (
           SELECT FROM suppressions s
           WHERE s.channel = r.channel AND s.address = r.address AND s.tenant_id IN ('', n.tenant_id)
             AND (s.expires_at IS NULL OR s.expires_at > clock_timestamp())) AS suppressed
FROM routes r JOIN records n ON n.notification_id = r.notification_id
WHERE r.updated_at >= to_timestamp(:since_ms::float8 / 1000.0) AND r.next_attempt_at IS NULL
  AND r.published_at >= to_timestamp(:since_ms::float8 / 1000.0) AND r.published_at < to_timestamp(:until_ms::float8 / 1000.0)
  AND r.status = 'published' AND r.provider = :provider AND r.receipt_due IS NULL AND n.stopped IS NULL
  AND (n.expires_at IS NULL OR n.expires_at > clock_timestamp())
  AND (:tenant_id::text IS NULL OR n.tenant_id = :tenant_id)
  AND (:after_us::float8 IS NULL OR (r.updated_at, r.notification_id, r.route_id)
       > (to_timestamp(:after_us / 1000000.0), :after_id::text, :after_route::text))
ORDER BY r.updated_at, r.notification_id, r.route_id
LIMIT :limit;

-- name: replay_lock
-- Races: retention deletes the record meanwhile; two operators replay at once; the notification is cancelled.
--   UPDATE OF r SKIP LOCKED the second operator replays others; once the first has committed, these are published no longer.
--   KEY SHARE OF n          makes retention skip this record, or makes us skip what it is deleting.
--   published_at            what was delivered again after the count is not sent a third time.
SELECT r.notification_id, r.route_id
FROM unnest(:notification_id::text[], :route_id::text[]) AS given (notification_id, route_id)
JOIN routes r ON r.notification_id = given.notification_id AND r.route_id = given.route_id
JOIN records n ON n.notification_id = given.notification_id
WHERE r.status = 'published' AND r.published_at < to_timestamp(:until_ms::float8 / 1000.0) AND r.receipt_due IS NULL
  AND n.stopped IS NULL AND (n.expires_at IS NULL OR n.expires_at > clock_timestamp())
  AND NOT EXISTS (
      SELECT FROM suppressions s
      WHERE s.channel = r.channel AND s.address = r.address AND s.tenant_id IN ('', n.tenant_id)
        AND (s.expires_at IS NULL OR s.expires_at > clock_timestamp()))
ORDER BY n.accepted_at, r.notification_id, r.route_id
FOR UPDATE OF r SKIP LOCKED
FOR KEY SHARE OF n SKIP LOCKED;

-- name: replay_keep
-- Runs under the locks of `replay_lock`: the route tells its success no longer, so that attempt becomes a row.
INSERT INTO attempts (
    attempt_id, notification_id, route_id, attempt, provider, outcome, provider_message_id, started_at, duration_ms,
    verdict, settled)
SELECT r.finished_by, r.notification_id, r.route_id, r.attempt_count, r.provider, 'sent', r.provider_message_id,
       r.published_at - r.took_ms * interval '1 millisecond', r.took_ms, 'finish', r.settled_by
FROM unnest(:notification_id::text[], :route_id::text[]) AS given (notification_id, route_id)
JOIN routes r ON r.notification_id = given.notification_id AND r.route_id = given.route_id
WHERE r.finished_by IS NOT NULL
ON CONFLICT (notification_id, attempt_id) DO NOTHING;

-- name: replay
-- Runs under the locks of `replay_lock`.
--   attempt_count           a fresh budget, as of a dead letter.
UPDATE routes r
SET status = 'failed', attempt_count = 0, provider_since = 0, finished_by = NULL,
    lane = CASE WHEN r.lane = ANY (:unqueued::smallint[]) THEN :instead::smallint ELSE r.lane END,
    next_attempt_at = greatest(clock_timestamp(), to_timestamp(given.due_ms / 1000.0)),
    budget_since = greatest(clock_timestamp(), to_timestamp(given.due_ms / 1000.0)), turn = NULL, updated_at = clock_timestamp()
FROM unnest(:notification_id::text[], :route_id::text[], :due_ms::float8[]) AS given (notification_id, route_id, due_ms)
WHERE r.notification_id = given.notification_id AND r.route_id = given.route_id;

-- name: stop_replay
-- Runs in the transaction of `stop_redrive`, and wins the same race against a worker that claims a route at this moment.
--   published_at            a route that a pause held meanwhile has lost its time: its last success tells it.
--   count(*) FROM taken     as in `stop_routes`.
WITH taken AS (
    DELETE FROM due d USING redriven_routes m, routes r
    WHERE m.action_id = :action_id AND m.delivered
      AND r.notification_id = m.notification_id AND r.route_id = m.route_id AND r.status = 'failed' AND r.attempt_count = 0
      AND d.lane = r.lane AND d.provider = r.provider AND d.grp = r.grp AND d.due_at = r.next_attempt_at AND d.ticket = r.ticket
    RETURNING d.ticket
)
UPDATE routes r
SET status = 'published', next_attempt_at = NULL, turn = NULL, ticket = NULL, updated_at = clock_timestamp(),
    published_at = coalesce(r.published_at, (
        SELECT max(a.started_at + a.duration_ms * interval '1 millisecond') FROM attempts a
        WHERE a.notification_id = r.notification_id AND a.route_id = r.route_id AND a.outcome = 'sent'), clock_timestamp()),
    attempt_count = (SELECT count(*) FROM attempts a WHERE a.notification_id = r.notification_id AND a.route_id = r.route_id)
FROM redriven_routes m
WHERE m.action_id = :action_id AND m.delivered AND r.notification_id = m.notification_id AND r.route_id = m.route_id
  AND r.status = 'failed' AND r.attempt_count = 0 AND r.claim_token IS NULL
  AND (SELECT count(*) FROM taken) IS NOT NULL AND (r.ticket IS NULL OR r.ticket IN (SELECT ticket FROM taken))
RETURNING r.notification_id, r.route_id;
