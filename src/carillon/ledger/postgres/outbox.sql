-- Statements of alerts: leased, sent to their sinks, removed.

-- name: due_alerts
-- Races: other processes that send alerts, and one that died while sending.
--   SKIP LOCKED             processes never wait for each other and never share an alert.
--   next_attempt_at <= now  due alerts and expired leases are the same thing.
--   attempt_count + 1       distinguishes this lease from an earlier one that expired.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), picked AS MATERIALIZED (
    SELECT o.outbox_id FROM outbox o
    WHERE o.next_attempt_at <= (SELECT now FROM clock)
    ORDER BY o.next_attempt_at, o.outbox_id
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
UPDATE outbox o
SET next_attempt_at = clock.now + :lease_seconds::float8 * interval '1 second', attempt_count = o.attempt_count + 1
FROM picked CROSS JOIN clock
WHERE o.outbox_id = picked.outbox_id
RETURNING o.outbox_id, o.attempt_count AS tries;

-- name: taken_alerts
-- The content of the leased alerts; the number of tries comes from `due_alerts`, because a later lease changes it.
SELECT o.outbox_id, o.notification_id, o.route_id, o.created_at, o.told,
       greatest(coalesce(o.final_attempt_count, r.attempt_count), (
           -- Calls of an administrator's retry come after the alert and are not its own.
           SELECT count(*) FROM attempts_told a
           WHERE a.notification_id = o.notification_id AND a.route_id = o.route_id AND a.started_at <= o.created_at)
       ) AS attempt_count,
       coalesce(o.failure_message, r.last_error_message, '') AS last_error,
       r.channel, n.tenant_id, n.user_id, n.notification_type
FROM outbox o
LEFT JOIN routes r ON r.notification_id = o.notification_id AND r.route_id = o.route_id
LEFT JOIN records n ON n.notification_id = o.notification_id
WHERE o.outbox_id = ANY (:alert_ids::bigint[])
ORDER BY o.outbox_id;

-- name: alert_history
-- Attempts and receipts of the notifications of these alerts.
SELECT a.notification_id, a.route_id, a.provider, a.started_at + a.duration_ms * interval '1 millisecond' AS at,
       a.provider_message_id AS message_id, a.error
FROM attempts_told a
WHERE a.notification_id = ANY (:notification_ids::text[]) AND a.settled <> 'stale'
UNION ALL
SELECT c.notification_id, c.route_id, c.provider, c.received_at, c.provider_message_id,
       coalesce(c.reason, c.classification, c.kind)
FROM receipts c
WHERE c.notification_id = ANY (:notification_ids::text[]) AND c.kind IN ('failed', 'bounced',
    'complained') AND c.effect <> 'ignored';

-- name: told_alerts
DELETE FROM outbox WHERE outbox_id = ANY (:alert_ids::bigint[]);

-- name: postpone_alerts
-- Race: the lease ran out meanwhile and another process has taken the alert.
--   tries                   only the current holder may set the time of the next try.
UPDATE outbox o
SET next_attempt_at = clock_timestamp() + given.seconds * interval '1 second', told = given.told
FROM unnest(:alert_id::bigint[], :tries::int[], :told::text[], :seconds::float8[]) AS given (alert_id, tries, told,
    seconds)
WHERE o.outbox_id = given.alert_id AND o.attempt_count = given.tries;
