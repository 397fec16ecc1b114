-- Statements of administrators: what failed, another chance for it, and who gave it. Filters left out are NULL.

-- name: failed
-- One snapshot for the page and the total: a list never says less than it shows.
WITH matching AS MATERIALIZED (
    SELECT d.notification_id, d.route_id, d.channel, d.final_attempt_count, d.failure_classification,
           d.failure_message, d.created_at, r.provider, r.last_error_at, n.tenant_id, n.user_id, n.notification_type,
           n.priority, n.accepted_at
    FROM dead_letters d
    JOIN routes r ON r.notification_id = d.notification_id AND r.route_id = d.route_id
    JOIN records n ON n.notification_id = d.notification_id
    WHERE (?1 IS NULL OR d.channel = ?1)
      AND (?2 IS NULL OR d.failure_classification = ?2)
      AND (?3 IS NULL OR r.provider = ?3)
      AND (?4 IS NULL OR n.notification_type = ?4)
      AND (?5 IS NULL OR n.tenant_id = ?5)
      AND (?6 IS NULL OR d.notification_id = ?6)
      AND (?7 IS NULL OR d.created_at >= ?7)
      AND (?8 IS NULL OR d.created_at < ?8)
      AND (?9 IS NULL OR d.notification_id IN (SELECT value FROM json_each(?9)))
      AND (?10 IS NULL OR d.notification_id || char(31) || d.route_id IN (SELECT value FROM json_each(?10)))
), page AS (
    SELECT * FROM matching ORDER BY created_at DESC, notification_id DESC, route_id DESC LIMIT ?11 OFFSET ?12
)
SELECT (SELECT count(*) FROM matching) AS total, page.*
FROM (SELECT 1) AS always
LEFT JOIN page ON TRUE
ORDER BY page.created_at DESC, page.notification_id DESC, page.route_id DESC;

-- name: failed_counts
SELECT counted.*
FROM (SELECT 1) AS always
LEFT JOIN (
    SELECT d.channel, d.failure_classification AS classification, count(*) AS count
    FROM dead_letters d
    JOIN routes r ON r.notification_id = d.notification_id AND r.route_id = d.route_id
    JOIN records n ON n.notification_id = d.notification_id
    WHERE (?1 IS NULL OR d.channel = ?1)
      AND (?2 IS NULL OR d.failure_classification = ?2)
      AND (?3 IS NULL OR r.provider = ?3)
      AND (?4 IS NULL OR n.notification_type = ?4)
      AND (?5 IS NULL OR n.tenant_id = ?5)
      AND (?6 IS NULL OR d.notification_id = ?6)
      AND (?7 IS NULL OR d.created_at >= ?7)
      AND (?8 IS NULL OR d.created_at < ?8)
      AND (?9 IS NULL OR d.notification_id IN (SELECT value FROM json_each(?9)))
      AND (?10 IS NULL OR d.notification_id || char(31) || d.route_id IN (SELECT value FROM json_each(?10)))
    GROUP BY d.channel, d.failure_classification
) AS counted ON TRUE
ORDER BY counted.count DESC, counted.channel, counted.classification;

-- name: revive_candidates
-- only: PostgreSQL picks and revives in one statement
SELECT d.notification_id, d.route_id
FROM dead_letters d
JOIN routes r ON r.notification_id = d.notification_id AND r.route_id = d.route_id
JOIN records n ON n.notification_id = d.notification_id
WHERE (?1 IS NULL OR d.channel = ?1)
  AND (?2 IS NULL OR d.failure_classification = ?2)
  AND (?3 IS NULL OR r.provider = ?3)
  AND (?4 IS NULL OR n.notification_type = ?4)
  AND (?5 IS NULL OR n.tenant_id = ?5)
  AND (?6 IS NULL OR d.notification_id = ?6)
  AND (?7 IS NULL OR d.created_at >= ?7)
  AND (?8 IS NULL OR d.created_at < ?8)
  AND (?9 IS NULL OR d.notification_id IN (SELECT value FROM json_each(?9)))
  AND (?10 IS NULL OR d.notification_id || char(31) || d.route_id IN (SELECT value FROM json_each(?10)))
ORDER BY d.created_at, d.notification_id, d.route_id
LIMIT ?11;

-- name: revive
-- Race: two operators press the button.
--   status                  the second press finds no dead letter any more and gives no second budget.
--   provider_since = -1     says to the worker that an operator chose the provider: its breaker is not asked.
--   budget_since            waiting for one's turn is no age.
UPDATE routes
SET status = 'failed', attempt_count = 0, provider_since = CASE WHEN :forced THEN -1 ELSE 0 END,
    provider = coalesce(:provider, provider),
    lane = CASE WHEN lane IN (SELECT value FROM json_each(:unqueued)) THEN :instead ELSE lane END,
    next_attempt_at = :due_at, budget_since = :due_at, dead_lettered_at = NULL, updated_at = :now
WHERE notification_id = :notification_id AND route_id = :route_id AND status = 'dead_letter';

-- name: revive_forget
-- only: PostgreSQL forgets in the same statement
DELETE FROM dead_letters WHERE notification_id = :notification_id AND route_id = :route_id;

-- name: mark_redriven
-- Runs in the transaction of the revival. A route redriven again belongs to the newer action.
INSERT INTO redriven_routes (notification_id, route_id, action_id)
VALUES (?1, ?2, ?3)
ON CONFLICT (notification_id, route_id) DO UPDATE SET action_id = excluded.action_id;

-- name: note_action
-- Runs in the transaction of what it is about, where there is one: neither is there without the other.
INSERT INTO admin_actions (at, actor, action, tenant_id, subject, reason, detail_json)
VALUES (?7, ?1, ?2, ?3, ?4, ?5, ?6)
RETURNING action_id;

-- name: amend_action
-- Runs in the transaction of a further page.
UPDATE admin_actions SET detail_json = ?2 WHERE action_id = ?1;

-- name: actions
WITH matching AS MATERIALIZED (
    SELECT * FROM admin_actions a
    WHERE (?1 IS NULL OR a.actor = ?1)
      AND (?2 IS NULL OR a.action = ?2)
      AND (?3 IS NULL OR a.subject = ?3)
      AND (?4 IS NULL OR a.tenant_id = ?4)
      AND (?5 IS NULL OR a.at >= ?5)
), page AS (
    SELECT * FROM matching ORDER BY action_id DESC LIMIT ?6 OFFSET ?7
)
SELECT (SELECT count(*) FROM matching) AS total, page.*
FROM (SELECT 1) AS always
LEFT JOIN page ON TRUE
ORDER BY page.action_id DESC;

-- name: redriven
-- `budget_since` is a route's turn: the last one is known whether it has come or not.
SELECT m.action_id, count(*) FILTER (WHERE r.status IN ('pending', 'failed')) AS waiting,
       count(*) FILTER (WHERE r.status = 'published') AS delivered,
       count(*) FILTER (WHERE r.status = 'dead_letter') AS failed_again,
       count(*) FILTER (WHERE r.status = 'skipped') AS skipped, max(r.budget_since) AS last_turn_at
FROM redriven_routes m
JOIN routes r ON r.notification_id = m.notification_id AND r.route_id = m.route_id
WHERE m.action_id IN (SELECT value FROM json_each(?1))
GROUP BY m.action_id;

-- name: recent_outcomes
-- The newest are found through the primary key, whatever the table's size.
WITH recent AS MATERIALIZED (
    SELECT * FROM attempts ORDER BY attempt_id DESC LIMIT ?1
)
SELECT r.channel, a.provider, a.outcome, a.error, a.started_at
FROM recent a
JOIN routes r ON r.notification_id = a.notification_id AND r.route_id = a.route_id
JOIN records n ON n.notification_id = a.notification_id
WHERE ?2 IS NULL OR n.tenant_id = ?2
ORDER BY a.started_at, a.attempt_id;
