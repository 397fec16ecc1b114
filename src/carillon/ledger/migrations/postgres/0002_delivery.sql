-- What delivery over vendors needs beside the engine: receipts, templates, people, alerts, audit, keys, shared breakers.

-- What vendors said later of the present message; `receipt` is the furthest word.
ALTER TABLE routes
    ADD COLUMN receipt      text,
    ADD COLUMN delivered_at timestamptz,
    ADD COLUMN opened_at    timestamptz,
    ADD COLUMN clicked_at   timestamptz;

-- A receipt names a vendor's message, not a route of ours.
CREATE INDEX attempts_message_idx ON attempts (provider_message_id) WHERE provider_message_id IS NOT NULL;

-- A scope of '' is everybody's; a tenant's own silence binds nobody else.
ALTER TABLE suppressions
    ADD COLUMN tenant_id text NOT NULL DEFAULT '',
    ADD COLUMN source    text NOT NULL DEFAULT 'delivery',
    DROP CONSTRAINT suppressions_pkey,
    ADD PRIMARY KEY (channel, address, tenant_id);

-- What must be told to somebody outside, written in the commit that made it true and removed once it was told.
CREATE TABLE outbox (
    outbox_id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic               text NOT NULL,
    notification_id     text COLLATE "C" NOT NULL,
    route_id            text COLLATE "C" NOT NULL,
    created_at          timestamptz NOT NULL,
    next_attempt_at     timestamptz NOT NULL,
    attempt_count       integer NOT NULL DEFAULT 0,
    -- What was true then: a redrive may be faster than the telling. Empty is what the route says now.
    final_attempt_count integer,
    failure_message     text,
    -- Which of those to be told have confirmed it, with commas between them.
    told                text NOT NULL DEFAULT ''
);

CREATE INDEX outbox_due_idx ON outbox (next_attempt_at);

-- Redriving many begins with the oldest, lists with the newest.
CREATE INDEX dead_letters_created_idx ON dead_letters (created_at);

-- part: api

CREATE TABLE receipts (
    -- The vendor's own id of the report, else a digest of what it says: a report that comes again is one row.
    receipt_key         text COLLATE "C" PRIMARY KEY,
    provider            text NOT NULL,
    kind                text NOT NULL,
    provider_message_id text,
    idempotency_key     text,
    notification_id     text COLLATE "C",
    route_id            text COLLATE "C",
    address             text,
    classification      text,
    reason              text,
    recipient_gone      boolean NOT NULL DEFAULT FALSE,
    occurred_at         timestamptz,
    received_at         timestamptz NOT NULL,
    -- What it did: noted, failed_over, retried, buried, ignored; waiting until the message it names is known here.
    effect              text NOT NULL
);

CREATE INDEX receipts_received_idx ON receipts (received_at);
CREATE INDEX receipts_waiting_idx ON receipts (received_at) WHERE effect = 'waiting';
-- How often an address was called dead.
CREATE INDEX receipts_gone_idx ON receipts (address) WHERE recipient_gone;
CREATE INDEX receipts_notification_idx ON receipts (notification_id) WHERE notification_id IS NOT NULL;

CREATE TABLE preferences (
    tenant_id        text COLLATE "C" NOT NULL,
    user_id          text COLLATE "C" NOT NULL,
    preferred_locale text,
    channels_json    text NOT NULL DEFAULT '{}',
    contacts_json    text NOT NULL DEFAULT '{}',
    quiet_hours_json text,
    updated_at       timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, user_id)
);

CREATE TABLE templates (
    -- The same for every version of one template.
    template_id            text COLLATE "C" NOT NULL,
    -- '' is for every tenant that has none of its own.
    tenant_id              text COLLATE "C" NOT NULL,
    template_key           text COLLATE "C" NOT NULL,
    channel                text COLLATE "C" NOT NULL,
    locale                 text COLLATE "C" NOT NULL,
    version                integer NOT NULL,
    name                   text,
    description            text,
    subject                text,
    body                   text NOT NULL,
    html                   text,
    default_variables_json text,
    is_active              boolean NOT NULL,
    created_by             text,
    created_at             timestamptz NOT NULL,
    updated_at             timestamptz NOT NULL,
    -- A template is gone while all its versions have one.
    deleted_at             timestamptz,
    PRIMARY KEY (template_id, version),
    CONSTRAINT templates_version UNIQUE (tenant_id, template_key, channel, locale, version)
);

-- Who did what by hand.
CREATE TABLE admin_actions (
    action_id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL,
    actor       text NOT NULL,
    action      text NOT NULL,
    tenant_id   text,
    subject     text,
    reason      text,
    detail_json text
);

CREATE INDEX admin_actions_subject_idx ON admin_actions (subject);

CREATE TABLE api_keys (
    key_id       text COLLATE "C" PRIMARY KEY,
    secret_hash  text NOT NULL,
    tenant_id    text,
    role         text NOT NULL,
    name         text NOT NULL,
    created_at   timestamptz NOT NULL,
    last_used_at timestamptz,
    expires_at   timestamptz,
    revoked_at   timestamptz
);

-- The breakers of a fleet without Redis.
CREATE TABLE breakers (
    service    text COLLATE "C" NOT NULL,
    provider   text COLLATE "C" NOT NULL,
    state      text NOT NULL,
    failures   integer NOT NULL,
    successes  integer NOT NULL,
    opened_at  timestamptz,
    -- When each probe under way began, in seconds.
    probes_json text NOT NULL,
    updated_at timestamptz NOT NULL,
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

-- The same for those who write the names without quotes.
CREATE VIEW notificationqueue AS
SELECT "Id" AS id, "TenantId" AS tenantid, "UserId" AS userid, "Channel" AS channel, "TemplateKey" AS templatekey,
       "Priority" AS priority, "Status" AS status, "Locale" AS locale, "Recipient" AS recipient,
       "AttemptCount" AS attemptcount, "LastError" AS lasterror, "Provider" AS provider,
       "ProviderMessageId" AS providermessageid, "CreatedAt" AS createdat, "SentAt" AS sentat,
       "DeliveredAt" AS deliveredat, "FailedAt" AS failedat, "NextAttemptAt" AS nextattemptat
FROM "NotificationQueue";

-- part: audit
-- adopts: audit_logs

-- Document 000's audit log; `audit_key` lets many copies of one message write one row.
CREATE TABLE audit_logs (
    audit_id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    trace_id          text NOT NULL,
    user_id           text NOT NULL,
    notification_type text NOT NULL,
    template_id       text,
    status            text NOT NULL,
    metadata          jsonb,
    created_at        timestamptz NOT NULL,
    audit_key         text UNIQUE
);

CREATE INDEX audit_logs_trace_idx ON audit_logs (trace_id);
