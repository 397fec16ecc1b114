-- Statements of alerts: leased, sent to their sinks, removed.

-- name: alerts_are_due
-- only: PostgreSQL finds nothing at the same cost
SELECT EXISTS (SELECT 1 FROM outbox WHERE next_attempt_at <= :now);

-- name: due_alerts
-- Race: a process that died while sending.
--   next_attempt_at <= now  due alerts and expired leases are the same thing.
--   attempt_count + 1       distinguishes this lease from an earlier one that expired.
UPDATE outbox
SET next_attempt_at = :now + CAST(round(:lease_seconds * 1000) AS INTEGER), attempt_count = attempt_count + 1
WHERE outbox_id IN (
    SELECT outbox_id FROM outbox WHERE next_attempt_at <= :now ORDER BY next_attempt_at, outbox_id LIMIT :limit)
RETURNING outbox_id, attempt_count AS tries;

-- name: taken_alerts
-- The content of the leased alerts; the number of tries comes from `due_alerts`, because a later lease changes it.
SELECT o.outbox_id, o.notification_id, o.route_id, o.created_at, o.told,
       max(coalesce(o.final_attempt_count, r.attempt_count), (
           -- Calls of an administrator's retry come after the alert and are not its own.
           SELECT count(*) FROM attempts_told a
           WHERE a.notification_id = o.notification_id AND a.route_id = o.route_id AND a.started_at <= o.created_at)
       ) AS attempt_count,
       coalesce(o.failure_message, r.last_error_message, '') AS last_error,
       r.channel, n.tenant_id, n.user_id, n.notification_type
FROM outbox o
LEFT JOIN routes r ON r.notification_id = o.notification_id AND r.route_id = o.route_id
LEFT JOIN records n ON n.notification_id = o.notification_id
WHERE o.outbox_id IN (SELECT value FROM json_each(:alert_ids))
ORDER BY o.outbox_id;

-- name: alert_history
-- Attempts and receipts of the notifications of these alerts.
SELECT a.notification_id, a.route_id, a.provider, a.started_at + CAST(round(a.duration_ms) AS INTEGER) AS at,
       a.provider_message_id AS message_id, a.error
FROM attempts a
WHERE a.notification_id IN (SELECT value FROM json_each(:notification_ids)) AND a.settled <> 'stale'
UNION ALL
SELECT r.notification_id, r.route_id, r.provider, r.published_at, r.provider_message_id, NULL
FROM routes r
WHERE r.notification_id IN (SELECT value FROM json_each(:notification_ids)) AND r.finished_by IS NOT NULL
UNION ALL
SELECT c.notification_id, c.route_id, c.provider, c.received_at, c.provider_message_id,
       coalesce(c.reason, c.classification, c.kind)
FROM receipts c
WHERE c.notification_id IN (SELECT value FROM json_each(:notification_ids)) AND c.kind IN ('failed', 'bounced',
    'complained')
  AND c.effect <> 'ignored';

-- name: told_alerts
DELETE FROM outbox WHERE outbox_id IN (SELECT value FROM json_each(:alert_ids));

-- name: postpone_alerts
-- Race: the lease ran out meanwhile and another process has taken the alert.
--   tries                   only the current holder may set the time of the next try.
UPDATE outbox SET next_attempt_at = :now + CAST(round(:seconds * 1000) AS INTEGER), told = :told
WHERE outbox_id = :alert_id AND attempt_count = :tries;
