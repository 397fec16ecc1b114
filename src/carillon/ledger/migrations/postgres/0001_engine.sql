-- What the engine needs on its own: accepted notifications, their routes, what was tried, what was given up.

-- Names are compared bytewise everywhere: faster than a language's order, and the order Python sorts locks in.
CREATE TABLE records (
    notification_id        text COLLATE "C" PRIMARY KEY,
    notification_type      text NOT NULL,
    producer               text COLLATE "C" NOT NULL,
    audience_kind          text NOT NULL,
    recipient_user_ids     jsonb,
    payload_json           text NOT NULL,
    idempotency_key        text COLLATE "C",
    request_fingerprint    text NOT NULL,
    request_id             text,
    trace_id               text,
    occurred_at            timestamptz,
    accepted_at            timestamptz NOT NULL,
    updated_at             timestamptz NOT NULL,
    idempotency_expires_at timestamptz,
    origin                 text NOT NULL,
    tenant_id              text,
    user_id                text,
    priority               smallint NOT NULL,
    is_bulk                boolean NOT NULL,
    metadata_json          text,
    scheduled_for          timestamptz,
    -- The row is the reservation of its key; rows without a key never collide.
    CONSTRAINT records_key UNIQUE (producer, idempotency_key)
);

-- Serves newest-first lists and retention; every further index would be paid by each acceptance.
CREATE INDEX records_accepted_idx ON records (accepted_at);

CREATE TABLE routes (
    notification_id           text COLLATE "C" NOT NULL REFERENCES records ON DELETE CASCADE,
    route_id                  text COLLATE "C" NOT NULL,
    channel                   text NOT NULL,
    recipient_ref             text NOT NULL,
    status                    text NOT NULL,
    attempt_count             integer NOT NULL DEFAULT 0,
    max_attempts              integer NOT NULL,
    next_attempt_at           timestamptz,
    resolved_email            text GENERATED ALWAYS AS (CASE WHEN channel = 'email' THEN address END) STORED,
    resolved_locale           text,
    last_error_classification text,
    last_error_message        text,
    last_error_at             timestamptz,
    created_at                timestamptz NOT NULL,
    updated_at                timestamptz NOT NULL,
    published_at              timestamptz,
    dead_lettered_at          timestamptz,
    skipped_at                timestamptz,
    address                   text,
    lane                      smallint NOT NULL,
    provider                  text COLLATE "C" NOT NULL,
    -- attempt_count when the present provider took over.
    provider_since            integer NOT NULL DEFAULT 0,
    policy                    text NOT NULL,
    -- When the present budget began: due first, or redriven. Waiting for a schedule is no age.
    budget_since              timestamptz NOT NULL,
    message_json              text,
    claim_token               bigint,
    lease_owner               text,
    provider_message_id       text,
    -- How the last settlement came about: applied under its lease, or adopted after it was lost.
    settled_by                text,
    PRIMARY KEY (notification_id, route_id),
    CONSTRAINT routes_status CHECK (status IN ('pending', 'published', 'failed', 'dead_letter', 'skipped')),
    CONSTRAINT routes_due_only_while_open CHECK (next_attempt_at IS NULL OR status IN ('pending', 'failed')),
    CONSTRAINT routes_attempts CHECK (attempt_count >= 0)
) WITH (
    -- A queue dies of dead rows: clean up after a fixed number of them, however large the table, at full speed.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.02,
    autovacuum_analyze_threshold = 5000
);

-- Due, leased and retried rows in one order; terminal rows are not in it, so history costs a claim nothing.
CREATE INDEX routes_due_idx ON routes (lane, provider, next_attempt_at) WHERE next_attempt_at IS NOT NULL;

CREATE TABLE dead_letters (
    notification_id        text COLLATE "C" NOT NULL,
    route_id               text COLLATE "C" NOT NULL,
    channel                text NOT NULL,
    recipient_ref          text NOT NULL,
    final_attempt_count    integer NOT NULL,
    max_attempts           integer NOT NULL,
    failure_classification text NOT NULL,
    failure_message        text NOT NULL,
    recovery_hint          text NOT NULL,
    created_at             timestamptz NOT NULL,
    PRIMARY KEY (notification_id, route_id),
    FOREIGN KEY (notification_id, route_id) REFERENCES routes ON DELETE CASCADE
);

CREATE TABLE malformed_intents (
    stream_entry_id   text COLLATE "C" PRIMARY KEY,
    notification_type text,
    producer          text,
    idempotency_key   text,
    failure_code      text NOT NULL,
    failure_message   text NOT NULL,
    raw_fields        jsonb NOT NULL,
    recorded_at       timestamptz NOT NULL
);

-- No foreign key: its check would lock the route's row for every attempt written. Retention deletes these rows itself.
CREATE TABLE attempts (
    attempt_id          bigint NOT NULL,
    notification_id     text COLLATE "C" NOT NULL,
    route_id            text COLLATE "C" NOT NULL,
    attempt             integer NOT NULL,
    provider            text NOT NULL,
    outcome             text NOT NULL,
    classification      text,
    error               text,
    provider_message_id text,
    started_at          timestamptz NOT NULL,
    duration_ms         double precision NOT NULL,
    verdict             text NOT NULL,
    delay_ms            double precision,
    settled             text NOT NULL,
    -- One index for both questions: the attempts of a notification, and whether this one is written down already.
    PRIMARY KEY (notification_id, attempt_id)
);

CREATE TABLE suppressions (
    channel    text NOT NULL,
    address    text NOT NULL,
    reason     text NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    PRIMARY KEY (channel, address)
);

CREATE SEQUENCE claim_tokens;
