-- Statements of administrators: dead letters, redrives, actions, API keys and the audit log. Filters left out are NULL.

-- name: failed
-- One snapshot for the page and the total, so that they agree.
WITH matching AS MATERIALIZED (
    SELECT d.notification_id, d.route_id, d.channel, d.final_attempt_count, d.failure_classification,
           d.failure_message, d.created_at, r.provider, r.last_error_at, n.tenant_id, n.user_id, n.notification_type,
           n.priority, n.accepted_at
    FROM dead_letters d
    JOIN routes r ON r.notification_id = d.notification_id AND r.route_id = d.route_id
    JOIN records n ON n.notification_id = d.notification_id
    WHERE (:channel IS NULL OR d.channel = :channel)
      AND (:classification IS NULL OR d.failure_classification = :classification)
      AND (:provider IS NULL OR r.provider = :provider)
      AND (:notification_type IS NULL OR n.notification_type = :notification_type)
      AND (:tenant_id IS NULL OR n.tenant_id = :tenant_id)
      AND (:notification_id IS NULL OR d.notification_id = :notification_id)
      AND (:failed_after_ms IS NULL OR d.created_at >= :failed_after_ms)
      AND (:failed_before_ms IS NULL OR d.created_at < :failed_before_ms)
      AND (:notification_ids IS NULL OR d.notification_id IN (SELECT value FROM json_each(:notification_ids)))
      AND (:letters IS NULL OR d.notification_id || char(31) || d.route_id IN (SELECT value FROM json_each(:letters)))
), page AS (
    SELECT *, created_at * 1000 AS place FROM matching
    WHERE :before_us IS NULL
       OR (created_at, notification_id, route_id) < (:before_us / 1000, :before_id, :before_route)
    ORDER BY created_at DESC, notification_id DESC, route_id DESC LIMIT :limit OFFSET :offset
)
SELECT (SELECT count(*) FROM matching) AS total, page.*
FROM (SELECT 1) AS always
LEFT JOIN page ON TRUE
ORDER BY page.created_at DESC, page.notification_id DESC, page.route_id DESC;

-- name: failed_counts
-- `now` bounds the redrive that follows: a route that fails again meanwhile is not redriven twice.
SELECT :now AS now, counted.*
FROM (SELECT 1) AS always
LEFT JOIN (
    SELECT d.channel, d.failure_classification AS classification, count(*) AS count,
           count(*) FILTER (WHERE EXISTS (
               SELECT 1 FROM suppressions s
               WHERE s.channel = r.channel AND s.address = r.address AND s.tenant_id IN ('', n.tenant_id)
                 AND (s.expires_at IS NULL OR s.expires_at > :now))) AS suppressed
    FROM dead_letters d
    JOIN routes r ON r.notification_id = d.notification_id AND r.route_id = d.route_id
    JOIN records n ON n.notification_id = d.notification_id
    WHERE (:channel IS NULL OR d.channel = :channel)
      AND (:classification IS NULL OR d.failure_classification = :classification)
      AND (:provider IS NULL OR r.provider = :provider)
      AND (:notification_type IS NULL OR n.notification_type = :notification_type)
      AND (:tenant_id IS NULL OR n.tenant_id = :tenant_id)
      AND (:notification_id IS NULL OR d.notification_id = :notification_id)
      AND (:failed_after_ms IS NULL OR d.created_at >= :failed_after_ms)
      AND (:failed_before_ms IS NULL OR d.created_at < :failed_before_ms)
      AND (:notification_ids IS NULL OR d.notification_id IN (SELECT value FROM json_each(:notification_ids)))
      AND (:letters IS NULL OR d.notification_id || char(31) || d.route_id IN (SELECT value FROM json_each(:letters)))
    GROUP BY d.channel, d.failure_classification
) AS counted ON TRUE
ORDER BY counted.count DESC, counted.channel, counted.classification;

-- name: redrive
-- Race: two operators redrive at once.
--   status                  the second finds no dead letter any more and gives no second budget.
--   provider_since = -1     tells the worker that an operator chose the provider: its breaker is not asked.
--   budget_since            the age of a route counts from its turn.
--   NOT EXISTS              a dead letter whose address is suppressed stays: its attempt would only be given up again.
WITH picked AS MATERIALIZED (
    SELECT d.notification_id, d.route_id, d.created_at
    FROM dead_letters d
    JOIN routes r ON r.notification_id = d.notification_id AND r.route_id = d.route_id
    JOIN records n ON n.notification_id = d.notification_id
    WHERE (:channel IS NULL OR d.channel = :channel)
      AND (:classification IS NULL OR d.failure_classification = :classification)
      AND (:provider IS NULL OR r.provider = :provider)
      AND (:notification_type IS NULL OR n.notification_type = :notification_type)
      AND (:tenant_id IS NULL OR n.tenant_id = :tenant_id)
      AND (:notification_id IS NULL OR d.notification_id = :notification_id)
      AND (:failed_after_ms IS NULL OR d.created_at >= :failed_after_ms)
      AND (:failed_before_ms IS NULL OR d.created_at < :failed_before_ms)
      AND (:notification_ids IS NULL OR d.notification_id IN (SELECT value FROM json_each(:notification_ids)))
      AND (:letters IS NULL OR d.notification_id || char(31) || d.route_id IN (SELECT value FROM json_each(:letters)))
      AND NOT EXISTS (
          SELECT 1 FROM suppressions s
          WHERE s.channel = r.channel AND s.address = r.address AND s.tenant_id IN ('', n.tenant_id)
            AND (s.expires_at IS NULL OR s.expires_at > :now))
    ORDER BY d.created_at, d.notification_id, d.route_id
    LIMIT :limit
), turns AS MATERIALIZED (
    SELECT notification_id, route_id,
           :done + row_number() OVER (ORDER BY created_at, notification_id, route_id) - 1 AS place
    FROM picked
), due AS MATERIALIZED (
    -- Without a rate every route is due now. No turn is after the last year, which nobody could show.
    SELECT notification_id, route_id,
           max(:now, coalesce(CAST(round(min(:began_ms + place / CAST(:rate AS REAL) * 1000, :latest_ms)) AS INTEGER), :now)) AS due_at
    FROM turns
)
UPDATE routes
SET status = 'failed', attempt_count = 0, provider_since = CASE WHEN :forced THEN -1 ELSE 0 END,
    provider = coalesce(:new_provider, provider),
    lane = CASE WHEN lane IN (SELECT value FROM json_each(:unqueued)) THEN :instead ELSE lane END,
    next_attempt_at = due.due_at, budget_since = due.due_at, dead_lettered_at = NULL, suppression_id = NULL,
    suppression_kind = NULL, suppressed_until = NULL, updated_at = :now
FROM due
WHERE routes.notification_id = due.notification_id AND routes.route_id = due.route_id AND status = 'dead_letter'
RETURNING notification_id, route_id;

-- name: redrive_forget
-- Runs in the transaction of the redrive.
DELETE FROM dead_letters WHERE notification_id = :notification_id AND route_id = :route_id;

-- name: mark_redriven
-- Runs in the transaction of the redrive. A route redriven again belongs to the newer action.
INSERT INTO redriven_routes (notification_id, route_id, action_id, delivered)
VALUES (:notification_id, :route_id, :action_id, :delivered)
ON CONFLICT (notification_id, route_id) DO UPDATE SET action_id = excluded.action_id, delivered = excluded.delivered;

-- name: note_action
-- Runs in the transaction of the action, if there is one: both are committed, or neither.
INSERT INTO admin_actions (at, actor, action, tenant_id, subject, reason, detail_json)
VALUES (:now, :actor, :action, :tenant_id, :subject, :reason, :detail_json)
RETURNING action_id;

-- name: update_action
-- Runs in the transaction of the next page.
UPDATE admin_actions SET detail_json = :detail_json WHERE action_id = :action_id;

-- name: actions
WITH matching AS MATERIALIZED (
    SELECT * FROM admin_actions a
    WHERE (:actor IS NULL OR a.actor = :actor)
      AND (:action IS NULL OR a.action = :action)
      AND (:subject IS NULL OR a.subject = :subject)
      AND (:tenant_id IS NULL OR a.tenant_id = :tenant_id)
      AND (:after_ms IS NULL OR a.at >= :after_ms)
), page AS (
    SELECT * FROM matching WHERE :before_id IS NULL OR action_id < :before_id
    ORDER BY action_id DESC LIMIT :limit OFFSET :offset
)
SELECT (SELECT count(*) FROM matching) AS total, page.*
FROM (SELECT 1) AS always
LEFT JOIN page ON TRUE
ORDER BY page.action_id DESC;

-- name: redriven
-- `budget_since` is the turn of a route, also while it is in the future.
SELECT m.action_id, count(*) FILTER (WHERE r.status IN ('pending', 'failed')) AS waiting,
       count(*) FILTER (WHERE r.status = 'published') AS delivered,
       count(*) FILTER (WHERE r.status = 'dead_letter') AS failed_again,
       count(*) FILTER (WHERE r.status = 'skipped') AS skipped, max(r.budget_since) AS last_turn_at
FROM redriven_routes m
JOIN routes r ON r.notification_id = m.notification_id AND r.route_id = m.route_id
WHERE m.action_id IN (SELECT value FROM json_each(:action_ids))
GROUP BY m.action_id;

-- name: action
SELECT * FROM admin_actions WHERE action_id = :action_id;

-- name: lock_action
-- Race: a redrive writes its next page while somebody stops it.
--   BEGIN IMMEDIATE         the page is written first and stopped with the others, or it is not written.
SELECT detail_json FROM admin_actions WHERE action_id = :action_id;

-- name: stop_redrive
-- Race: a worker claims a route of the redrive at this moment.
--   claim_token, ticket     what a worker holds goes on: its call may be under way.
--   attempt_count = 0       what was attempted since is a retry, and no part of what waits for its turn.
--   delivered               what was delivered before is `stop_replay`'s.
UPDATE routes
SET status = 'dead_letter', dead_lettered_at = :now, next_attempt_at = NULL, updated_at = :now,
    attempt_count = (SELECT count(*) FROM attempts a
                     WHERE a.notification_id = routes.notification_id AND a.route_id = routes.route_id)
WHERE (notification_id, route_id) IN (
        SELECT notification_id, route_id FROM redriven_routes WHERE action_id = :action_id AND NOT delivered)
  AND status = 'failed' AND attempt_count = 0 AND claim_token IS NULL
  AND (ticket IS NULL OR ticket NOT IN (SELECT t.value FROM leases l, json_each(l.tickets) t))
RETURNING notification_id, route_id;

-- name: stop_redrive_bury
-- Runs in the transaction of `stop_redrive`. The last error is still the reason.
INSERT INTO dead_letters (
    notification_id, route_id, channel, recipient_ref, final_attempt_count, max_attempts, failure_classification,
    failure_message, recovery_hint, created_at)
SELECT notification_id, route_id, channel, recipient_ref, attempt_count, max_attempts,
       coalesce(last_error_classification, 'stopped'), coalesce(last_error_message, 'the redrive was stopped'),
       :recovery_hint, dead_lettered_at
FROM routes WHERE notification_id = :notification_id AND route_id = :route_id
ON CONFLICT (notification_id, route_id) DO NOTHING;

-- name: stop_redrive_forget
-- Runs in the transaction of `stop_redrive`: these routes are no longer part of the redrive.
DELETE FROM redriven_routes WHERE notification_id = :notification_id AND route_id = :route_id;

-- name: recent_outcomes
-- The primary key finds the newest attempts in a table of any size; the newest successes are among the routes that ended
-- last.
WITH ended AS MATERIALIZED (
    SELECT * FROM routes WHERE next_attempt_at IS NULL ORDER BY updated_at DESC LIMIT :limit
), newest AS MATERIALIZED (
    SELECT * FROM attempts ORDER BY attempt_id DESC LIMIT :limit
), recent AS MATERIALIZED (
    SELECT notification_id, route_id, attempt_id, provider, outcome, classification, error, started_at, duration_ms
    FROM newest
    UNION ALL
    SELECT notification_id, route_id, finished_by, provider, 'sent', NULL, NULL,
           published_at - CAST(round(took_ms) AS INTEGER), took_ms
    FROM ended WHERE finished_by IS NOT NULL
    ORDER BY started_at DESC, attempt_id DESC LIMIT :limit
)
SELECT r.channel, a.provider, a.outcome, a.classification, a.error, a.started_at, a.duration_ms
FROM recent a
JOIN routes r ON r.notification_id = a.notification_id AND r.route_id = a.route_id
JOIN records n ON n.notification_id = a.notification_id
WHERE :tenant_id IS NULL OR n.tenant_id = :tenant_id
ORDER BY a.started_at, a.attempt_id;

-- name: write_audit
INSERT INTO audit_logs (audit_key, trace_id, user_id, notification_type, template_id, status, metadata, created_at)
VALUES (:audit_key, :trace_id, :user_id, :notification_type, :template_id, :status, :metadata, :now)
ON CONFLICT (audit_key) DO NOTHING;

-- name: prune_audit
DELETE FROM audit_logs WHERE rowid IN (
    SELECT rowid FROM audit_logs WHERE created_at < :now - CAST(round(:older_than_seconds * 1000) AS INTEGER)
    ORDER BY created_at LIMIT :limit)
RETURNING 1 AS pruned;

-- name: api_key
SELECT * FROM api_keys WHERE key_id = :key_id;

-- name: api_keys
SELECT * FROM api_keys ORDER BY created_at DESC, key_id;

-- name: lock_api_keys
-- The writer is alone with the file: there is nothing to lock.
SELECT 1 AS locked;

-- name: add_api_key
-- Race: two operators each make the second key of one name at the same moment.
--   BEGIN IMMEDIATE         the second counts after the first has committed.
INSERT INTO api_keys (key_id, secret_hash, tenant_id, role, name, created_at, expires_at)
SELECT :key_id, :secret_hash, :tenant_id, :role, :name, :now, :now + CAST(:lives_seconds * 1000 AS INTEGER)
WHERE (
    SELECT count(*) FROM api_keys
    WHERE name = :name AND tenant_id IS :tenant_id AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)
) < :most
RETURNING *;

-- name: revoke_api_key
-- Race: two operators take the same key back.
--   coalesce                the first time stays.
UPDATE api_keys SET revoked_at = coalesce(revoked_at, :now) WHERE key_id = :key_id RETURNING *;

-- name: touch_api_key
-- Race: every process notes the same use.
--   last_used_at <          the second finds the first one's note and writes nothing.
UPDATE api_keys SET last_used_at = :now
WHERE key_id = :key_id AND (last_used_at IS NULL OR last_used_at < :now - CAST(:every_seconds * 1000 AS INTEGER));
