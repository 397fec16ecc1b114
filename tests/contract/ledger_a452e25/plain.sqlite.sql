BEGIN TRANSACTION;
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
INSERT INTO "admin_actions" VALUES(1,1794865861790,'ops','redrive',NULL,NULL,'because','{}');
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
INSERT INTO "api_keys" VALUES('key1','00',NULL,'admin','old',1794865861764,NULL,NULL,NULL);
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
INSERT INTO "attempts" VALUES(1,'n-1','email:delivered@example.org',1,'mailer','sent',NULL,NULL,'m-1',1794865861743,3.0,'finish',NULL,'applied');
INSERT INTO "attempts" VALUES(2,'n-2','email:buried@example.org',1,'mailer','refused','bad_address','no such mailbox',NULL,1794865861743,3.0,'bury',NULL,'applied');
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
CREATE TABLE claim_tokens (last INTEGER NOT NULL);
INSERT INTO "claim_tokens" VALUES(2);
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
INSERT INTO "dead_letters" VALUES('n-2','email:buried@example.org','email','buried@example.org',1,3,'bad_address','no such mailbox','Repair the cause, then redrive this route; it keeps its id and gets a fresh budget.',1794865861746);
CREATE TABLE history_cursor (
    -- There is one.
    only_row        INTEGER PRIMARY KEY DEFAULT 1 CHECK (only_row = 1),
    changed_at      INTEGER NOT NULL,
    notification_id TEXT NOT NULL,
    route_id        TEXT NOT NULL,
    owner           TEXT NOT NULL,
    held_until      INTEGER NOT NULL
);
CREATE TABLE job_effects (
    effect_key TEXT PRIMARY KEY,
    -- The message on whose behalf it is being done; its own next run takes over.
    holder     TEXT NOT NULL,
    held_until INTEGER NOT NULL,
    done_at    INTEGER
);
CREATE TABLE job_logs (
    id              INTEGER PRIMARY KEY,
    service         TEXT NOT NULL,
    queue           TEXT NOT NULL,
    message_id      TEXT NOT NULL,
    correlation_id  TEXT,
    idempotency_key TEXT,
    -- received, processing, success, retry, failed, dead
    status          TEXT NOT NULL,
    attempts        INTEGER NOT NULL,
    last_error      TEXT,
    next_retry_at   INTEGER,
    action          TEXT NOT NULL,
    created_at      INTEGER NOT NULL,
    -- By the clock of the Redis that moved it: of two processes' rows the later one stays.
    updated_at      INTEGER NOT NULL,
    UNIQUE (queue, message_id)
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
INSERT INTO "malformed_intents" VALUES('1-0',NULL,NULL,NULL,'X','broken','{"to": "odd@example.org"}',1794865861762);
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
INSERT INTO "outbox" VALUES(1,'NotificationFailed','n-2','email:buried@example.org',1794865861746,1794865861746,0,1,'no such mailbox','');
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
INSERT INTO "payments" VALUES('t1','s1','success','9.99','USD','initial','p1',NULL,NULL,NULL,1794865861766);
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
INSERT INTO "preferences" VALUES('','ann',NULL,'{"sms":false}','{"email":"ann@example.org"}',NULL,1794865861754);
CREATE TABLE presence (
    user_id TEXT NOT NULL,
    replica TEXT NOT NULL,
    PRIMARY KEY (user_id, replica)
);
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
INSERT INTO "queue_outbox" VALUES('o1','q:pay:subscription_update','initial',NULL,NULL,'{"n":1}',1794865861766,1794865866766);
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
INSERT INTO "records" VALUES('n-1','order.shipped','shop','user',NULL,'{"name": "Name of delivered"}','k-1','f-1',NULL,NULL,NULL,1794865861712,1794865861712,NULL,'system',NULL,NULL,2,0,'{"from":"a452e25"}',NULL);
INSERT INTO "records" VALUES('n-2','order.shipped','shop','user',NULL,'{"name": "Name of buried"}','k-2','f-2',NULL,NULL,NULL,1794865861712,1794865861712,NULL,'system',NULL,NULL,2,0,'{"from":"a452e25"}',NULL);
INSERT INTO "records" VALUES('n-3','order.shipped','shop','user',NULL,'{"name": "Name of waiting"}','k-3','f-3',NULL,NULL,NULL,1794865861712,1794865861712,NULL,'system',NULL,NULL,2,0,'{"from":"a452e25"}',NULL);
CREATE TABLE redriven_routes (
    notification_id TEXT NOT NULL,
    route_id        TEXT NOT NULL,
    action_id       INTEGER NOT NULL,
    PRIMARY KEY (notification_id, route_id),
    FOREIGN KEY (notification_id, route_id) REFERENCES routes ON DELETE CASCADE
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
CREATE TABLE replicas (
    replica     TEXT PRIMARY KEY,
    alive_until INTEGER NOT NULL
);
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
    settled_by                TEXT, receipt TEXT, delivered_at INTEGER, opened_at INTEGER, clicked_at INTEGER, claimed_at INTEGER,
    PRIMARY KEY (notification_id, route_id),
    CONSTRAINT routes_status CHECK (status IN ('pending', 'published', 'failed', 'dead_letter', 'skipped')),
    CONSTRAINT routes_due_only_while_open CHECK (next_attempt_at IS NULL OR status IN ('pending', 'failed')),
    CONSTRAINT routes_attempts CHECK (attempt_count >= 0)
);
INSERT INTO "routes" VALUES('n-1','email:delivered@example.org','email','delivered@example.org','published',1,3,NULL,NULL,NULL,NULL,NULL,1794865861712,1794865861746,1794865861746,NULL,NULL,'delivered@example.org',2,'mailer',0,'*/*',1794865861712,'{"text": "Dear delivered"}',NULL,NULL,'m-1','applied',NULL,NULL,NULL,NULL,1794865861735);
INSERT INTO "routes" VALUES('n-2','email:buried@example.org','email','buried@example.org','dead_letter',1,3,NULL,NULL,'bad_address','no such mailbox',1794865861746,1794865861712,1794865861746,NULL,1794865861746,NULL,'buried@example.org',2,'mailer',0,'*/*',1794865861712,'{"text": "Dear buried"}',NULL,NULL,NULL,'applied',NULL,NULL,NULL,NULL,1794865861735);
INSERT INTO "routes" VALUES('n-3','email:waiting@example.org','email','waiting@example.org','pending',0,3,1794865861712,NULL,NULL,NULL,NULL,1794865861712,1794865861712,NULL,NULL,NULL,'waiting@example.org',2,'mailer',0,'*/*',1794865861712,'{"text": "Dear waiting"}',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE schema_migrations (
    version    INTEGER PRIMARY KEY,
    applied_at INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER))
);
INSERT INTO "schema_migrations" VALUES(1,1794865861419);
INSERT INTO "schema_migrations" VALUES(2,1794865861505);
INSERT INTO "schema_migrations" VALUES(3,1794865861505);
INSERT INTO "schema_migrations" VALUES(4,1794865861506);
INSERT INTO "schema_migrations" VALUES(5,1794865861507);
INSERT INTO "schema_migrations" VALUES(6,1794865861508);
INSERT INTO "schema_migrations" VALUES(7,1794865861508);
INSERT INTO "schema_migrations" VALUES(8,1794865861508);
INSERT INTO "schema_migrations" VALUES(9,1794865861508);
CREATE TABLE seal_keys (
    key_id        TEXT PRIMARY KEY NOT NULL,
    first_used_at INTEGER NOT NULL
);
CREATE TABLE stream_entries (
    user_id         TEXT NOT NULL,
    seq             INTEGER NOT NULL,
    notification_id TEXT NOT NULL,
    route_id        TEXT NOT NULL,
    pushed_at       INTEGER NOT NULL,
    delivered_at    INTEGER,
    read_at         INTEGER,
    PRIMARY KEY (user_id, seq),
    -- A repeat of the same push finds its number here.
    CONSTRAINT stream_entries_route UNIQUE (notification_id, route_id)
);
CREATE TABLE stream_tickets (
    digest         TEXT PRIMARY KEY,
    user_id        TEXT NOT NULL,
    tenant_id      TEXT,
    -- When the token ends that the ticket was given for, and its name.
    token_until_ms INTEGER,
    token_id       TEXT,
    opened         INTEGER NOT NULL DEFAULT 0,
    expires_at     INTEGER NOT NULL
);
CREATE TABLE streams (
    user_id    TEXT PRIMARY KEY,
    last_seq   INTEGER NOT NULL,
    -- Retention has taken something up to here.
    pruned_seq INTEGER NOT NULL DEFAULT 0
);
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
INSERT INTO "subscriptions" VALUES('s1','u1','basic','pending',0,NULL,NULL,1794865861765,1794865861765);
CREATE TABLE "suppressions" (
    channel    TEXT NOT NULL,
    address    TEXT NOT NULL,
    reason     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    tenant_id  TEXT NOT NULL DEFAULT '',
    source     TEXT NOT NULL DEFAULT 'delivery',
    PRIMARY KEY (channel, address, tenant_id)
);
INSERT INTO "suppressions" VALUES('email','silent@example.org','asked',1794865861750,NULL,'','operator');
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
INSERT INTO "templates" VALUES('t-1','','welcome','email','en',1,NULL,NULL,NULL,'Hello',NULL,NULL,1,NULL,1794865861755,1794865861755,NULL);
CREATE TABLE usage_counters (
    user_id      TEXT NOT NULL,
    feature_name TEXT NOT NULL,
    usage_count  INTEGER NOT NULL,
    -- From then on it is counted from nothing again.
    reset_at     INTEGER,
    updated_at   INTEGER NOT NULL,
    PRIMARY KEY (user_id, feature_name)
);
CREATE TABLE usage_deltas (
    message_id   TEXT PRIMARY KEY,
    user_id      TEXT NOT NULL,
    feature_name TEXT NOT NULL,
    delta        INTEGER NOT NULL,
    counted_at   INTEGER NOT NULL
);
CREATE UNIQUE INDEX records_key ON records (producer, idempotency_key);
CREATE INDEX records_accepted_idx ON records (accepted_at);
CREATE INDEX routes_due_idx ON routes (lane, provider, next_attempt_at) WHERE next_attempt_at IS NOT NULL;
CREATE INDEX attempts_notification_idx ON attempts (notification_id);
CREATE INDEX attempts_message_idx ON attempts (provider_message_id) WHERE provider_message_id IS NOT NULL;
CREATE INDEX receipts_received_idx ON receipts (received_at);
CREATE INDEX receipts_waiting_idx ON receipts (received_at) WHERE effect = 'waiting';
CREATE INDEX receipts_gone_idx ON receipts (address) WHERE recipient_gone;
CREATE INDEX receipts_notification_idx ON receipts (notification_id) WHERE notification_id IS NOT NULL;
CREATE INDEX outbox_due_idx ON outbox (next_attempt_at);
CREATE INDEX dead_letters_created_idx ON dead_letters (created_at);
CREATE INDEX admin_actions_subject_idx ON admin_actions (subject);
CREATE INDEX audit_logs_trace_idx ON audit_logs (trace_id);
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
CREATE INDEX job_logs_queue_status_idx ON job_logs (queue, status);
CREATE INDEX job_logs_correlation_idx ON job_logs (correlation_id);
CREATE INDEX job_logs_idempotency_idx ON job_logs (idempotency_key);
CREATE INDEX job_logs_updated_idx ON job_logs (updated_at);
CREATE INDEX job_effects_done_idx ON job_effects (done_at) WHERE done_at IS NOT NULL;
CREATE INDEX subscriptions_user_idx ON subscriptions (user_id);
CREATE TRIGGER payment_webhook_requests_touch AFTER UPDATE ON payment_webhook_requests
WHEN new.updated_at IS old.updated_at
BEGIN
    UPDATE payment_webhook_requests SET updated_at = CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)
    WHERE id = new.id;
END;
CREATE INDEX queue_outbox_due_idx ON queue_outbox (next_attempt_at);
CREATE INDEX routes_held_idx ON routes (recipient_ref) WHERE provider = 'sse' AND next_attempt_at IS NOT NULL;
CREATE INDEX routes_leased_idx ON routes (next_attempt_at) WHERE channel = 'sse' AND claim_token IS NOT NULL;
CREATE INDEX presence_replica_idx ON presence (replica);
CREATE VIEW notifications AS
SELECT n.notification_id,
       CASE WHEN r.recipient_ref LIKE 'user:%' THEN substr(r.recipient_ref, 6) ELSE r.recipient_ref END AS user_id,
       n.notification_type AS event_type,
       CASE n.priority WHEN 1 THEN 'HIGH' WHEN 2 THEN 'MEDIUM' ELSE 'LOW' END AS priority,
       n.payload_json AS payload,
       CASE WHEN r.status = 'published' AND r.delivered_at IS NOT NULL THEN 'delivered'
            WHEN r.status = 'published' THEN 'pushed'
            WHEN r.status IN ('dead_letter', 'skipped') OR r.attempt_count > r.max_attempts THEN 'failed'
            WHEN r.claim_token IS NOT NULL THEN 'processing'
            ELSE 'not_pushed' END AS status,
       r.lease_owner AS processing_by,
       CASE WHEN r.claim_token IS NOT NULL THEN coalesce(r.claimed_at, r.created_at) END AS processing_started_at,
       CASE WHEN r.claim_token IS NOT NULL THEN r.next_attempt_at END AS processing_lease_expires_at,
       min(r.max_attempts, max(0, r.attempt_count
           - CASE WHEN r.status = 'published' OR r.claim_token IS NOT NULL THEN 1 ELSE 0 END)) AS retry_count,
       n.accepted_at AS notification_received_timestamp,
       r.published_at AS notification_pushed_timestamp,
       max(0, r.published_at - n.accepted_at) AS processing_latency_ms,
       n.accepted_at AS created_at,
       max(r.updated_at, coalesce(e.read_at, 0)) AS updated_at,
       coalesce(n.occurred_at, n.accepted_at) AS event_timestamp,
       r.delivered_at AS notification_delivered_timestamp,
       r.last_error_message AS last_error,
       e.read_at IS NOT NULL AS is_read,
       n.idempotency_key AS event_id,
       e.seq,
       r.claim_token,
       n.priority AS priority_rank
FROM records n
JOIN routes r ON r.notification_id = n.notification_id
LEFT JOIN stream_entries e ON e.notification_id = r.notification_id AND e.route_id = r.route_id
WHERE r.channel = 'sse';
CREATE INDEX routes_ended_idx ON routes (updated_at) WHERE next_attempt_at IS NULL;
CREATE INDEX stream_tickets_expires_idx ON stream_tickets (expires_at);
CREATE INDEX redriven_routes_action_idx ON redriven_routes (action_id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('outbox',1);
COMMIT;
