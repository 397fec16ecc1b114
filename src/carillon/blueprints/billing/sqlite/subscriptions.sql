-- Statements of the subscription service.

-- name: add_subscription
-- Race: a caller repeats its request before the first one has answered.
--   ON CONFLICT             an order's own id is made of its key: the second finds the first one's row.
INSERT INTO subscriptions (subscription_id, user_id, plan_id, status, trial, created_at, updated_at)
VALUES (:subscription_id, :user_id, :plan_id, 'pending', :trial, :now, :now)
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
                   ELSE max(coalesce(ends_at, :now), :now) + CAST(:days * 86400000 AS INTEGER) END
WHERE subscription_id = :subscription_id;

-- name: change_plan
UPDATE subscriptions SET plan_id = :plan_id,
    updated_at = :now WHERE subscription_id = :subscription_id RETURNING subscription_id;

-- name: enter_payment_event
-- Race: the immediate and the queued delivery of one event arrive together.
--   BEGIN IMMEDIATE         the second begins after the first has committed.
INSERT INTO payment_webhook_requests (event_id, payload) VALUES (:event_id, :payload)
ON CONFLICT (event_id) DO UPDATE SET payload = CASE WHEN processed THEN payload ELSE excluded.payload END
RETURNING processed;

-- name: finish_payment_event
UPDATE payment_webhook_requests SET processed = 1, processed_at = :now, error_message = NULL WHERE event_id = :event_id;

-- name: fail_payment_event
-- Race: another delivery of the event was carried out meanwhile.
--   NOT processed           what was done stays done.
INSERT INTO payment_webhook_requests (event_id, payload, error_message, retry_count) VALUES (:event_id, :payload,
    :error, 1)
ON CONFLICT (event_id) DO UPDATE SET error_message = excluded.error_message, retry_count = retry_count + 1
WHERE NOT processed;

-- name: payment_event
SELECT event_id, processed, processed_at, error_message, retry_count, created_at, updated_at
FROM payment_webhook_requests WHERE event_id = :event_id;

-- name: enter_usage
-- Race: a message comes again after it was counted, or while it is.
--   ON CONFLICT             who does not enter its id counts nothing.
INSERT INTO usage_deltas (message_id, user_id, feature_name, delta, counted_at) VALUES (:message_id, :user_id,
    :feature_name, :delta, :now)
ON CONFLICT (message_id) DO NOTHING
RETURNING message_id;

-- name: add_usage
-- Runs in the transaction of `enter_usage`.
INSERT INTO usage_counters (user_id, feature_name, usage_count, reset_at, updated_at) VALUES (:user_id, :feature_name,
    :delta, :reset_at, :now)
ON CONFLICT (user_id, feature_name) DO UPDATE
SET usage_count = CASE WHEN reset_at <= :now THEN 0 ELSE usage_count END + excluded.usage_count,
    reset_at = CASE WHEN reset_at <= :now THEN excluded.reset_at ELSE coalesce(excluded.reset_at, reset_at) END,
    updated_at = :now;

-- name: usage_of
SELECT user_id, feature_name, usage_count, reset_at FROM usage_counters WHERE user_id = :user_id ORDER BY feature_name;
