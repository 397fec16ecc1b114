-- Statements of the subscription service.

-- name: add_subscription
-- Race: a caller repeats its request before the first one has answered.
--   ON CONFLICT             an order's own id is made of its key: the second finds the first one's row.
INSERT INTO subscriptions (subscription_id, user_id, plan_id, status, trial, created_at, updated_at, tenant_id)
VALUES (:subscription_id, :user_id, :plan_id, 'pending', :trial, :now, :now, :tenant_id)
ON CONFLICT (subscription_id) DO NOTHING
RETURNING *;

-- name: subscription
SELECT * FROM subscriptions WHERE subscription_id = :subscription_id;

-- name: lock_subscription
-- The writer is alone with the file: there is nothing to lock.
SELECT * FROM subscriptions WHERE subscription_id = :subscription_id;

-- name: change_subscription
-- Days are added to the service that was paid for already; a first period begins now.
UPDATE subscriptions
SET status = :status, plan_id = :plan_id, trial = :trial, updated_at = :now,
    started_at = CASE WHEN :days IS NULL THEN started_at ELSE coalesce(started_at, :now) END,
    ends_at = CASE WHEN :days IS NULL THEN ends_at
                   ELSE max(coalesce(ends_at, :now), :now) + CAST(:days * 86400000 AS INTEGER) END,
    failed_renewals = CASE WHEN :days IS NOT NULL THEN 0 WHEN :declined THEN failed_renewals + 1
                           ELSE failed_renewals END,
    renewal_asked_at = CASE WHEN :days IS NULL THEN renewal_asked_at END,
    cancel_at_end = cancel_at_end AND (:days IS NULL OR status <> 'cancelled')
WHERE subscription_id = :subscription_id;

-- name: cancel_subscription
-- One without a period has nothing to wait for.
UPDATE subscriptions
SET cancel_at_end = 1, updated_at = :now,
    status = CASE WHEN :at_end AND ends_at > :now THEN status ELSE 'cancelled' END
WHERE subscription_id = :subscription_id
RETURNING *;

-- name: due_renewals
-- The writer is alone with the file: `renewal_asked_at` holds back the next look.
UPDATE subscriptions SET renewal_asked_at = :now
WHERE subscription_id IN (
    SELECT subscription_id FROM subscriptions
    WHERE status IN ('trial', 'active', 'past_due') AND NOT cancel_at_end
      AND ends_at <= :now + CAST(:renew_before_days * 86400000 AS INTEGER)
      AND ends_at > :now - CAST(:grace_days * 86400000 AS INTEGER)
      AND (renewal_asked_at IS NULL OR renewal_asked_at <= :now - CAST(:retry_days * 86400000 AS INTEGER))
    ORDER BY ends_at LIMIT :limit)
RETURNING *;

-- name: mark_past_due
-- A period is over, and its renewal was neither paid nor declined yet.
UPDATE subscriptions SET status = 'past_due', updated_at = :now
WHERE status IN ('trial', 'active') AND NOT cancel_at_end AND ends_at <= :now AND :grace_days > 0
RETURNING subscription_id;

-- name: end_subscriptions
-- The grace is over without a payment, or the period is that was the last one.
UPDATE subscriptions SET status = 'cancelled', updated_at = :now
WHERE status IN ('trial', 'active', 'past_due')
  AND ends_at <= :now - CASE WHEN cancel_at_end THEN 0 ELSE CAST(:grace_days * 86400000 AS INTEGER) END
RETURNING subscription_id;

-- name: change_plan
-- A message that names a tenant changes that tenant's subscription only.
UPDATE subscriptions SET plan_id = :plan_id, updated_at = :now
WHERE subscription_id = :subscription_id AND (:tenant_id IS NULL OR tenant_id = :tenant_id)
RETURNING subscription_id;

-- name: enter_payment_event
-- Race: the immediate and the queued delivery of one event arrive together.
--   BEGIN IMMEDIATE         the second begins after the first has committed.
INSERT INTO payment_webhook_requests (event_id, payload, tenant_id) VALUES (:event_id, :payload, :tenant_id)
ON CONFLICT (event_id) DO UPDATE
SET payload = CASE WHEN processed THEN payload ELSE excluded.payload END,
    tenant_id = CASE WHEN processed THEN tenant_id ELSE excluded.tenant_id END
RETURNING processed;

-- name: finish_payment_event
UPDATE payment_webhook_requests SET processed = 1, processed_at = :now, error_message = NULL,
    tenant_id = :tenant_id
WHERE event_id = :event_id;

-- name: fail_payment_event
-- Race: another delivery of the event was carried out meanwhile.
--   NOT processed           what was done stays done.
INSERT INTO payment_webhook_requests (event_id, payload, error_message, retry_count, tenant_id)
VALUES (:event_id, :payload, :error, 1, :tenant_id)
ON CONFLICT (event_id) DO UPDATE SET error_message = excluded.error_message, retry_count = retry_count + 1
WHERE NOT processed;

-- name: payment_event
-- With the person whose subscription it is about; only a subscription of the same tenant counts.
SELECT r.event_id, r.processed, r.processed_at, r.error_message, r.retry_count, r.created_at, r.updated_at, r.tenant_id,
       s.user_id
FROM payment_webhook_requests r
LEFT JOIN subscriptions s ON s.subscription_id = json_extract(r.payload, '$.subscription_id') AND s.tenant_id = r.tenant_id
WHERE r.event_id = :event_id;

-- name: enter_usage
-- Race: a message comes again after it was counted, or while it is.
--   ON CONFLICT             who does not enter its id counts nothing.
INSERT INTO usage_deltas (message_id, user_id, feature_name, delta, counted_at, tenant_id)
VALUES (:message_id, :user_id, :feature_name, :delta, :now, :tenant_id)
ON CONFLICT (message_id) DO NOTHING
RETURNING message_id;

-- name: add_usage
-- Runs in the transaction of `enter_usage`.
INSERT INTO usage_counters (user_id, feature_name, usage_count, reset_at, updated_at, tenant_id)
VALUES (:user_id, :feature_name, :delta, :reset_at, :now, :tenant_id)
ON CONFLICT (tenant_id, user_id, feature_name) DO UPDATE
SET usage_count = CASE WHEN reset_at <= :now THEN 0 ELSE usage_count END + excluded.usage_count,
    reset_at = CASE WHEN reset_at <= :now THEN excluded.reset_at ELSE coalesce(excluded.reset_at, reset_at) END,
    updated_at = :now;

-- name: usage_of
SELECT user_id, feature_name, usage_count, reset_at FROM usage_counters
WHERE tenant_id = :tenant_id AND user_id = :user_id
ORDER BY feature_name;

-- Rows without a tenant get one, in one transaction, table after table.
-- Race: a process writes a row without a tenant meanwhile. It stays without one, and the next run finds it.

-- name: assign_subscriptions
UPDATE subscriptions SET tenant_id = :tenant_id WHERE tenant_id = '' AND (:everybody OR user_id IN (SELECT value FROM json_each(:user_ids)))
RETURNING subscription_id;

-- name: assign_payments
UPDATE payments SET tenant_id = :tenant_id
WHERE tenant_id = '' AND (:everybody OR subscription_id IN (SELECT subscription_id FROM subscriptions WHERE tenant_id = :tenant_id))
RETURNING transaction_id;

-- name: assign_refunds
UPDATE refunds SET tenant_id = :tenant_id
WHERE tenant_id = ''
  AND (:everybody OR transaction_id IN (SELECT transaction_id FROM payments WHERE tenant_id = :tenant_id))
RETURNING refund_id;

-- name: assign_payment_webhook_requests
UPDATE payment_webhook_requests SET tenant_id = :tenant_id
WHERE tenant_id = '' AND (:everybody OR json_extract(payload, '$.subscription_id') IN (SELECT subscription_id FROM subscriptions WHERE tenant_id = :tenant_id))
RETURNING event_id;

-- name: assign_usage_deltas
UPDATE usage_deltas SET tenant_id = :tenant_id WHERE tenant_id = '' AND (:everybody OR user_id IN (SELECT value FROM json_each(:user_ids)))
RETURNING message_id;

-- name: assign_usage_counters
-- A counter that the tenant has already is added to; `drop_assigned_usage_counters` removes the one without a tenant.
INSERT INTO usage_counters (user_id, feature_name, usage_count, reset_at, updated_at, tenant_id)
SELECT user_id, feature_name, usage_count, reset_at, updated_at, :tenant_id FROM usage_counters
WHERE tenant_id = '' AND (:everybody OR user_id IN (SELECT value FROM json_each(:user_ids)))
ON CONFLICT (tenant_id, user_id, feature_name) DO UPDATE
SET usage_count = usage_counters.usage_count + excluded.usage_count, reset_at = coalesce(usage_counters.reset_at, excluded.reset_at),
    updated_at = max(usage_counters.updated_at, excluded.updated_at)
RETURNING feature_name;

-- name: drop_assigned_usage_counters
DELETE FROM usage_counters WHERE tenant_id = '' AND (:everybody OR user_id IN (SELECT value FROM json_each(:user_ids)));
