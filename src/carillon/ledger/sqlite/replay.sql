-- Statements of replays: what went to one endpoint since a time. An address may be sealed, so the process opens it and compares.

-- name: replay_failed
-- One page of dead letters of a provider, the oldest first; `after` is where the page before ended. Nothing is locked:
-- `redrive` looks again at those that the process names.
SELECT d.notification_id, d.route_id, r.address, d.created_at * 1000 AS place_us,
       EXISTS (
           SELECT 1 FROM suppressions s
           WHERE s.channel = r.channel AND s.address = r.address AND s.tenant_id IN ('', n.tenant_id)
             AND (s.expires_at IS NULL OR s.expires_at > :now)) AS suppressed
FROM dead_letters d
JOIN routes r ON r.notification_id = d.notification_id AND r.route_id = d.route_id
JOIN records n ON n.notification_id = d.notification_id
WHERE d.created_at >= :since_ms AND d.created_at < :until_ms
  AND r.provider = :provider AND (:tenant_id IS NULL OR n.tenant_id = :tenant_id)
  AND (:after_us IS NULL OR (d.created_at, d.notification_id, d.route_id) > (:after_us / 1000, :after_id, :after_route))
ORDER BY d.created_at, d.notification_id, d.route_id
LIMIT :limit;

-- name: replay_taken
-- One page of what a provider's endpoints took since a time, the oldest first.
--   updated_at              finds them through the index of ended routes: a route is changed last when it is delivered, or later.
--   receipt_due             a step of a chain whose report is awaited stays: its chain goes on by itself.
--   stopped, expires_at     what was cancelled or replaced since, or has expired, is sent no more.
SELECT r.notification_id, r.route_id, r.address, r.updated_at * 1000 AS place_us,
       EXISTS (
           SELECT 1 FROM suppressions s
           WHERE s.channel = r.channel AND s.address = r.address AND s.tenant_id IN ('', n.tenant_id)
             AND (s.expires_at IS NULL OR s.expires_at > :now)) AS suppressed
FROM routes r JOIN records n ON n.notification_id = r.notification_id
WHERE r.updated_at >= :since_ms AND r.next_attempt_at IS NULL
  AND r.published_at >= :since_ms AND r.published_at < :until_ms
  AND r.status = 'published' AND r.provider = :provider AND r.receipt_due IS NULL AND n.stopped IS NULL
  AND (n.expires_at IS NULL OR n.expires_at > :now)
  AND (:tenant_id IS NULL OR n.tenant_id = :tenant_id)
  AND (:after_us IS NULL OR (r.updated_at, r.notification_id, r.route_id) > (:after_us / 1000, :after_id, :after_route))
ORDER BY r.updated_at, r.notification_id, r.route_id
LIMIT :limit;

-- name: replay_lock
-- Race: two operators replay at once.
--   BEGIN IMMEDIATE         the second finds it published no longer.
--   published_at            what was delivered again after the count is not sent a third time.
SELECT r.notification_id, r.route_id
FROM routes r JOIN records n ON n.notification_id = r.notification_id
WHERE r.notification_id = :notification_id AND r.route_id = :route_id
  AND r.status = 'published' AND r.published_at < :until_ms AND r.receipt_due IS NULL
  AND n.stopped IS NULL AND (n.expires_at IS NULL OR n.expires_at > :now)
  AND NOT EXISTS (
      SELECT 1 FROM suppressions s
      WHERE s.channel = r.channel AND s.address = r.address AND s.tenant_id IN ('', n.tenant_id)
        AND (s.expires_at IS NULL OR s.expires_at > :now));

-- name: replay_keep
-- The route tells its success no longer, so that attempt becomes a row.
INSERT INTO attempts (
    attempt_id, notification_id, route_id, attempt, provider, outcome, provider_message_id, started_at, duration_ms,
    verdict, settled)
SELECT finished_by, notification_id, route_id, attempt_count, provider, 'sent', provider_message_id,
       published_at - CAST(round(took_ms) AS INTEGER), took_ms, 'finish', settled_by
FROM routes
WHERE notification_id = :notification_id AND route_id = :route_id AND finished_by IS NOT NULL
ON CONFLICT (attempt_id) DO NOTHING;

-- name: replay
--   attempt_count           a fresh budget, as of a dead letter.
UPDATE routes
SET status = 'failed', attempt_count = 0, provider_since = 0, finished_by = NULL,
    lane = CASE WHEN lane IN (SELECT value FROM json_each(:unqueued)) THEN :instead ELSE lane END,
    next_attempt_at = max(:now, CAST(round(:due_ms) AS INTEGER)),
    budget_since = max(:now, CAST(round(:due_ms) AS INTEGER)), turn = NULL, updated_at = :now
WHERE notification_id = :notification_id AND route_id = :route_id;

-- name: stop_replay
-- Runs in the transaction of `stop_redrive`, and wins the same race against a worker that claims a route at this moment.
--   published_at            a route that a pause held meanwhile has lost its time: its last success tells it.
UPDATE routes
SET status = 'published', next_attempt_at = NULL, updated_at = :now,
    published_at = coalesce(published_at, (
        SELECT max(a.started_at + CAST(round(a.duration_ms) AS INTEGER)) FROM attempts a
        WHERE a.notification_id = routes.notification_id AND a.route_id = routes.route_id AND a.outcome = 'sent'), :now),
    attempt_count = (SELECT count(*) FROM attempts a
                     WHERE a.notification_id = routes.notification_id AND a.route_id = routes.route_id)
WHERE (notification_id, route_id) IN (
        SELECT notification_id, route_id FROM redriven_routes WHERE action_id = :action_id AND delivered)
  AND status = 'failed' AND attempt_count = 0 AND claim_token IS NULL
  AND (ticket IS NULL OR ticket NOT IN (SELECT t.value FROM leases l, json_each(l.tickets) t))
RETURNING notification_id, route_id;
