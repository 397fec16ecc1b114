-- Statements of operators and retention. Filters left out are NULL and match everything.

-- name: records
SELECT * FROM records
WHERE notification_id IN (SELECT value FROM json_each(?1)) AND (?2 IS NULL OR tenant_id = ?2)
ORDER BY accepted_at DESC, notification_id DESC;

-- name: routes
SELECT * FROM routes WHERE notification_id IN (SELECT value FROM json_each(?1)) ORDER BY notification_id, route_id;

-- name: attempts
SELECT * FROM attempts WHERE notification_id IN (SELECT value FROM json_each(?1)) ORDER BY notification_id, attempt_id;

-- name: search
-- One snapshot for the page and the total: a list never says less than it shows.
-- A published route is `received` or `opened` once its vendor said so.
WITH matching AS MATERIALIZED (
    SELECT n.notification_id, n.accepted_at
    FROM records n
    WHERE (?1 IS NULL OR n.user_id = ?1)
      AND (?2 IS NULL OR n.notification_type = ?2)
      AND (?3 IS NULL OR n.tenant_id = ?3)
      AND (?4 IS NULL OR n.trace_id = ?4)
      AND (?5 IS NULL OR n.origin = ?5)
      AND (?6 IS NULL OR n.accepted_at >= ?6)
      AND (?7 IS NULL OR n.accepted_at < ?7)
      AND ((?8 IS NULL AND ?9 IS NULL AND ?10 IS NULL) OR EXISTS (
              SELECT 1 FROM routes r
              WHERE r.notification_id = n.notification_id
                AND (?8 IS NULL OR ?8 = CASE
                         WHEN r.status <> 'published' THEN r.status WHEN r.opened_at IS NOT NULL THEN 'opened'
                         WHEN r.delivered_at IS NOT NULL THEN 'received' ELSE 'published' END)
                AND (?9 IS NULL OR r.channel = ?9)
                AND (?10 IS NULL OR r.address = ?10)))
), page AS (
    SELECT * FROM matching ORDER BY accepted_at DESC, notification_id DESC LIMIT ?11 OFFSET ?12
)
SELECT (SELECT count(*) FROM matching) AS total, page.notification_id
FROM (SELECT 1) AS always
LEFT JOIN page ON TRUE
ORDER BY page.accepted_at DESC, page.notification_id DESC;

-- name: counts
SELECT lane, status, count(*) AS routes,
       count(*) FILTER (WHERE next_attempt_at <= ?1) AS due,
       count(*) FILTER (WHERE next_attempt_at > ?1 AND claim_token IS NOT NULL) AS leased,
       (?1 - min(next_attempt_at) FILTER (WHERE next_attempt_at <= ?1)) / 1000.0 AS oldest_due_seconds
FROM routes
GROUP BY lane, status;

-- name: dead_letters
WITH matching AS MATERIALIZED (
    SELECT d.*, n.tenant_id, n.notification_type, n.producer
    FROM dead_letters d JOIN records n ON n.notification_id = d.notification_id
    WHERE (?1 IS NULL OR d.channel = ?1)
      AND (?2 IS NULL OR d.failure_classification = ?2)
      AND (?3 IS NULL OR d.notification_id = ?3)
      AND (?4 IS NULL OR n.tenant_id = ?4)
      AND (?5 IS NULL OR d.created_at >= ?5)
), page AS (
    SELECT * FROM matching ORDER BY created_at DESC, notification_id DESC, route_id DESC LIMIT ?6 OFFSET ?7
)
SELECT (SELECT count(*) FROM matching) AS total, page.*
FROM (SELECT 1) AS always
LEFT JOIN page ON TRUE
ORDER BY page.created_at DESC, page.notification_id DESC, page.route_id DESC;

-- name: cancel
--   claim_token             what is in a worker's hands may be on its way and is left alone.
UPDATE routes
SET status = 'skipped', skipped_at = :now, next_attempt_at = NULL, claim_token = NULL, lease_owner = NULL,
    last_error_classification = 'cancelled', last_error_message = 'cancelled before delivery', last_error_at = :now,
    updated_at = :now
WHERE notification_id = :notification_id AND status IN ('pending', 'failed')
  AND (claim_token IS NULL OR next_attempt_at <= :now)
  AND (:tenant_id IS NULL
       OR EXISTS (SELECT 1 FROM records n WHERE n.notification_id = :notification_id AND n.tenant_id = :tenant_id));

-- name: rehome
-- Settings no longer name the provider or lane these routes wait for, so nobody would ever claim them.
UPDATE routes
SET provider = CASE WHEN provider IN (SELECT value FROM json_each(:providers)) THEN provider ELSE :first END,
    lane = CASE WHEN lane IN (SELECT value FROM json_each(:lanes)) THEN lane ELSE :otherwise END,
    updated_at = :now
WHERE channel = :channel AND next_attempt_at IS NOT NULL
  AND NOT (provider IN (SELECT value FROM json_each(:providers)) AND lane IN (SELECT value FROM json_each(:lanes)));

-- name: hasten
-- For tests and drills: time passes for what waits.
UPDATE routes SET next_attempt_at = next_attempt_at - :ms WHERE next_attempt_at IS NOT NULL AND claim_token IS NULL;

-- name: prune_candidates
-- What somebody outside must still be told about is kept until they are.
SELECT n.notification_id FROM records n
WHERE n.accepted_at < :before
  AND NOT EXISTS (
      SELECT 1 FROM routes r WHERE r.notification_id = n.notification_id AND r.status IN ('pending', 'failed'))
  AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.notification_id = n.notification_id)
ORDER BY n.accepted_at
LIMIT :most;

-- name: prune
-- Routes and dead letters go with their record.
DELETE FROM records WHERE notification_id = ?1;

-- name: prune_attempts
-- only: PostgreSQL deletes them in the same statement
DELETE FROM attempts WHERE notification_id = ?1;

-- name: prune_malformed
DELETE FROM malformed_intents WHERE stream_entry_id IN (
    SELECT stream_entry_id FROM malformed_intents WHERE recorded_at < :before ORDER BY recorded_at LIMIT :most);

-- name: prune_suppressions
DELETE FROM suppressions WHERE expires_at <= ?1;

-- name: migrations_table
CREATE TABLE IF NOT EXISTS schema_migrations (
    version    INTEGER PRIMARY KEY,
    applied_at INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER))
);

-- name: migrations_begun
SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'schema_migrations');

-- name: migrations_applied
SELECT version FROM schema_migrations;

-- name: migrations_note
INSERT INTO schema_migrations (version) VALUES (?1);
