-- What delivery over vendors needs beside the engine: receipts, templates, people, alerts, audit, keys, shared breakers.

-- What vendors said later of the present message; `receipt` is the furthest word.
ALTER TABLE routes ADD COLUMN receipt TEXT;
ALTER TABLE routes ADD COLUMN delivered_at INTEGER;
ALTER TABLE routes ADD COLUMN opened_at INTEGER;
ALTER TABLE routes ADD COLUMN clicked_at INTEGER;

-- A receipt names a vendor's message, not a route of ours.
CREATE INDEX attempts_message_idx ON attempts (provider_message_id) WHERE provider_message_id IS NOT NULL;

-- A scope of '' is everybody's; a tenant's own silence binds nobody else.
CREATE TABLE suppressions_scoped (
    channel    TEXT NOT NULL,
    address    TEXT NOT NULL,
    reason     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    tenant_id  TEXT NOT NULL DEFAULT '',
    source     TEXT NOT NULL DEFAULT 'delivery',
    PRIMARY KEY (channel, address, tenant_id)
);
INSERT INTO suppressions_scoped (channel, address, reason, created_at, expires_at)
SELECT channel, address, reason, created_at, expires_at FROM suppressions;
DROP TABLE suppressions;
ALTER TABLE suppressions_scoped RENAME TO suppressions;

-- What must be told to somebody outside, written in the commit that made it true and removed once it was told.
CREATE TABLE outbox (
    -- AUTOINCREMENT: the number is the alert's name outside, so that of a removed row must not come again.
    outbox_id           INTEGER PRIMARY KEY AUTOINCREMENT,
    topic               TEXT NOT NULL,
    notification_id     TEXT NOT NULL,
    route_id            TEXT NOT NULL,
    created_at          INTEGER NOT NULL,
    next_attempt_at     INTEGER NOT NULL,
    attempt_count       INTEGER NOT NULL DEFAULT 0,
    -- What was true then: a redrive may be faster than the telling. Empty is what the route says now.
    final_attempt_count INTEGER,
    failure_message     TEXT,
    -- Which of those to be told have confirmed it, with commas between them.
    told                TEXT NOT NULL DEFAULT ''
);

CREATE INDEX outbox_due_idx ON outbox (next_attempt_at);

-- Redriving many begins with the oldest, lists with the newest.
CREATE INDEX dead_letters_created_idx ON dead_letters (created_at);

-- part: api

CREATE TABLE receipts (
    -- The vendor's own id of the report, else a digest of what it says: a report that comes again is one row.
    receipt_key         TEXT PRIMARY KEY,
    provider            TEXT NOT NULL,
    kind                TEXT NOT NULL,
    provider_message_id TEXT,
    idempotency_key     TEXT,
    notification_id     TEXT,
    route_id            TEXT,
    address             TEXT,
    classification      TEXT,
    reason              TEXT,
    recipient_gone      INTEGER NOT NULL DEFAULT 0,
    occurred_at         INTEGER,
    received_at         INTEGER NOT NULL,
    -- What it did: noted, failed_over, retried, buried, ignored; waiting until the message it names is known here.
    effect              TEXT NOT NULL
);

CREATE INDEX receipts_received_idx ON receipts (received_at);
CREATE INDEX receipts_waiting_idx ON receipts (received_at) WHERE effect = 'waiting';
-- How often an address was called dead.
CREATE INDEX receipts_gone_idx ON receipts (address) WHERE recipient_gone;
CREATE INDEX receipts_notification_idx ON receipts (notification_id) WHERE notification_id IS NOT NULL;

CREATE TABLE preferences (
    tenant_id        TEXT NOT NULL,
    user_id          TEXT NOT NULL,
    preferred_locale TEXT,
    channels_json    TEXT NOT NULL DEFAULT '{}',
    contacts_json    TEXT NOT NULL DEFAULT '{}',
    quiet_hours_json TEXT,
    updated_at       INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, user_id)
);

CREATE TABLE templates (
    -- The same for every version of one template.
    template_id            TEXT NOT NULL,
    -- '' is for every tenant that has none of its own.
    tenant_id              TEXT NOT NULL,
    template_key           TEXT NOT NULL,
    channel                TEXT NOT NULL,
    locale                 TEXT NOT NULL,
    version                INTEGER NOT NULL,
    name                   TEXT,
    description            TEXT,
    subject                TEXT,
    body                   TEXT NOT NULL,
    html                   TEXT,
    default_variables_json TEXT,
    is_active              INTEGER NOT NULL,
    created_by             TEXT,
    created_at             INTEGER NOT NULL,
    updated_at             INTEGER NOT NULL,
    -- A template is gone while all its versions have one.
    deleted_at             INTEGER,
    PRIMARY KEY (template_id, version),
    CONSTRAINT templates_version UNIQUE (tenant_id, template_key, channel, locale, version)
);

-- Who did what by hand.
CREATE TABLE admin_actions (
    action_id   INTEGER PRIMARY KEY,
    at          INTEGER NOT NULL,
    actor       TEXT NOT NULL,
    action      TEXT NOT NULL,
    tenant_id   TEXT,
    subject     TEXT,
    reason      TEXT,
    detail_json TEXT
);

CREATE INDEX admin_actions_subject_idx ON admin_actions (subject);

CREATE TABLE api_keys (
    key_id       TEXT PRIMARY KEY,
    secret_hash  TEXT NOT NULL,
    tenant_id    TEXT,
    role         TEXT NOT NULL,
    name         TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    last_used_at INTEGER,
    expires_at   INTEGER,
    revoked_at   INTEGER
);

-- The breakers of a fleet without Redis.
CREATE TABLE breakers (
    service    TEXT NOT NULL,
    provider   TEXT NOT NULL,
    state      TEXT NOT NULL,
    failures   INTEGER NOT NULL,
    successes  INTEGER NOT NULL,
    opened_at  INTEGER,
    -- When each probe under way began, in seconds.
    probes_json TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (service, provider)
);

-- Document 002's table under its own names and words.
CREATE VIEW "NotificationQueue" AS
SELECT n.notification_id AS "Id", n.tenant_id AS "TenantId", n.user_id AS "UserId", r.channel AS "Channel",
       n.notification_type AS "TemplateKey",
       CASE n.priority WHEN 1 THEN 'high' WHEN 2 THEN 'normal' ELSE 'low' END AS "Priority",
       CASE WHEN r.status IN ('pending', 'failed') THEN 'queued' WHEN r.status = 'dead_letter' THEN 'failed'
            WHEN r.status = 'skipped' THEN 'skipped' WHEN r.opened_at IS NOT NULL THEN 'opened' ELSE 'delivered'
       END AS "Status",
       r.resolved_locale AS "Locale", r.address AS "Recipient", r.attempt_count AS "AttemptCount",
       CASE WHEN r.status = 'dead_letter' THEN r.last_error_message END AS "LastError",
       r.provider AS "Provider", r.provider_message_id AS "ProviderMessageId", n.accepted_at AS "CreatedAt",
       r.published_at AS "SentAt", coalesce(r.delivered_at, r.published_at) AS "DeliveredAt",
       r.dead_lettered_at AS "FailedAt", r.next_attempt_at AS "NextAttemptAt"
FROM records n JOIN routes r ON r.notification_id = n.notification_id;

-- part: audit
-- adopts: audit_logs

-- Document 000's audit log; `audit_key` lets many copies of one message write one row.
CREATE TABLE audit_logs (
    audit_id          INTEGER PRIMARY KEY,
    trace_id          TEXT NOT NULL,
    user_id           TEXT NOT NULL,
    notification_type TEXT NOT NULL,
    template_id       TEXT,
    status            TEXT NOT NULL,
    metadata          TEXT,
    created_at        INTEGER NOT NULL,
    audit_key         TEXT UNIQUE
);

CREATE INDEX audit_logs_trace_idx ON audit_logs (trace_id);
