-- Statements of alerts: taken by lease, told outside, removed.

-- name: alerts_are_due
-- only: PostgreSQL finds nothing at the same cost
SELECT EXISTS (SELECT 1 FROM outbox WHERE next_attempt_at <= :now);

-- name: due_alerts
-- Race: a process that died while it told.
--   next_attempt_at <= now  due alerts and expired leases are the same thing.
SELECT o.outbox_id, o.notification_id, o.route_id, o.created_at, o.attempt_count + 1 AS tries, o.told,
       coalesce(o.final_attempt_count, r.attempt_count) AS attempt_count,
       coalesce(o.failure_message, r.last_error_message, '') AS last_error,
       r.channel, n.tenant_id, n.user_id, n.notification_type
FROM outbox o
LEFT JOIN routes r ON r.notification_id = o.notification_id AND r.route_id = o.route_id
LEFT JOIN records n ON n.notification_id = o.notification_id
WHERE o.next_attempt_at <= :now
ORDER BY o.next_attempt_at, o.outbox_id
LIMIT :most;

-- name: take_alert
-- only: PostgreSQL picks and leases in one statement
--   attempt_count + 1       tells this taking from an earlier one whose lease ran out.
UPDATE outbox SET next_attempt_at = :until, attempt_count = attempt_count + 1 WHERE outbox_id = :outbox_id;

-- name: alert_history
-- Calls of providers, and their later words about messages they had taken.
SELECT a.notification_id, a.route_id, a.provider, a.started_at + CAST(round(a.duration_ms) AS INTEGER) AS at,
       a.provider_message_id AS message_id, a.error
FROM attempts a
WHERE a.notification_id IN (SELECT value FROM json_each(?1)) AND a.settled <> 'stale'
UNION ALL
SELECT c.notification_id, c.route_id, c.provider, c.received_at, c.provider_message_id,
       coalesce(c.reason, c.classification, c.kind)
FROM receipts c
WHERE c.notification_id IN (SELECT value FROM json_each(?1)) AND c.kind IN ('failed', 'bounced', 'complained')
  AND c.effect <> 'ignored';

-- name: told_alerts
DELETE FROM outbox WHERE outbox_id = ?1;

-- name: postpone_alerts
-- Race: the lease ran out meanwhile and another process has taken the alert.
--   tries                   only the present taker may say when it is told next.
UPDATE outbox SET next_attempt_at = :until, told = :told WHERE outbox_id = :outbox_id AND attempt_count = :tries;
