-- Statements of the subscription service.

-- name: add_subscription
-- Race: a caller repeats its request before the first one has answered.
--   ON CONFLICT             an order's own id is made of its key: the second finds the first one's row.
INSERT INTO subscriptions (subscription_id, user_id, plan_id, status, trial, created_at, updated_at, tenant_id)
VALUES (:subscription_id, :user_id, :plan_id, 'pending', :trial, clock_timestamp(), clock_timestamp(), :tenant_id)
ON CONFLICT (subscription_id) DO NOTHING
RETURNING *;

-- name: subscription
SELECT * FROM subscriptions WHERE subscription_id = :subscription_id;

-- name: lock_subscription
-- Race: two events of one subscription are carried out at the same moment.
--   FOR UPDATE              the second decides by what the first has made of it.
SELECT * FROM subscriptions WHERE subscription_id = :subscription_id FOR UPDATE;

-- name: change_subscription
-- Days are added to the service that was paid for already; a first period begins now.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
)
UPDATE subscriptions
SET status = :status, plan_id = :plan_id, trial = :trial, updated_at = clock.now,
    started_at = CASE WHEN :days::float8 IS NULL THEN started_at ELSE coalesce(started_at, clock.now) END,
    ends_at = CASE WHEN :days::float8 IS NULL THEN ends_at
                   ELSE greatest(ends_at, clock.now) + :days::float8 * interval '1 day' END,
    failed_renewals = CASE WHEN :days::float8 IS NOT NULL THEN 0 WHEN :declined::boolean THEN failed_renewals + 1
                           ELSE failed_renewals END,
    renewal_asked_at = CASE WHEN :days::float8 IS NULL THEN renewal_asked_at END,
    cancel_at_end = cancel_at_end AND (:days::float8 IS NULL OR status <> 'cancelled')
FROM clock
WHERE subscription_id = :subscription_id;

-- name: cancel_subscription
-- One without a period has nothing to wait for.
UPDATE subscriptions
SET cancel_at_end = TRUE, updated_at = clock_timestamp(),
    status = CASE WHEN :at_end::boolean AND ends_at > clock_timestamp() THEN status ELSE 'cancelled' END
WHERE subscription_id = :subscription_id
RETURNING *;

-- name: due_renewals
-- Race: two processes look at the same moment.
--   SKIP LOCKED             the second leaves what the first is asking for; later `renewal_asked_at` holds it back.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), picked AS (
    SELECT s.subscription_id
    FROM subscriptions s CROSS JOIN clock
    WHERE s.status IN ('trial', 'active', 'past_due') AND NOT s.cancel_at_end
      AND s.ends_at <= clock.now + :renew_before_days::float8 * interval '1 day'
      AND s.ends_at > clock.now - :grace_days::float8 * interval '1 day'
      AND (s.renewal_asked_at IS NULL OR s.renewal_asked_at <= clock.now - :retry_days::float8 * interval '1 day')
    ORDER BY s.ends_at LIMIT :limit
    FOR UPDATE OF s SKIP LOCKED
)
UPDATE subscriptions s SET renewal_asked_at = clock.now
FROM picked CROSS JOIN clock
WHERE s.subscription_id = picked.subscription_id
RETURNING s.*;

-- name: mark_past_due
-- A period is over, and its renewal was neither paid nor declined yet.
UPDATE subscriptions SET status = 'past_due', updated_at = clock_timestamp()
WHERE status IN ('trial', 'active') AND NOT cancel_at_end AND ends_at <= clock_timestamp() AND :grace_days::float8 > 0
RETURNING subscription_id;

-- name: end_subscriptions
-- The grace is over without a payment, or the period is that was the last one.
UPDATE subscriptions SET status = 'cancelled', updated_at = clock_timestamp()
WHERE status IN ('trial', 'active', 'past_due')
  AND ends_at <= clock_timestamp() - CASE WHEN cancel_at_end THEN 0 ELSE :grace_days::float8 END * interval '1 day'
RETURNING subscription_id;

-- name: change_plan
-- A message that names a tenant changes that tenant's subscription only.
UPDATE subscriptions SET plan_id = :plan_id, updated_at = clock_timestamp()
WHERE subscription_id = :subscription_id AND (:tenant_id::text IS NULL OR tenant_id = :tenant_id)
RETURNING subscription_id;

-- name: enter_payment_event
-- Race: the immediate and the queued delivery of one event arrive together.
--   event_id UNIQUE         one row; the second waits at it until the first has committed.
--   DO UPDATE               locks the row also when it was there, so that the answer is what the first one left.
INSERT INTO payment_webhook_requests AS r (event_id, payload, tenant_id)
VALUES (:event_id, :payload::jsonb, :tenant_id)
ON CONFLICT (event_id) DO UPDATE
SET payload = CASE WHEN r.processed THEN r.payload ELSE excluded.payload END,
    tenant_id = CASE WHEN r.processed THEN r.tenant_id ELSE excluded.tenant_id END
RETURNING processed;

-- name: finish_payment_event
UPDATE payment_webhook_requests SET processed = TRUE, processed_at = clock_timestamp(), error_message = NULL,
    tenant_id = :tenant_id
WHERE event_id = :event_id;

-- name: fail_payment_event
-- Race: another delivery of the event was carried out meanwhile.
--   NOT processed           what was done stays done.
INSERT INTO payment_webhook_requests AS r (event_id, payload, error_message, retry_count, tenant_id)
VALUES (:event_id, :payload::jsonb, :error, 1, :tenant_id)
ON CONFLICT (event_id) DO UPDATE SET error_message = excluded.error_message, retry_count = r.retry_count + 1
WHERE NOT r.processed;

-- name: payment_event
-- With the person whose subscription it is about; only a subscription of the same tenant counts.
SELECT r.event_id, r.processed, r.processed_at, r.error_message, r.retry_count, r.created_at, r.updated_at, r.tenant_id,
       s.user_id
FROM payment_webhook_requests r
LEFT JOIN subscriptions s ON s.subscription_id = (r.payload ->> 'subscription_id') AND s.tenant_id = r.tenant_id
WHERE r.event_id = :event_id;

-- name: enter_usage
-- Race: a message comes again after it was counted, or while it is.
--   ON CONFLICT             who does not enter its id counts nothing.
INSERT INTO usage_deltas (message_id, user_id, feature_name, delta, counted_at, tenant_id)
VALUES (:message_id, :user_id, :feature_name, :delta, clock_timestamp(), :tenant_id)
ON CONFLICT (message_id) DO NOTHING
RETURNING message_id;

-- name: add_usage
-- Runs in the transaction of `enter_usage`.
INSERT INTO usage_counters AS u (user_id, feature_name, usage_count, reset_at, updated_at, tenant_id)
VALUES (:user_id, :feature_name, :delta, to_timestamp(:reset_at::float8 / 1000), clock_timestamp(), :tenant_id)
ON CONFLICT (tenant_id, user_id, feature_name) DO UPDATE
SET usage_count = CASE WHEN u.reset_at <= clock_timestamp() THEN 0 ELSE u.usage_count END + excluded.usage_count,
    reset_at = CASE WHEN u.reset_at <= clock_timestamp() THEN excluded.reset_at
                    ELSE coalesce(excluded.reset_at, u.reset_at) END,
    updated_at = excluded.updated_at;

-- name: usage_of
SELECT user_id, feature_name, usage_count, reset_at FROM usage_counters
WHERE tenant_id = :tenant_id AND user_id = :user_id
ORDER BY feature_name;

-- Rows without a tenant get one, in one transaction, table after table.
-- Race: a process writes a row without a tenant meanwhile. It stays without one, and the next run finds it.

-- name: assign_subscriptions
UPDATE subscriptions SET tenant_id = :tenant_id WHERE tenant_id = '' AND (:everybody::boolean OR user_id = ANY (:user_ids::text[]))
RETURNING subscription_id;

-- name: assign_payments
UPDATE payments SET tenant_id = :tenant_id
WHERE tenant_id = '' AND (:everybody::boolean OR subscription_id IN (SELECT subscription_id FROM subscriptions WHERE tenant_id = :tenant_id))
RETURNING transaction_id;

-- name: assign_refunds
UPDATE refunds SET tenant_id = :tenant_id
WHERE tenant_id = ''
  AND (:everybody::boolean OR transaction_id IN (SELECT transaction_id FROM payments WHERE tenant_id = :tenant_id))
RETURNING refund_id;

-- name: assign_payment_webhook_requests
UPDATE payment_webhook_requests SET tenant_id = :tenant_id
WHERE tenant_id = '' AND (:everybody::boolean OR (payload ->> 'subscription_id') IN (SELECT subscription_id FROM subscriptions WHERE tenant_id = :tenant_id))
RETURNING event_id;

-- name: assign_usage_deltas
UPDATE usage_deltas SET tenant_id = :tenant_id WHERE tenant_id = '' AND (:everybody::boolean OR user_id = ANY (:user_ids::text[]))
RETURNING message_id;

-- name: assign_usage_counters
-- A counter that the tenant has already is added to; `drop_assigned_usage_counters` removes the one without a tenant.
INSERT INTO usage_counters AS u (user_id, feature_name, usage_count, reset_at, updated_at, tenant_id)
SELECT user_id, feature_name, usage_count, reset_at, updated_at, :tenant_id FROM usage_counters
WHERE tenant_id = '' AND (:everybody::boolean OR user_id = ANY (:user_ids::text[]))
ON CONFLICT (tenant_id, user_id, feature_name) DO UPDATE
SET usage_count = u.usage_count + excluded.usage_count, reset_at = coalesce(u.reset_at, excluded.reset_at),
    updated_at = greatest(u.updated_at, excluded.updated_at)
RETURNING feature_name;

-- name: drop_assigned_usage_counters
DELETE FROM usage_counters WHERE tenant_id = '' AND (:everybody::boolean OR user_id = ANY (:user_ids::text[]));
