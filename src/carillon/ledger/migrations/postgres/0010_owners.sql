-- Whose things are: the service that sent a notification, and the tenant of everything that billing writes down.

-- The name of the API key or the `sub` of the token; NULL for what people and other doors sent, and for older rows.
ALTER TABLE records ADD COLUMN sent_by text;

-- part: billing

-- '' is no tenant, as in preferences and templates; all rows of today have none.
ALTER TABLE subscriptions ADD COLUMN tenant_id text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE refunds ADD COLUMN tenant_id text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE payment_webhook_requests ADD COLUMN tenant_id text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE usage_deltas ADD COLUMN tenant_id text COLLATE "C" NOT NULL DEFAULT '';

-- Two tenants may call two subscriptions the same, and use the same key for both.
ALTER TABLE payments
    ADD COLUMN tenant_id text COLLATE "C" NOT NULL DEFAULT '',
    DROP CONSTRAINT payments_key,
    ADD CONSTRAINT payments_key UNIQUE (tenant_id, subscription_id, idempotency_key);

-- The same user id in two tenants is two people.
ALTER TABLE usage_counters
    ADD COLUMN tenant_id text COLLATE "C" NOT NULL DEFAULT '',
    DROP CONSTRAINT usage_counters_pkey,
    ADD PRIMARY KEY (tenant_id, user_id, feature_name);
