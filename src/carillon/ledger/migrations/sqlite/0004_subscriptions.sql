-- What the payment and the subscription service of document 003 write down.

-- part: billing

CREATE TABLE subscriptions (
    subscription_id TEXT PRIMARY KEY,
    user_id         TEXT NOT NULL,
    plan_id         TEXT NOT NULL,
    -- pending, trial, active, past_due, revoked
    status          TEXT NOT NULL,
    trial           INTEGER NOT NULL DEFAULT 0,
    started_at      INTEGER,
    ends_at         INTEGER,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL
);

CREATE INDEX subscriptions_user_idx ON subscriptions (user_id);

-- Each call of the gateway for money.
CREATE TABLE payments (
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
    CONSTRAINT payments_key UNIQUE (subscription_id, idempotency_key)
);

CREATE TABLE refunds (
    refund_id         TEXT PRIMARY KEY,
    -- Whatever is asked for twice is paid back once.
    transaction_id    TEXT NOT NULL UNIQUE,
    amount            TEXT NOT NULL,
    reason            TEXT NOT NULL,
    status            TEXT NOT NULL,
    gateway_reference TEXT,
    created_at        INTEGER NOT NULL
);

-- part: billing
-- adopts: payment_webhook_requests

-- Document 003's table of what the payment service told the subscription service.
CREATE TABLE payment_webhook_requests (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id      TEXT NOT NULL UNIQUE,
    payload       TEXT NOT NULL,
    processed     INTEGER NOT NULL DEFAULT 0,
    processed_at  INTEGER,
    error_message TEXT,
    retry_count   INTEGER NOT NULL DEFAULT 0,
    created_at    INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)),
    updated_at    INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER))
);

CREATE TRIGGER payment_webhook_requests_touch AFTER UPDATE ON payment_webhook_requests
WHEN new.updated_at IS old.updated_at
BEGIN
    UPDATE payment_webhook_requests SET updated_at = CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)
    WHERE id = new.id;
END;

-- part: billing

CREATE TABLE usage_counters (
    user_id      TEXT NOT NULL,
    feature_name TEXT NOT NULL,
    usage_count  INTEGER NOT NULL,
    -- From then on it is counted from nothing again.
    reset_at     INTEGER,
    updated_at   INTEGER NOT NULL,
    PRIMARY KEY (user_id, feature_name)
);

-- What was counted: a message that comes again counts nothing.
CREATE TABLE usage_deltas (
    message_id   TEXT PRIMARY KEY,
    user_id      TEXT NOT NULL,
    feature_name TEXT NOT NULL,
    delta        INTEGER NOT NULL,
    counted_at   INTEGER NOT NULL
);

-- Messages for queues, written in the commit that made them true and removed once the queue has them.
CREATE TABLE queue_outbox (
    message_id      TEXT PRIMARY KEY,
    queue           TEXT NOT NULL,
    action          TEXT NOT NULL,
    correlation_id  TEXT,
    idempotency_key TEXT,
    payload_json    TEXT NOT NULL,
    created_at      INTEGER NOT NULL,
    next_attempt_at INTEGER NOT NULL
);

CREATE INDEX queue_outbox_due_idx ON queue_outbox (next_attempt_at);
