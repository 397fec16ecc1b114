-- What the engine needs on its own: accepted notifications, their routes, what was tried, what was given up.

-- Times are Unix milliseconds, booleans 0 or 1.
CREATE TABLE records (
    notification_id        TEXT PRIMARY KEY,
    notification_type      TEXT NOT NULL,
    producer               TEXT NOT NULL,
    audience_kind          TEXT NOT NULL,
    recipient_user_ids     TEXT,
    payload_json           TEXT NOT NULL,
    idempotency_key        TEXT,
    request_fingerprint    TEXT NOT NULL,
    request_id             TEXT,
    trace_id               TEXT,
    occurred_at            INTEGER,
    accepted_at            INTEGER NOT NULL,
    updated_at             INTEGER NOT NULL,
    idempotency_expires_at INTEGER,
    origin                 TEXT NOT NULL,
    tenant_id              TEXT,
    user_id                TEXT,
    priority               INTEGER NOT NULL,
    is_bulk                INTEGER NOT NULL,
    metadata_json          TEXT,
    scheduled_for          INTEGER
);

-- The row is the reservation of its key; rows without a key never collide.
CREATE UNIQUE INDEX records_key ON records (producer, idempotency_key);

-- Serves newest-first lists and retention; every further index would be paid by each acceptance.
CREATE INDEX records_accepted_idx ON records (accepted_at);

CREATE TABLE routes (
    notification_id           TEXT NOT NULL REFERENCES records ON DELETE CASCADE,
    route_id                  TEXT NOT NULL,
    channel                   TEXT NOT NULL,
    recipient_ref             TEXT NOT NULL,
    status                    TEXT NOT NULL,
    attempt_count             INTEGER NOT NULL DEFAULT 0,
    max_attempts              INTEGER NOT NULL,
    next_attempt_at           INTEGER,
    resolved_email            TEXT GENERATED ALWAYS AS (CASE WHEN channel = 'email' THEN address END) VIRTUAL,
    resolved_locale           TEXT,
    last_error_classification TEXT,
    last_error_message        TEXT,
    last_error_at             INTEGER,
    created_at                INTEGER NOT NULL,
    updated_at                INTEGER NOT NULL,
    published_at              INTEGER,
    dead_lettered_at          INTEGER,
    skipped_at                INTEGER,
    address                   TEXT,
    lane                      INTEGER NOT NULL,
    provider                  TEXT NOT NULL,
    -- attempt_count when the present provider took over.
    provider_since            INTEGER NOT NULL DEFAULT 0,
    policy                    TEXT NOT NULL,
    -- When the present budget began: due first, or redriven. Waiting for a schedule is no age.
    budget_since              INTEGER NOT NULL,
    message_json              TEXT,
    claim_token               INTEGER,
    lease_owner               TEXT,
    provider_message_id       TEXT,
    -- How the last settlement came about: applied under its lease, or adopted after it was lost.
    settled_by                TEXT,
    PRIMARY KEY (notification_id, route_id),
    CONSTRAINT routes_status CHECK (status IN ('pending', 'published', 'failed', 'dead_letter', 'skipped')),
    CONSTRAINT routes_due_only_while_open CHECK (next_attempt_at IS NULL OR status IN ('pending', 'failed')),
    CONSTRAINT routes_attempts CHECK (attempt_count >= 0)
);

-- Due, leased and retried rows in one order; terminal rows are not in it, so history costs a claim nothing.
CREATE INDEX routes_due_idx ON routes (lane, provider, next_attempt_at) WHERE next_attempt_at IS NOT NULL;

CREATE TABLE dead_letters (
    notification_id        TEXT NOT NULL,
    route_id               TEXT NOT NULL,
    channel                TEXT NOT NULL,
    recipient_ref          TEXT NOT NULL,
    final_attempt_count    INTEGER NOT NULL,
    max_attempts           INTEGER NOT NULL,
    failure_classification TEXT NOT NULL,
    failure_message        TEXT NOT NULL,
    recovery_hint          TEXT NOT NULL,
    created_at             INTEGER NOT NULL,
    PRIMARY KEY (notification_id, route_id),
    FOREIGN KEY (notification_id, route_id) REFERENCES routes ON DELETE CASCADE
);

CREATE TABLE malformed_intents (
    stream_entry_id   TEXT PRIMARY KEY,
    notification_type TEXT,
    producer          TEXT,
    idempotency_key   TEXT,
    failure_code      TEXT NOT NULL,
    failure_message   TEXT NOT NULL,
    raw_fields        TEXT NOT NULL,
    recorded_at       INTEGER NOT NULL
);

-- No foreign key, as in the other dialect. Retention deletes these rows itself.
CREATE TABLE attempts (
    attempt_id          INTEGER PRIMARY KEY,
    notification_id     TEXT NOT NULL,
    route_id            TEXT NOT NULL,
    attempt             INTEGER NOT NULL,
    provider            TEXT NOT NULL,
    outcome             TEXT NOT NULL,
    classification      TEXT,
    error               TEXT,
    provider_message_id TEXT,
    started_at          INTEGER NOT NULL,
    duration_ms         REAL NOT NULL,
    verdict             TEXT NOT NULL,
    delay_ms            REAL,
    settled             TEXT NOT NULL
);

CREATE INDEX attempts_notification_idx ON attempts (notification_id);

CREATE TABLE suppressions (
    channel    TEXT NOT NULL,
    address    TEXT NOT NULL,
    reason     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    PRIMARY KEY (channel, address)
);

-- One row: the last token given.
CREATE TABLE claim_tokens (last INTEGER NOT NULL);

INSERT INTO claim_tokens (last) VALUES (0);
