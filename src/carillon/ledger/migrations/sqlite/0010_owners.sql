-- Whose things are: the service that sent a notification, and the tenant of everything that billing writes down.

-- The name of the API key or the `sub` of the token; NULL for what people and other doors sent, and for older rows.
ALTER TABLE records ADD COLUMN sent_by TEXT;

-- part: billing

-- '' is no tenant, as in preferences and templates; all rows of today have none.
ALTER TABLE subscriptions ADD COLUMN tenant_id TEXT NOT NULL DEFAULT '';
ALTER TABLE refunds ADD COLUMN tenant_id TEXT NOT NULL DEFAULT '';
ALTER TABLE payment_webhook_requests ADD COLUMN tenant_id TEXT NOT NULL DEFAULT '';
ALTER TABLE usage_deltas ADD COLUMN tenant_id TEXT NOT NULL DEFAULT '';

-- Two tenants may call two subscriptions the same, and use the same key for both.
CREATE TABLE payments_of_tenants (
    transaction_id    TEXT PRIMARY KEY,
    subscription_id   TEXT NOT NULL,
    -- success, failed
    status            TEXT NOT NULL,
    amount            TEXT NOT NULL,
    currency          TEXT NOT NULL,
    action            TEXT NOT NULL,
    event_id          TEXT NOT NULL,
    idempotency_key   TEXT,
    gateway_reference TEXT,
    message           TEXT,
    created_at        INTEGER NOT NULL,
    tenant_id         TEXT NOT NULL DEFAULT '',
    CONSTRAINT payments_key UNIQUE (tenant_id, subscription_id, idempotency_key)
);
INSERT INTO payments_of_tenants (transaction_id, subscription_id, status, amount, currency, action, event_id,
    idempotency_key, gateway_reference, message, created_at)
SELECT transaction_id, subscription_id, status, amount, currency, action, event_id, idempotency_key, gateway_reference,
    message, created_at
FROM payments;
DROP TABLE payments;
ALTER TABLE payments_of_tenants RENAME TO payments;

-- The same user id in two tenants is two people.
CREATE TABLE usage_counters_of_tenants (
    user_id      TEXT NOT NULL,
    feature_name TEXT NOT NULL,
    usage_count  INTEGER NOT NULL,
    -- From then on it is counted from nothing again.
    reset_at     INTEGER,
    updated_at   INTEGER NOT NULL,
    tenant_id    TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (tenant_id, user_id, feature_name)
);
INSERT INTO usage_counters_of_tenants (user_id, feature_name, usage_count, reset_at, updated_at)
SELECT user_id, feature_name, usage_count, reset_at, updated_at FROM usage_counters;
DROP TABLE usage_counters;
ALTER TABLE usage_counters_of_tenants RENAME TO usage_counters;
