-- What the payment and the subscription service of document 003 write down.

-- part: billing

CREATE TABLE subscriptions (
    subscription_id text COLLATE "C" PRIMARY KEY,
    user_id         text COLLATE "C" NOT NULL,
    plan_id         text NOT NULL,
    -- pending, trial, active, past_due, revoked
    status          text NOT NULL,
    trial           boolean NOT NULL DEFAULT FALSE,
    started_at      timestamptz,
    ends_at         timestamptz,
    created_at      timestamptz NOT NULL,
    updated_at      timestamptz NOT NULL
);

CREATE INDEX subscriptions_user_idx ON subscriptions (user_id);

-- Each call of the gateway for money.
CREATE TABLE payments (
    transaction_id    text COLLATE "C" PRIMARY KEY,
    subscription_id   text COLLATE "C" NOT NULL,
    -- success, failed
    status            text NOT NULL,
    amount            numeric(20, 4) NOT NULL,
    currency          text NOT NULL,
    action            text NOT NULL,
    event_id          text NOT NULL,
    idempotency_key   text,
    gateway_reference text,
    message           text,
    created_at        timestamptz NOT NULL,
    CONSTRAINT payments_key UNIQUE (subscription_id, idempotency_key)
);

CREATE TABLE refunds (
    refund_id         text COLLATE "C" PRIMARY KEY,
    -- Whatever is asked for twice is paid back once.
    transaction_id    text COLLATE "C" NOT NULL UNIQUE,
    amount            numeric(20, 4) NOT NULL,
    reason            text NOT NULL,
    status            text NOT NULL,
    gateway_reference text,
    created_at        timestamptz NOT NULL
);

-- part: billing
-- adopts: payment_webhook_requests

-- Document 003's table of what the payment service told the subscription service.
CREATE TABLE payment_webhook_requests (
    id            integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id      text NOT NULL UNIQUE,
    payload       jsonb NOT NULL,
    processed     boolean NOT NULL DEFAULT FALSE,
    processed_at  timestamptz,
    error_message text,
    retry_count   integer NOT NULL DEFAULT 0,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE FUNCTION payment_webhook_requests_touch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.updated_at := clock_timestamp();
    RETURN NEW;
END;
$$;

CREATE TRIGGER payment_webhook_requests_touch BEFORE UPDATE ON payment_webhook_requests
FOR EACH ROW EXECUTE FUNCTION payment_webhook_requests_touch();

-- part: billing

CREATE TABLE usage_counters (
    user_id      text COLLATE "C" NOT NULL,
    feature_name text COLLATE "C" NOT NULL,
    usage_count  bigint NOT NULL,
    -- From then on it is counted from nothing again.
    reset_at     timestamptz,
    updated_at   timestamptz NOT NULL,
    PRIMARY KEY (user_id, feature_name)
);

-- What was counted: a message that comes again counts nothing.
CREATE TABLE usage_deltas (
    message_id   text COLLATE "C" PRIMARY KEY,
    user_id      text COLLATE "C" NOT NULL,
    feature_name text COLLATE "C" NOT NULL,
    delta        bigint NOT NULL,
    counted_at   timestamptz NOT NULL
);

-- Messages for queues, written in the commit that made them true and removed once the queue has them.
CREATE TABLE queue_outbox (
    message_id      text COLLATE "C" PRIMARY KEY,
    queue           text NOT NULL,
    action          text NOT NULL,
    correlation_id  text,
    idempotency_key text,
    payload_json    text NOT NULL,
    created_at      timestamptz NOT NULL,
    next_attempt_at timestamptz NOT NULL
);

CREATE INDEX queue_outbox_due_idx ON queue_outbox (next_attempt_at);
