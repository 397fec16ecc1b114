-- Statements of vendors' callbacks. They run in one transaction that begins with BEGIN IMMEDIATE: one writer at a time is
-- the answer to every race between two callbacks, or between a callback and a settlement.

-- name: receipts_write
-- Races: a vendor sends the same report twice, and our own repeat after a COMMIT whose answer was lost.
--   ON CONFLICT DO NOTHING  a changed-rows count of 0 says that the report is known.
--   waiting                 the effect until it is computed; both are in the same commit.
INSERT INTO receipts (
    receipt_key, provider, kind, provider_message_id, idempotency_key, address, classification, reason, recipient_gone,
    occurred_at, received_at, effect)
VALUES (
    :receipt_key, :provider, :kind, :provider_message_id, :idempotency_key, :address, :classification, :reason,
    :recipient_gone, :occurred_at_ms, :now, 'waiting')
ON CONFLICT (receipt_key) DO NOTHING;

-- name: receipts_waiting
--   EXISTS                  only receipts whose message is known by now or whose time is over: many reports about
--                           unknown messages must not hide the few that can be applied.
SELECT w.receipt_key, w.provider, w.kind, w.provider_message_id, w.idempotency_key, w.address, w.classification,
       w.reason, w.recipient_gone, w.received_at < :before AS expired
FROM receipts w
WHERE w.effect = 'waiting'
  AND (w.received_at < :before
       OR EXISTS (
           SELECT 1 FROM attempts a WHERE a.provider_message_id = w.provider_message_id AND a.provider = w.provider)
       OR EXISTS (
           SELECT 1 FROM routes r
           WHERE r.provider_message_id = w.provider_message_id AND r.provider = w.provider
             AND r.finished_by IS NOT NULL)
       OR EXISTS (
           SELECT 1 FROM routes r
           WHERE r.notification_id = substr(w.idempotency_key, 1, instr(w.idempotency_key, '/') - 1)
             AND r.claim_token IS NULL
             AND (r.ticket IS NULL OR r.ticket NOT IN (SELECT t.value FROM leases l, json_each(l.tickets) t))))
ORDER BY w.received_at
LIMIT :most;

-- name: receipts_messages
-- Which route sent a message; a vendor that names a message twice means the later attempt.
SELECT a.notification_id, a.route_id FROM attempts_told a
WHERE a.provider_message_id = :provider_message_id AND a.provider = :provider
ORDER BY a.attempt_id DESC
LIMIT 1;

-- name: receipts_notifications
-- The route of a vendor that names only the notification: one that it sent, preferably one to this address.
SELECT r.route_id FROM routes r
WHERE r.notification_id = :notification_id
  AND (r.provider = :provider OR EXISTS (
          SELECT 1 FROM attempts a
          WHERE a.notification_id = r.notification_id AND a.route_id = r.route_id AND a.provider = :provider))
ORDER BY coalesce(lower(r.address) = lower(:address), 0) DESC, r.route_id
LIMIT 1;

-- name: receipts_routes
SELECT r.notification_id, r.route_id, r.channel, r.lane, r.policy, r.provider, r.provider_message_id, r.status,
       r.attempt_count, r.max_attempts, r.provider_since, r.claim_token IS NOT NULL OR coalesce(
           r.ticket IN (SELECT t.value FROM leases l, json_each(l.tickets) t), 0) AS held, r.receipt,
       r.delivered_at IS NOT NULL AS delivered, r.address, n.tenant_id, n.user_id, r.goal,
       CASE WHEN r.channel = 'email' THEN r.message_json END AS message_json
FROM routes r JOIN records n ON n.notification_id = r.notification_id
WHERE r.notification_id = ?1 AND r.route_id = ?2;

-- name: receipts_strikes
-- How many earlier receipts said that an address is dead, for each tenant whose message it was. A receipt without a
-- message counts for nobody: without a tenant it would count for all of them.
SELECT r.address, n.tenant_id, count(*) AS strikes
FROM receipts r JOIN records n ON n.notification_id = r.notification_id
WHERE r.recipient_gone AND r.address = :address
  AND r.receipt_key NOT IN (SELECT value FROM json_each(:receipt_keys))
GROUP BY n.tenant_id;

-- name: receipts_change
-- The row was read in this transaction.
--   claim_token             a finished or dead-lettered route loses its claim; a late settlement of a worker is stale. The trigger
--                           of `routes` takes its ticket.
--   coalesce                the first time stays.
--   receipt_due             the report of this message has come: the next message has a deadline of its own, or none.
--   finished_by             a route that is not published any more does not tell its success: `receipts_keep` has.
UPDATE routes
SET status = :status,
    finished_by = CASE WHEN :status = 'published' THEN finished_by END,
    lane = :lane,
    provider = :provider,
    provider_since = :provider_since,
    provider_message_id = :provider_message_id,
    max_attempts = :max_attempts,
    receipt = :receipt,
    delivered_at = CASE WHEN :delivered THEN coalesce(delivered_at, :now) END,
    opened_at = CASE WHEN :opened THEN coalesce(opened_at, :now) ELSE opened_at END,
    clicked_at = CASE WHEN :clicked THEN coalesce(clicked_at, :now) ELSE clicked_at END,
    published_at = CASE WHEN :finished THEN :now WHEN NOT :reopened THEN published_at END,
    dead_lettered_at = CASE WHEN :buried THEN :now ELSE dead_lettered_at END,
    next_attempt_at = CASE WHEN :reopened THEN :now WHEN NOT :finished AND NOT :buried THEN next_attempt_at END,
    attempt_count = attempt_count + ((:finished OR :buried) AND coalesce(
        ticket IN (SELECT t.value FROM leases l, json_each(l.tickets) t), 0)),
    claim_token = CASE WHEN NOT :finished AND NOT :buried THEN claim_token END,
    receipt_due = CASE WHEN NOT :reopened AND NOT :buried THEN receipt_due END,
    lease_owner = CASE WHEN NOT :finished AND NOT :buried THEN lease_owner END,
    last_error_classification = coalesce(:error_classification, last_error_classification),
    last_error_message = coalesce(:error_message, last_error_message),
    last_error_at = CASE WHEN :error_message IS NULL THEN last_error_at ELSE :now END,
    updated_at = :now
WHERE notification_id = :notification_id AND route_id = :route_id;

-- name: receipts_keep
-- only: PostgreSQL keeps the attempt in the statement that changes the route
-- Runs before `receipts_change` for a route that is published no longer: the attempt that it told becomes a row.
INSERT INTO attempts (
    attempt_id, notification_id, route_id, attempt, provider, outcome, provider_message_id, started_at, duration_ms,
    verdict, settled)
SELECT finished_by, notification_id, route_id, attempt_count, provider, 'sent', provider_message_id,
       published_at - CAST(round(took_ms) AS INTEGER), took_ms, 'finish', settled_by
FROM routes
WHERE notification_id = :notification_id AND route_id = :route_id AND finished_by IS NOT NULL
ON CONFLICT (attempt_id) DO NOTHING;

-- name: receipts_dead_letter
-- only: PostgreSQL writes the dead letter in the same statement
INSERT INTO dead_letters (
    notification_id, route_id, channel, recipient_ref, final_attempt_count, max_attempts, failure_classification,
    failure_message, recovery_hint, created_at)
SELECT notification_id, route_id, channel, recipient_ref, attempt_count, max_attempts, last_error_classification,
       last_error_message, :recovery_hint, :now
FROM routes
WHERE notification_id = :notification_id AND route_id = :route_id
ON CONFLICT (notification_id, route_id) DO NOTHING;

-- name: receipts_alert
-- only: PostgreSQL writes the alert in the same statement
INSERT INTO outbox (topic, notification_id, route_id, created_at, next_attempt_at, final_attempt_count, failure_message)
SELECT 'NotificationFailed', notification_id, route_id, :now, :now, attempt_count, last_error_message
FROM routes
WHERE notification_id = :notification_id AND route_id = :route_id AND lane >= :alert_from;

-- name: receipts_effects
-- The route and the effect of each receipt of this transaction.
UPDATE receipts SET effect = ?2, notification_id = ?3, route_id = ?4, address = ?5 WHERE receipt_key = ?1;
